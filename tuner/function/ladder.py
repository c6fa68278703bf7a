"""What a batch finder would have chosen: ``find_executable_batch_size`` goes down from a size until one fits. Pure.

accelerate (1.15, ``utils/memory.py``) multiplies the size by 0.9 after each failure, older versions and Lightning halve
it; both take the first that fits, whatever it does to the effective batch, and leave every other setting as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from objectives.config import TrainingConfig, divisors
from objectives.knobs import config_key
from tuner.search.front import is_feasible
from tuner.search.predictions import WITHOUT_TENSORS, predicted_peaks

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

TENTH, HALF = 0.9, 0.5

Curve = Mapping[int, float]
"""A figure by micro-batch size."""


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """One batch finder's answer.

    Attributes:
        factor: By which it goes down.
        start: Where it begins: the whole global batch at once.
        chosen: The batch it ends at; 0 when not even one sample fits.
        failures: Runs out of memory on the way.
        throughput: Of that batch with the baseline's other settings, in the study's unit; None when unknown.
        estimated: Whether that speed is between (or beyond) measured sizes.
    """

    factor: float
    start: int
    chosen: int
    failures: int
    throughput: float | None = None
    estimated: bool = True


def ladder(view: StudyView, factor: float = TENTH) -> Ladder | None:
    """What the finder would have chosen on this model and memory; None where memory or batch are not known."""
    start, limit = view.spec.global_batch_size, view.study.memory_limit_bytes
    baseline = next((each for each in view.trials if each.number == 0), None)
    if start is None or limit is None or baseline is None:
        return None
    base = TrainingConfig.from_mapping(baseline.config)
    peaks = _peaks(view, base, start)
    if len(peaks) < 2 and max(peaks, default=0) < start:
        return None
    chosen, failures = descend(start, factor, lambda size: value_at(peaks, size) <= limit)
    seconds = _seconds(view, base)
    known = chosen in seconds
    rate = chosen / value_at(seconds, chosen) if chosen and (known or len(seconds) > 1) else None
    return Ladder(factor=factor, start=start, chosen=chosen, failures=failures, throughput=rate, estimated=not known)


def descend(start: int, factor: float, fits: object) -> tuple[int, int]:
    """The first size that fits, and how many did not."""
    assert callable(fits)
    size, failures = start, 0
    while size and not fits(size):
        size, failures = int(size * factor), failures + 1
    return size, failures


def value_at(curve: Curve, size: int) -> float:
    """The curve at a size: straight between known sizes, and on beyond the last two."""
    sizes = sorted(curve)
    if len(sizes) == 1:
        return curve[sizes[0]]
    above = next((place for place, each in enumerate(sizes) if each >= size), len(sizes) - 1)
    low, high = sizes[max(above, 1) - 1], sizes[max(above, 1)]
    return curve[low] + (curve[high] - curve[low]) * (size - low) / (high - low)


def _peaks(view: StudyView, base: TrainingConfig, batch: int) -> dict[int, float]:
    """Peak memory by micro-batch with the baseline's other settings: measured, else predicted."""
    predicted = predicted_peaks(view.study.facts.get("predictions") or {})
    found = {}
    for size in divisors(batch):
        key = config_key(base.with_values(micro_batch_size=size, accumulation_steps=batch // size))
        if key in predicted:
            found[size] = float(predicted[key])
    measured = ((each.config, each.peak_memory_bytes) for each in view.ended if each.outcome in ("completed", "pruned"))
    found |= {int(config["micro_batch_size"]): float(peak) for config, peak in measured
              if peak is not None and _alike(config, base, WITHOUT_TENSORS)}  # fmt: skip
    return found


def _seconds(view: StudyView, base: TrainingConfig) -> dict[int, float]:
    """Seconds per pass of a micro-batch in the study's unit (units x 1 / rate), with the baseline's other settings."""
    ended = [each for each in view.ended if each.outcome == "completed" and each.throughput]
    return {
        int(each.config["micro_batch_size"]): int(each.config["micro_batch_size"]) / (each.throughput or 1.0)
        for each in ended
        if is_feasible(each, None) and _alike(each.config, base, frozenset())
    }


def _alike(config: Mapping[str, object], base: TrainingConfig, but: frozenset[str]) -> bool:
    left_out = {"micro_batch_size", "accumulation_steps", *but}
    return all(config.get(name) == value for name, value in base.to_mapping().items() if name not in left_out)


def sentence(found: Sequence[Ladder], best: float | None, unit: str | None) -> str | None:
    """What a person is told; None where nothing is known.

    Args:
        found: Ladders, the one to tell first.
        best: The winner's throughput.
        unit: Of throughput.
    """
    if not found:
        return None
    one = found[0]
    if not one.chosen:
        return f"find_executable_batch_size would have found no batch that fits, after {one.failures} failed attempts."
    steps = "at once" if not one.failures else f"after {one.failures} failed attempt{'s' if one.failures > 1 else ''}"
    said = [f"find_executable_batch_size, from {one.start} down, would have chosen a batch of {one.chosen} {steps}"]
    if one.chosen != one.start:
        said.append(f"and trained with that instead of your global batch of {one.start}")
    if best and one.throughput:
        share = 1 - one.throughput / best
        about = "about " if one.estimated else ""
        compared = (
            f"{abs(share):.0%} {'slower' if share > 0 else 'faster'} than" if abs(share) >= 0.01 else "as fast as"
        )
        rate = f"{one.throughput:,.0f} {(unit or 'units_per_second').replace('_per_second', '/s')}"
        said.append(f"at {about}{rate}, {compared} the winner")
    halved = next((each for each in found[1:] if each.chosen not in (one.chosen, 0)), None)
    tail = f" Halving would have ended at {halved.chosen}." if halved is not None else ""
    return ", ".join(said) + "." + tail
