"""From timed blocks of training steps to a throughput with an interval. Pure: plain numbers in, plain numbers out.

    blocks -> find_warm_up / is_warm -> summarise -> throughput, its error, how long the window must still run

The interval here is a window's own. Whoever compares windows adds the variance between windows and runs: nothing inside
one window can see a neighbour that stays for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from objectives.measure.series import (
    FEWEST_BATCHES,
    change_to_faster,
    error_of_mean,
    quantile,
    student_t,
    variance,
)

if TYPE_CHECKING:
    from objectives.trial.protocol import WindowPlan

ALWAYS_DROPPED = 2
"""Step 1 takes 2.4 times the median, step 2 up to 1.5 times, flat from step 3 on (measured)."""
GROSS = 1.5
"""A step so many times the later median is warm-up without any test (compile, autotune, allocator growth)."""
LOOK_GROWTH = 1.15
"""A window is looked at again when it has so many times the blocks of the last look: few looks, little luck."""
STARVED_FROM, STARVED_FULLY = 0.02, 0.10
"""Waiting below 2 % of a block is the hand-over of a ready batch; from 10 % on the loader sets the pace."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One optimizer step as timed: all its micro-steps, or some of them from which the whole is composed.

    Attributes:
        micro_seconds: Seconds of each micro-step that ran, its wait for data included.
        micro_units: Real tokens or samples of each of them.
        optimizer_seconds: Seconds of the update (unscale, clip, step, zero the gradients).
        accumulation_steps: Micro-steps of a whole optimizer step.
        applied: False for an update the loss scaler skipped: it costs time and brings nothing.
        data_wait_seconds: Of the micro-steps' seconds, those the host waited for the loader.
        overlapped_loading: Whether loader workers make batches while the model computes.
    """

    micro_seconds: tuple[float, ...]
    micro_units: tuple[int, ...]
    optimizer_seconds: float
    accumulation_steps: int
    applied: bool = True
    data_wait_seconds: float = 0.0
    overlapped_loading: bool = False

    @property
    def wall_seconds(self) -> float:
        """Seconds this block really took."""
        return math.fsum(self.micro_seconds) + self.optimizer_seconds

    @property
    def composed(self) -> bool:
        """Whether some of the step's micro-steps did not run."""
        return len(self.micro_seconds) != self.accumulation_steps

    @property
    def step_seconds(self) -> float:
        """Seconds of the whole optimizer step: the exact sum when every micro-step ran, else composed.

        Composed: accumulation times the mean micro-step, plus the update. Where loader workers cannot keep up that is
        too little: each of a cut block's more frequent updates gives them time to catch up. Then the loader's own pace
        counts, one micro-batch per ``wall / micro-steps``; between "ready" and "starved" the two are blended.
        """
        if not self.composed:
            return self.wall_seconds
        paced_by_model = self.accumulation_steps * fmean(self.micro_seconds) + self.optimizer_seconds
        if not self.overlapped_loading:
            return paced_by_model
        paced_by_loader = self.accumulation_steps * self.wall_seconds / len(self.micro_seconds)
        return paced_by_model + self._starved * (paced_by_loader - paced_by_model)

    @property
    def _starved(self) -> float:
        share = self.data_wait_seconds / max(self.wall_seconds, 1e-12)
        return min(max((share - STARVED_FROM) / (STARVED_FULLY - STARVED_FROM), 0.0), 1.0)

    @property
    def units(self) -> float:
        """Units of the whole optimizer step: the exact sum when every micro-step ran, else composed in the same way."""
        if not self.composed:
            return float(sum(self.micro_units))
        return self.accumulation_steps * fmean(self.micro_units)


