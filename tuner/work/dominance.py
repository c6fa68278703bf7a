"""The worker's side of pruning: collects a run's steps as they come, asks it to stop, keeps what it was stopped at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from objectives.trial.outcome import Verdict
from tuner.search.pruning import CAUSE, COLD_STEPS, PruningRule, Steps
from tuner.work.runner import RunEnd

if TYPE_CHECKING:
    from objectives.trial.protocol import Event

COUNTED_PHASES = frozenset({"warm_up", "measure"})
"""Steps of these phases count: before them batches are the longest, not what training sees."""
NOT_OF_A_BOUND = ("relative_standard_error", "half_width_95", "throughput_standard_error")
"""Fields of a measurement that speak of its mean, not of a bound."""


@dataclass(kw_only=True)
class DominanceWatch:
    """One run under a rule. The first two steps count as cold; how long each step took is read off the events' times.

    Attributes:
        rule: What the run is held against.
        bound: The upper bound on its throughput once it has been asked to stop; None before.
    """

    rule: PruningRule
    bound: float | None = None
    _phase: str = "import"
    _peak: int | None = None
    _last: float = 0.0
    _seconds: list[float] = field(default_factory=list)
    _units: list[float] = field(default_factory=list)
    _elapsed: list[float] = field(default_factory=list)

    def watch(self, event: Event) -> str | None:
        """Sees an event; ``dominated`` once the run can no longer reach the front."""
        if event.event == "phase":
            self._phase, self._last = str(event.fields.get("phase")), event.monotonic_seconds
        elif event.event == "memory":
            self._peak = event.fields.get("peak_memory_bytes")
        elif event.event == "step" and self._phase in COUNTED_PHASES:
            return self._step(event)
        return None

    def _step(self, event: Event) -> str | None:
        elapsed, self._last = event.monotonic_seconds - self._last, event.monotonic_seconds
        self._seconds.append(float(event.fields["seconds"]))
        self._units.append(float(event.fields["units"]))
        self._elapsed.append(elapsed)
        if self._peak is None or self.bound is not None:
            return None
        self.bound = self.rule.bound(self._warm_steps(), self._peak)
        return None if self.bound is None else CAUSE

    def _warm_steps(self) -> Steps:
        """The steps after the cold ones; while there are none, the cold ones as fast as they may be when warm."""
        cold = len(COLD_STEPS)
        if len(self._seconds) > cold:
            return Steps(seconds=self._seconds[cold:], units=self._units[cold:], elapsed=self._elapsed[cold:])
        warmed = [seconds / factor for seconds, factor in zip(self._seconds, COLD_STEPS, strict=False)]
        return Steps(seconds=warmed, units=self._units, elapsed=self._elapsed)

    def judge(self, end: RunEnd) -> RunEnd:
        """The run's end, ``pruned`` with the bound as its throughput when it was stopped for it.

        A run that had failed on its own, or had measured its whole window before it heard, keeps its own end.
        """
        stopped = end.verdict.outcome == "completed" and end.measurement.get("stop_reason") == CAUSE
        if self.bound is None or not (stopped or end.verdict.outcome == "pruned"):
            return end
        text = (
            f"stopped after {len(self._seconds)} steps: at most {self.bound:.4g} units per second, and a front member "
        )
        verdict = Verdict(outcome="pruned", cause=CAUSE, text=text + "that needs no more memory is faster")
        return replace(end, verdict=verdict, measurement=self._measurement(end))

    def _measurement(self, end: RunEnd) -> dict[str, Any]:
        known: dict[str, Any] = {
            "throughput_unit": self.rule.unit,
            "step_seconds": list(self._seconds),
            "memory": dict(end.memory),
        }
        told = {name: value for name, value in end.measurement.items() if value is not None}
        seen = sum(self._units) / sum(self._seconds)
        made = known | told | {"throughput": self.bound, "throughput_seen": seen}
        return made | dict.fromkeys(NOT_OF_A_BOUND)
