"""From torch.profiler's events to plain rows: operator, module, phase, self time."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from objectives.measure.operators import Row
from objectives.trial.module_ranges import OUTSIDE, PREFIX

STEP, DATA, FORWARD, OPTIMIZER = "tightfit:step", "tightfit:data", "tightfit:forward", "tightfit:optimizer"
"""Names of our own ranges; what is in a step and in none of the others is the backward pass."""
PHASES = {DATA: "data", FORWARD: "forward", OPTIMIZER: "optimizer"}
ENGINE = "autograd::engine::evaluate_function"
PRODUCTS = frozenset({"aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm", "aten::mkldnn_convolution"})
MICRO = 1e-6
Key = tuple[str, str, str]
"""Operator, module, phase."""


@dataclass(kw_only=True)
class Table:
    """A profile as rows.

    Attributes:
        step_seconds: Wall time of the profiled steps.
        idle_share: Share of it in which the device computed nothing.
        phase_seconds: Wall time by phase.
        module_calls: Forward calls by module.
        module_seconds: Wall time of each module's forward, without that of the modules it calls.
    """

    rows: list[Row]
    step_seconds: float
    idle_share: float
    phase_seconds: Mapping[str, float]
    module_calls: Mapping[str, int] = field(default_factory=dict)
    module_seconds: Mapping[str, float] = field(default_factory=dict)


def table_of(events: Iterable[Any], *, on_device: bool) -> Table:
    """The rows of a profile.

    Args:
        events: ``torch.profiler.profile.events()``.
        on_device: Whether times are the device's (CUDA) instead of the host's.
    """
    listed = list(events)
    host = [event for event in listed if str(event.device_type).endswith("CPU") and not event.is_async]
    steps = sorted((event for event in host if event.name == STEP), key=lambda event: event.time_range.start)
    reader = _Reader(host, steps, on_device=on_device)
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
        module_seconds=_own_seconds(host),
    )


class _Reader:
    """Finds module and phase of each event; backward events belong to the module that made their forward."""

    def __init__(self, events: Sequence[Any], steps: Sequence[Any], *, on_device: bool) -> None:
        self._events, self._on_device = events, on_device
        self._starts = [event.time_range.start for event in steps]
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
        """One row per operator, module and phase.

        Every step does the same work: times are the median step's, so that one in which the machine did something else
        accuses nobody.
        """
        own, whole = _Steps(len(self._starts)), _Steps(len(self._starts))
        calls: Counter[Key] = Counter()
        direct: Counter[Key] = Counter()
        for event in self._events:
            if _is_range(event.name) or not self._inside(event):
                continue
            key, step = (_name(event), *self._module(event)), bisect(self._starts, event.time_range.start) - 1
            seconds = event.self_device_time_total if self._on_device else event.self_cpu_time_total
            own.add(key, step, MICRO * float(seconds))
            calls[key] += 1
            if event.cpu_parent is not None and _is_range(event.cpu_parent.name):
                direct[key] += 1
                whole.add(key, step, _length(event))
        return [
            Row(
                operator=key[0], module=key[1], phase=key[2], seconds=own.total(key), calls=calls[key],
                direct_calls=direct[key], direct_seconds=whole.total(key),
            )
            for key in calls
        ]  # fmt: skip

    def _inside(self, event: Any) -> bool:
        """Whether it is work of a step: under one of our ranges, or in the thread of the backward pass."""
        return event.cpu_parent is not None or event.name.startswith((ENGINE, "aten::"))


class _Steps:
    """Seconds by key and step."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._seconds: dict[Key, dict[int, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, key: Key, step: int, seconds: float) -> None:
        self._seconds[key][step] += seconds

    def total(self, key: Key) -> float:
        """The median step, times the steps."""
        return self._steps * median(self._seconds[key][step] for step in range(self._steps)) if self._steps else 0.0


def _own_seconds(events: Sequence[Any]) -> dict[str, float]:
    """Wall time of each module's range less that of the ranges directly in it."""
    seconds: dict[str, float] = defaultdict(float)
    for event in events:
        if not event.name.startswith(PREFIX):
            continue
        seconds[event.name.removeprefix(PREFIX)] += _length(event)
        if event.cpu_parent is not None and event.cpu_parent.name.startswith(PREFIX):
            seconds[event.cpu_parent.name.removeprefix(PREFIX)] -= _length(event)
    return dict(seconds)


def _name(event: Any) -> str:
    """Its own name; a backward node by the node alone; the copy that a product makes of its bias, the product."""
    parent = event.cpu_parent
    if parent is not None and parent.name in PRODUCTS and event.name == "aten::copy_":
        return str(parent.name)
    return str(event.name).removeprefix(f"{ENGINE}: ")


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
