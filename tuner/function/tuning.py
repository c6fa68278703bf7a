"""``tuner.tune``: the fastest configuration for a function that makes a model, its data and its loss."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from objectives.contract import Unit
from objectives.function import KIND
from tuner.errors import TightfitError
from tuner.function.ladder import HALF, TENTH, ladder
from tuner.function.result import Tuned
from tuner.function.travel import fingerprint_of, name_of, travelling
from tuner.function.watching import watching
from tuner.stop import Stop

SEARCH: Mapping[str, Any] = {
    "precision": ["fp32", "bf16-mixed"],
    "activation_checkpointing": ["none", "full"],
    "optimizer": ["adamw-foreach", "adamw-fused"],
    "loader_workers": [0, 2],
}
"""Searched beside the micro-batch where nothing else is said; what cannot run here is refused before a trial."""
LIMITS: Mapping[str, Any] = {"trials": 24, "time": "5m", "window": "4s"}


def tune(
    make_training: Callable[[], Any],
    *,
    global_batch_size: int,
    search: Mapping[str, Any] | None = None,
    baseline: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    unit: Unit = "samples",
    study: str | None = None,
    progress: bool = True,
    **more: Any,
) -> Tuned:
    """Finds the configuration that trains fastest inside the memory, by short, real trials of a function's training.

    It replaces ``find_executable_batch_size`` in one line, keeps the global batch, and says what that would have
    chosen::

        result = tuner.tune(make_training, global_batch_size=64)
        micro, steps = result.config["micro_batch_size"], result.config["accumulation_steps"]

    Each trial calls the function in a fresh process on this machine. The function, with what it closes over, travels in
    a private file and is never stored; the study's name follows from a fingerprint of it, so the same call again goes
    on where it stopped, or answers at once.

    Args:
        make_training: Called without arguments. Returns a workload (:mod:`objectives.contract`) or ``(model, dataset,
            loss)`` or ``(model, dataset, loss, collate)``, where ``loss(model, batch)`` returns the sum over units with
            their number, or the mean over the samples of the batch.
        global_batch_size: Samples per optimizer step: what the optimizer sees, never changed.
        search: Values by knob, as in a spec; None for a sensible space. The micro-batch is searched from 1 to the whole
            global batch where it is not named.
        baseline: The configuration you would have used; None for PyTorch's defaults.
        limits: As in a spec: ``memory``, ``trials``, ``time``, ``trial_time``, ``window``; over the defaults.
        unit: What the loss counts: ``samples`` or ``tokens``.
        study: A name of your own.
        progress: Whether a bar is shown.
        more: Further keys of a spec: ``device``, ``seed``, ``sampler``, ``learning_rate``, ``max_grad_norm``, ...

    Raises:
        CannotTravel: The function uses something that cannot be taken to another process.
        SpecError: A knob or limit cannot be used, or the function returns no training.
        StudyError: The name means another study.
        TightfitError: It cannot be worked on here; the message says why.
    """
    if not callable(make_training):
        raise TightfitError(f"a {type(make_training).__name__} is no function: give one that returns the training")
    from tuner import api
    from tuner import spec as specs
    from tuner.settings import Settings

    mark = fingerprint_of(make_training)
    asked = specs.read({
        "study": study or _name(make_training, mark),
        "objective": {"kind": KIND, "settings": {"fingerprint": mark, "unit": unit, "name": name_of(make_training)}},
        "global_batch_size": global_batch_size,
        "search": {**_micro_batches(global_batch_size), **(SEARCH if search is None else search)},
        "baseline": dict(baseline or {}),
        "limits": {**LIMITS, **(limits or {})},
        **more,
    })  # fmt: skip
    with (
        travelling(make_training, mark, Settings.from_environment().data_dir / "functions") as folder,
        watching(shown=progress) as on_progress,
        _stopping() as stop,
    ):
        asked = replace(asked, objective=replace(asked.objective, folder=str(folder)))
        result = api.run(asked, on_progress=on_progress, stop=stop)
    return tuned(result.to_json())


def tuned(document: Mapping[str, Any]) -> Tuned:
    """A stored study's answer as ``tune`` returns it.

    Args:
        document: Of ``tuner run`` or ``tuner show``.
    """
    from tuner import api
    from tuner.answer.summary import trial_json

    view = api.view(str(document["study"]))
    measured = [trial_json(each, view) for each in view.ended if each.outcome == "completed"]
    found = [made for factor in (TENTH, HALF) if (made := ladder(view, factor)) is not None]
    return Tuned(document=document, trials=tuple(measured), ladders=tuple(found))


def _micro_batches(global_batch_size: int) -> dict[str, Any]:
    return {"micro_batch_size": {"low": 1, "high": max(global_batch_size, 1)}}


def _name(function: Callable[[], Any], mark: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name_of(function)).strip("-") or "function"
    return f"{plain[:60]}-{mark[:8]}"


@contextmanager
def _stopping() -> Iterator[Stop]:
    """Ctrl-C keeps what is done, as on the command line; elsewhere than in the main thread nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield Stop()
        return
    from tuner.cli.running import stop_on_signals

    with stop_on_signals() as stop:
        yield stop