@dataclass(frozen=True, kw_only=True)
class WindowSummary:
    """What one window says.

    Attributes:
        throughput: Units of applied steps per second of all steps.
        relative_standard_error: Of the throughput, from inside the window alone; None when it cannot be told
            (one block, nothing applied).
        half_width_95: Relative half-width of its 95 % interval; None with the error.
        blocks: Optimizer steps in the window, skipped ones included.
        applied_blocks: Those that were applied.
        effective_sample_size: So many independent steps would tell as much: from 1 to ``blocks``.
        median_step_seconds: Of the whole optimizer steps.
        p95_step_seconds: One step in twenty is slower; far above the median: spikes (new shapes, a neighbour).
        data_wait_share: Share of the blocks' time the host waited for the loader.
    """

    throughput: float
    relative_standard_error: float | None
    half_width_95: float | None
    blocks: int
    applied_blocks: int
    effective_sample_size: float
    median_step_seconds: float
    p95_step_seconds: float
    data_wait_share: float

    @property
    def throughput_standard_error(self) -> float | None:
        """The standard error in units per second."""
        return None if self.relative_standard_error is None else self.throughput * self.relative_standard_error

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for the ``measurement`` event."""
        return asdict(self) | {"throughput_standard_error": self.throughput_standard_error}


def summarise(blocks: Sequence[Block]) -> WindowSummary:
    """The window's throughput and its error.

    Throughput is a ratio of sums, so a long step weighs by its length; its error comes from each block's part in that
    ratio (delta method), with the correlation between blocks paid for
    (:func:`objectives.measure.series.error_of_mean`).

    Raises:
        ValueError: No block, or blocks that took no time.
    """
    seconds = [block.step_seconds for block in blocks]
    if math.fsum(seconds) <= 0.0:
        raise ValueError(f"a window needs at least one block that took time, not {len(seconds)} of none")
    wall = math.fsum(block.wall_seconds for block in blocks)
    parts = _parts(blocks)
    error = error_of_mean(parts) if any(parts) else _no_error(blocks)
    return WindowSummary(
        throughput=_throughput(blocks),
        relative_standard_error=error[0] if error else None,
        half_width_95=error[0] * student_t(0.975, error[1]) if error else None,
        blocks=len(blocks),
        applied_blocks=sum(block.applied for block in blocks),
        effective_sample_size=_effective_sample_size(parts, error),
        median_step_seconds=median(seconds),
        p95_step_seconds=quantile(seconds, 0.95),
        data_wait_share=min(1.0, math.fsum(block.data_wait_seconds for block in blocks) / max(wall, 1e-12)),
    )


def _brought(block: Block) -> float:
    return block.units if block.applied else 0.0


def _throughput(blocks: Sequence[Block]) -> float:
    return math.fsum(map(_brought, blocks)) / math.fsum(block.step_seconds for block in blocks)


def _parts(blocks: Sequence[Block]) -> list[float]:
    """Each block's relative part in the ratio's error. Their mean is 0; its error is the throughput's, relative."""
    units = [_brought(block) for block in blocks]
    mean_units, mean_seconds = fmean(units), fmean([block.step_seconds for block in blocks])
    if mean_units <= 0.0:
        return []
    return [u / mean_units - block.step_seconds / mean_seconds for u, block in zip(units, blocks, strict=True)]


def _no_error(blocks: Sequence[Block]) -> tuple[float, float] | None:
    """The error of blocks that do not differ at all: 0 from two on, unknown for one or where nothing was applied."""
    several = len(blocks) > 1 and any(_brought(block) for block in blocks)
    return (0.0, float(len(blocks) - 1)) if several else None


def _effective_sample_size(parts: Sequence[float], error: tuple[float, float] | None) -> float:
    if error is None or error[0] <= 0.0:
        return float(max(1, len(parts)))
    return min(max(variance(parts) / error[0] ** 2, 1.0), float(len(parts)))


