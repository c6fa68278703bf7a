"""From torch.profiler's events to plain rows: operator, module, phase, self time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from objectives.measure.operators import Row
from objectives.trial.module_ranges import OUTSIDE, PREFIX

STEP, DATA, FORWARD, OPTIMIZER = "tightfit:step", "tightfit:data", "tightfit:forward", "tightfit:optimizer"
"""Names of our own ranges; what is in a step and in none of the others is the backward pass."""
PHASES = {DATA: "data", FORWARD: "forward", OPTIMIZER: "optimizer"}
ENGINE = "autograd::engine::evaluate_function"
MICRO = 1e-6


@dataclass(kw_only=True)
class Table:
    """A profile as rows.

    Attributes:
        step_seconds: Wall time of the profiled steps.
        idle_share: Share of it in which the device computed nothing.
        phase_seconds: Wall time by phase.
        module_calls: Forward calls by module.
    """

    rows: list[Row]
    step_seconds: float
    idle_share: float
    phase_seconds: Mapping[str, float]
    module_calls: Mapping[str, int] = field(default_factory=dict)


def table_of(events: Iterable[Any], *, on_device: bool) -> Table:
    """The rows of a profile.

    Args:
        events: ``torch.profiler.profile.events()``.
        on_device: Whether times are the device's (CUDA) instead of the host's.
    """
    listed = list(events)
    host = [event for event in listed if str(event.device_type).endswith("CPU") and not event.is_async]
    reader = _Reader(host, on_device=on_device)
    steps = [event for event in host if event.name == STEP]
    seconds = sum(_length(event) for event in steps)
    busy = _busy(listed, steps, on_device=on_device)
    phases = {phase: sum(_length(e) for e in host if e.name == name) for name, phase in PHASES.items()}
    phases["backward"] = max(0.0, seconds - sum(phases.values()))
    return Table(
        rows=reader.rows(),
        step_seconds=seconds,
        idle_share=min(max(1 - busy / seconds, 0.0), 1.0) if seconds else 0.0,
        phase_seconds=phases,
        module_calls=Counter(e.name.removeprefix(PREFIX) for e in host if e.name.startswith(PREFIX)),
    )


class _Reader:
    """Finds module and phase of each event; backward events belong to the module that made their forward."""

    def __init__(self, events: Sequence[Any], *, on_device: bool) -> None:
        self._events, self._on_device = events, on_device
        self._places: dict[int, tuple[str, str]] = {}
        self._made_by: dict[int, str] = {}
        for event in events:
            module, phase = self._place(event)
            if event.sequence_nr >= 0 and module and phase == "forward":
                self._made_by[event.sequence_nr] = module

    def _place(self, event: Any) -> tuple[str, str]:
        """Module and phase, by the nearest ranges above."""
        key = id(event)
        if key not in self._places:
            parent = event.cpu_parent
            above = (OUTSIDE, "backward") if parent is None else self._place(parent)
            if event.name.startswith(PREFIX):
                above = (event.name.removeprefix(PREFIX), "forward" if above[1] != "backward" else "backward")
            elif event.name in PHASES:
                above = (OUTSIDE, PHASES[event.name])
            elif event.name == STEP:
                above = (OUTSIDE, "backward")
            self._places[key] = above
        return self._places[key]

    def _module(self, event: Any) -> tuple[str, str]:
        module, phase = self._place(event)
        if module or phase != "backward":
            return module, phase
        above = event
        while above is not None and not above.name.startswith(ENGINE):
            above = above.cpu_parent
        return (self._made_by.get(above.sequence_nr, OUTSIDE) if above is not None else OUTSIDE), phase

    def rows(self) -> list[Row]:
        """One row per operator, module and phase."""
        seconds: dict[tuple[str, str, str], float] = defaultdict(float)
        direct_seconds: dict[tuple[str, str, str], float] = defaultdict(float)
        calls: Counter[tuple[str, str, str]] = Counter()
        direct: Counter[tuple[str, str, str]] = Counter()
        for event in self._events:
            if _is_range(event.name) or not self._inside(event):
                continue
            key = (_plain(event.name), *self._module(event))
            seconds[key] += MICRO * float(event.self_device_time_total if self._on_device else event.self_cpu_time_total)
            calls[key] += 1
            if event.cpu_parent is not None and _is_range(event.cpu_parent.name):
                direct[key] += 1
                direct_seconds[key] += _length(event)
        return [
            Row(
                operator=key[0], module=key[1], phase=key[2], seconds=seconds[key], calls=calls[key],
                direct_calls=direct[key], direct_seconds=direct_seconds[key],
            )
            for key in calls
        ]  # fmt: skip

    def _inside(self, event: Any) -> bool:
        """Whether it is work of a step: under one of our ranges, or in the thread of the backward pass."""
        return event.cpu_parent is not None or event.name.startswith((ENGINE, "aten::"))


def _plain(name: str) -> str:
    """Nodes of the backward pass by the name of the node alone."""
    return name.removeprefix(f"{ENGINE}: ")


def _is_range(name: str) -> bool:
    return name.startswith((PREFIX, "tightfit:", "ProfilerStep", "Optimizer.", "enumerate(DataLoader)"))


def _length(event: Any) -> float:
    return MICRO * float(event.time_range.end - event.time_range.start)


def _busy(events: Sequence[Any], steps: Sequence[Any], *, on_device: bool) -> float:
    """Seconds inside the steps in which something was computed: the union of operators', or kernels', intervals."""
    if on_device:
        working = [event for event in events if not str(event.device_type).endswith("CPU")]
    else:
        working = [event for event in events if event.name.startswith("aten::")]
    spans = sorted((event.time_range.start, event.time_range.end) for event in working)
    total, reached = 0.0, float("-inf")
    bounds = [(step.time_range.start, step.time_range.end) for step in steps]
    if not bounds:
        return 0.0
    first, last = min(low for low, _ in bounds), max(high for _, high in bounds)
    for low, high in spans:
        low, high = max(low, first, reached), min(high, last)
        if high > low:
            total, reached = total + high - low, high
    return MICRO * total
