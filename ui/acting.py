"""The one door through which these screens change anything: who may not is refused here, whatever the page showed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tuner import service
from ui.access import require_editor

P = ParamSpec("P")
R = TypeVar("R")


def _for_editors(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def guarded(*arguments: P.args, **named: P.kwargs) -> R:
        require_editor()
        return function(*arguments, **named)

    return guarded


@_for_editors
def pause(name: str) -> Mapping[str, Any]:
    """As :func:`tuner.service.pause`; raises :class:`~ui.access.Forbidden` for a reader, as all of these."""
    return service.pause(name)


@_for_editors
def resume(name: str) -> Mapping[str, Any]:
    """As :func:`tuner.service.resume`."""
    return service.resume(name)


@_for_editors
def cancel(name: str) -> Mapping[str, Any]:
    """As :func:`tuner.service.cancel`."""
    return service.cancel(name)


@_for_editors
def delete(name: str) -> Mapping[str, Any]:
    """As :func:`tuner.service.delete`; a running study is not deleted from here."""
    return service.delete(name)


@_for_editors
def submit(text: str, *, priority: int = 0) -> Mapping[str, Any]:
    """Hands the spec that was typed to the workers.

    Args:
        text: YAML.
        priority: Higher is served first.

    Raises:
        SpecError: It cannot be used.
        Refused: It names something that the operator's list does not.
        StudyError: As :func:`tuner.service.submit`.
    """
    from ui.forms.check import usable_spec

    return service.submit(usable_spec(text), priority=priority)


@_for_editors
def release(worker: str) -> Mapping[str, Any]:
    """As :func:`tuner.service.release_worker`."""
    return service.release_worker(worker)
