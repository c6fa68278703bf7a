"""What only the workload itself can tell: which loss, tokens or batching it really uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from objectives.config import KnobValue

if TYPE_CHECKING:
    from objectives.trial.setup import Setup


def named_by_workload(knob: str, method: str) -> Callable[[Setup], KnobValue | None]:
    """A ``read_back`` that asks the workload's optional ``in_effect() -> Mapping[str, value]`` for one knob.

    Gives None where the workload lacks ``method`` (the knob cannot be set) or does not tell.
    """

    def read_back(setup: Setup) -> KnobValue | None:
        tell = getattr(setup.workload, "in_effect", None)
        if tell is None or not hasattr(setup.workload, method):
            return None
        found: KnobValue | None = tell().get(knob)
        return found

    return read_back
