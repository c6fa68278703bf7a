"""What the longer runs (``verify``, ``soak``, ``profile``) leave in a study's store, as the checks read it. Pure.

The run's ``measurement`` holds the fields of these records under the same names, nested records as mappings, sequences
as lists; ``purpose`` and ``trial_id`` stand on the run. A field that is missing there is None (or empty): not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from storage.records import RunRecord

Json = Mapping[str, Any]
Record = TypeVar("Record")
Growth = Literal["flat", "saturates", "grows", "steps", "cannot_tell"]
Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ParameterDistance:
    """One parameter's gradient: relative L2 distance between the two splits."""

    name: str
    distance: float


@dataclass(frozen=True, kw_only=True)
class GradientComparison:
    """The gradient of one global batch, split in two ways, dropout off.

    Attributes:
        precision: The precision both were computed in.
        micro_batch_size: Of the split that is examined (the winner's).
        accumulation_steps: Its micro-batches.
        reference_micro_batch_size: Of the split it is compared with: the whole batch, else the baseline's.
        reference_accumulation_steps: Its micro-batches.
        distance: L2 norm of the difference over that of the reference gradient, all parameters together.
        bound: The largest distance that rounding explains in this precision.
        scale: Distance of the reference split in this precision from its fp32 gradient; None where it was not computed.
        parameters: The largest distances by parameter, largest first: to find the place, not to judge by.
    """

    precision: str
    micro_batch_size: int
    accumulation_steps: int
    reference_micro_batch_size: int
    reference_accumulation_steps: int
    distance: float
    bound: float
    scale: float | None = None
    parameters: tuple[ParameterDistance, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """Mean loss per unit after each update, from the same seed and data.

    Attributes:
        examined: Of the winner.
        reference: Of the baseline.
        band: Relative difference that two runs of one configuration show (run to run).
        leaves_at: Index of the first update from which on the two differ by more; None where they stay together.
    """

    examined: tuple[float, ...]
    reference: tuple[float, ...]
    band: float
    leaves_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a ``verify`` run found.

    Attributes:
        not_comparable: Why the gradient depends on the split by the model's own design (batch norm, auxiliary losses,
            contrastive losses); None where it must not.
        without_gradient: Trainable parameters that got no gradient.
        scheduler_steps_per_update: Learning-rate steps per optimizer step; 1 is right. None without a scheduler.
        lost_samples: Samples of one pass over the data that enter no update (a last window thrown away); None: unknown.
        samples: Of one pass.
        lost_update_shares: By precision: share (0 to 1) of the parameters' elements whose update rounds to nothing.
    """

    run: str
    trial_id: int | None
    gradient: GradientComparison | None = None
    loss_curve: LossCurve | None = None
    not_comparable: str | None = None
    without_gradient: tuple[str, ...] = ()
    scheduler_steps_per_update: float | None = None
    lost_samples: int | None = None
    samples: int | None = None
    lost_update_shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One thing tried against growth, or near the limit.

    Attributes:
        name: For people: ``allocator expandable_segments``, ``empty_cache every 50 steps``.
        knobs: The knob values that are the remedy; empty where it is none of ours.
        growth_bytes_per_hour: With it; None where it cannot be told.
        growth_interval: 95 %.
        peak_memory_bytes: With it.
        slowdown: Share of throughput it costs (negative: it gains); None where not measured.
        helps: Whether growth or peak is lower than without it, beyond the noise.
    """

    name: str
    helps: bool
    knobs: Mapping[str, Any] = field(default_factory=dict)
    growth_bytes_per_hour: float | None = None
    growth_interval: Interval | None = None
    peak_memory_bytes: int | None = None
    slowdown: float | None = None


