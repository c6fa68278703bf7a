"""How far a run has come, from the events of its child. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from objectives.trial.protocol import Event


@dataclass(frozen=True, kw_only=True)
class Advance:
    """One moment of a run.

    Attributes:
        phase: What it is doing: ``import``, ``build``, ``worst_case``, ``measure``, ...
        steps: Optimizer steps (or micro-steps) of all its phases.
        units: Tokens or samples of this phase, those of skipped steps left out.
        seconds: What the steps of this phase took.
        memory_bytes: Peak memory so far; None before it is known.
    """

    phase: str = "import"
    steps: int = 0
    units: float = 0.0
    seconds: float = 0.0
    memory_bytes: int | None = None

    @property
    def units_per_second(self) -> float | None:
        """The rate of this phase; None before its first step."""
        return self.units / self.seconds if self.seconds else None

    def after(self, event: Event) -> Advance:
        """The moment after an event; the same one where the event says nothing of it."""
        fields = event.fields
        if event.event == "phase":
            return replace(self, phase=str(fields["phase"]), units=0.0, seconds=0.0)
        if event.event == "memory":
            return replace(self, memory_bytes=fields.get("peak_memory_bytes", self.memory_bytes))
        if event.event == "step":
            units = 0.0 if fields.get("skipped") else float(fields["units"])
            seconds = self.seconds + float(fields["seconds"])
            return replace(self, steps=self.steps + 1, units=self.units + units, seconds=seconds)
        return self

    def to_mapping(self) -> Mapping[str, Any]:
        """What the store keeps of it."""
        return {
            "phase": self.phase,
            "steps": self.steps,
            "units_per_second": self.units_per_second,
            "memory_bytes": self.memory_bytes,
        }