def narrow_enough(blocks: Sequence[Block], plan: WindowPlan, elapsed: float) -> bool:
    """Whether the window may end: its longest time is over, or its interval has become narrow.

    Looking again and again until the interval is narrow finds the moment where it is narrow by luck (at 1 % with lag-1
    correlation 0.3 a nominal 95 % covers 84 %). So: no look before ``min_seconds`` and 20 blocks, looks only after 15 %
    more blocks, each at a level shared out over all looks of the window, and the whole of the window as well as its
    second half must agree.

    Args:
        blocks: The window's blocks so far.
        plan: Its shortest and longest time and the target; a target of 0 always takes the longest.
        elapsed: Seconds since the window began.
    """
    if elapsed >= plan.max_seconds:
        return True
    if elapsed < plan.min_seconds or plan.target_half_width <= 0.0 or not _is_look(len(blocks)):
        return False
    looks = 1 + math.log(max(plan.max_seconds / max(plan.min_seconds, 1e-9), 1.0)) / math.log(LOOK_GROWTH)
    return all(
        _half_width(part, 1 - 0.025 / looks) <= allowed
        for part, allowed in (
            (blocks, plan.target_half_width),
            (blocks[len(blocks) // 2 :], plan.target_half_width * math.sqrt(2)),
        )
    )


def _is_look(count: int) -> bool:
    """Whether so many blocks are one of the looks: 20, and then each 15 % more, rounded up."""
    if count < FEWEST_BATCHES:
        return False
    step = math.ceil(math.log(count / FEWEST_BATCHES) / math.log(LOOK_GROWTH) - 1e-9)
    return any(math.ceil(FEWEST_BATCHES * LOOK_GROWTH**k - 1e-9) == count for k in (step - 1, step))


def _half_width(blocks: Sequence[Block], probability: float) -> float:
    error = error_of_mean(_parts(blocks))
    return math.inf if error is None else error[0] * student_t(probability, error[1])


def find_warm_up(step_seconds: Sequence[float]) -> int:
    """How many first steps are warm-up: at least 2, at most the larger of 2 and half the series.

    After the first two: the steps far above the later ones (compile, autotune, caches), then what a change-point test
    that allows for correlated noise calls slower than the rest. A series that only wanders loses its first two steps.

    Args:
        step_seconds: Seconds per optimizer step from the very first one on.
    """
    count = len(step_seconds)
    drop = min(count, ALWAYS_DROPPED)
    most = max(drop, count // 2)
    drop = _gross_prefix(step_seconds, drop, most)
    for _ in range(2):
        drop = min(most, drop + change_to_faster(step_seconds[drop:]))
    return drop


def _gross_prefix(step_seconds: Sequence[float], drop: int, most: int) -> int:
    later = step_seconds[most:]
    if len(later) < 2:
        return drop
    middle = median(later)
    spread = 1.4826 * median([abs(value - middle) for value in later])
    limit = max(GROSS * middle, middle + 4 * spread)
    while drop < most and step_seconds[drop] > limit:
        drop += 1
    return drop


def is_warm(step_seconds: Sequence[float]) -> bool:
    """Whether the steps have stopped becoming faster, as far as can be said while they come.

    Two steps are always warm-up. From the third on the latest third of the steps is compared with the third before.
    """
    count = len(step_seconds)
    if count <= ALWAYS_DROPPED:
        return False
    span = max(1, count // 3)
    recent, before = median(step_seconds[-span:]), median(step_seconds[-2 * span : -span])
    return recent >= (0.85 if span == 1 else 0.9) * before


def stall_share(loaded_seconds: Sequence[float], cached_seconds: Sequence[float]) -> float:
    """Share of a micro-step that waits for its data, from 0 to 1: the same micro-steps loaded and with data in place.

    Args:
        loaded_seconds: Micro-steps as they ran with the loader.
        cached_seconds: The same micro-steps on batches that were already on the device.

    Raises:
        ValueError: Either is empty or took no time.
    """
    if not loaded_seconds or not cached_seconds or (loaded := fmean(loaded_seconds)) <= 0.0:
        raise ValueError("a data stall is told from micro-steps with and without the loader: both are needed")
    return min(max(1 - fmean(cached_seconds) / loaded, 0.0), 1.0)