@dataclass(frozen=True, kw_only=True)
class SoakPoint:
    """Memory at one moment of a soak: seconds since its start, bytes. None where the device does not say."""

    seconds: float
    reserved_bytes: int | None = None
    allocated_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What a ``soak`` run found.

    Attributes:
        seconds: How long it ran.
        growth: The curve's kind. Step-like growth is not extrapolated.
        growth_bytes_per_hour: Of reserved (CPU: resident) memory; None where it cannot be told.
        growth_interval: 95 %.
        leak: Whether live tensors grow, not only what the allocator holds: another fault than fragmentation.
        leak_source: What the leak holds, for people; None where not known.
        peak_memory_bytes: The largest seen.
        allocated_bytes: In live tensors at the end.
        reserved_bytes: Held by the allocator at the end.
        largest_free_block_bytes: The smallest seen; None where the device does not say.
        allocation_retries: Allocations that first had to give cached blocks back, over the whole run.
        evaluation: Whether the run held evaluation breaks.
        remedies: Tried, in order.
        recommendation: What goes into the export; None for nothing.
        series: Memory over the run, at most some hundred points.
    """

    run: str
    trial_id: int | None
    seconds: float
    growth: Growth
    growth_bytes_per_hour: float | None = None
    growth_interval: Interval | None = None
    leak: bool = False
    leak_source: str | None = None
    peak_memory_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    largest_free_block_bytes: int | None = None
    allocation_retries: int | None = None
    evaluation: bool = False
    remedies: tuple[Remedy, ...] = ()
    recommendation: str | None = None
    series: tuple[SoakPoint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator (kernel) of a profile: seconds in the profiled steps, and its share (0 to 1) of their time."""

    name: str
    seconds: float
    share: float
    calls: int = 0
    category: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileFinding:
    """A thing a profile shows that costs time without need.

    Attributes:
        kind: ``hidden_synchronisation``, ``wrong_device``, ``slow_path`` or ``copy_bound``.
        where: Module, operator or source line.
        text: One sentence for people.
        share: Of the step time; None where it cannot be told.
        advice: What to change.
    """

    kind: str
    where: str
    text: str
    share: float | None = None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """What a ``profile`` run found. Its times are no measurement: the tool slows the run.

    Attributes:
        tool: ``torch``, ``memory``, ``nsys`` or ``ncu``.
        operators: The dearest first.
        shares: Of the step time (0 to 1) by category: ``attention``, ``matmul``, ``elementwise``, ``copies``,
            ``communication``, ``idle``, ``other``.
        findings: What costs without need.
        memory_by_category: Bytes at the peak.
        memory_by_module: Bytes at the peak.
        files: Artifacts kept.
        unavailable: Why the tool could not run, and how to get it; None when it ran.
    """

    run: str
    trial_id: int | None
    tool: str
    operators: tuple[Operator, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[ProfileFinding, ...] = ()
    memory_by_category: Mapping[str, int] = field(default_factory=dict)
    memory_by_module: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    unavailable: str | None = None


def verified(runs: Iterable[RunRecord]) -> tuple[Verified, ...]:
    """The completed ``verify`` runs, latest first."""
    return tuple(_verified(run) for run in _of(runs, "verify"))


def soaked(runs: Iterable[RunRecord]) -> tuple[Soaked, ...]:
    """The completed ``soak`` runs, latest first."""
    return tuple(_soaked(run) for run in _of(runs, "soak", "seconds", "growth"))


def profiled(runs: Iterable[RunRecord]) -> tuple[Profiled, ...]:
    """The completed ``profile`` runs, latest first."""
    return tuple(_profiled(run) for run in _of(runs, "profile", "tool"))


def _of(runs: Iterable[RunRecord], purpose: str, *needed: str) -> list[RunRecord]:
    """Completed runs of a purpose whose measurement has what its record cannot do without, latest first."""
    done = (run for run in runs if run.purpose == purpose and run.outcome == "completed" and run.measurement)
    found = [run for run in done if all(run.measurement.get(name) is not None for name in needed)]
    return sorted(found, key=lambda run: (run.started_at, run.id), reverse=True)


def _verified(run: RunRecord) -> Verified:
    said = run.measurement
    gradient, curve = said.get("gradient"), said.get("loss_curve")
    return _record(
        Verified,
        said,
        run=run.id,
        trial_id=run.trial_id,
        gradient=None if not gradient else _gradient(gradient),
        loss_curve=None if not curve else _record(LossCurve, curve, examined=tuple(curve.get("examined") or ()),
                                                  reference=tuple(curve.get("reference") or ())),
        without_gradient=tuple(said.get("without_gradient") or ()),
    )  # fmt: skip


def _gradient(said: Json) -> GradientComparison:
    parts = tuple(_record(ParameterDistance, each) for each in said.get("parameters") or ())
    return _record(GradientComparison, said, parameters=parts)


def _soaked(run: RunRecord) -> Soaked:
    said = run.measurement
    return _record(
        Soaked,
        said,
        run=run.id,
        trial_id=run.trial_id,
        growth_interval=_pair(said.get("growth_interval")),
        remedies=tuple(
            _record(Remedy, each, growth_interval=_pair(each.get("growth_interval")))
            for each in said.get("remedies") or ()
        ),
        series=tuple(_record(SoakPoint, each) for each in said.get("series") or ()),
    )


def _profiled(run: RunRecord) -> Profiled:
    said = run.measurement
    return _record(
        Profiled,
        said,
        run=run.id,
        trial_id=run.trial_id,
        operators=tuple(_record(Operator, each) for each in said.get("operators") or ()),
        findings=tuple(_record(ProfileFinding, each) for each in said.get("findings") or ()),
        files=tuple(said.get("files") or ()),
    )


def _record(kind: type[Record], said: Json, **made: Any) -> Record:
    """A record from a mapping: known fields that are not null, and those made already."""
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in said.items() if name in known and value is not None}
    return kind(**{**given, **made})


def _pair(said: Sequence[float] | None) -> Interval | None:
    return None if not said or len(said) != 2 or None in said else (float(said[0]), float(said[1]))
