"""What a real trainer did with an exported configuration, beside the study's own number. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from tuner.export.handover import Export, Handover

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView
    from tuner.search.noise import Interval

STEPS_SECONDS = 10.0
"""So long the timed steps should take where nobody says how many."""
FEWEST_STEPS, MOST_STEPS = 4, 200
NEAR = 0.10
"""A trainer within this share of the study's own loop is as fast as it."""


def steps_for(handover: Handover, view: StudyView) -> int:
    """Optimizer steps of about :data:`STEPS_SECONDS`, by what the winner's steps took in its newest run."""
    trial = next((each for each in view.trials if each.number == handover.trial), None)
    mine = [run for run in view.runs if trial is not None and run.trial_id == trial.id and run.step_seconds]
    seconds = sum(mine[-1].step_seconds) / len(mine[-1].step_seconds) if mine else 1.0
    return min(max(ceil(STEPS_SECONDS / max(seconds, 1e-3)), FEWEST_STEPS), MOST_STEPS)


def document(
    handover: Handover, made: Export, trainer: str, found: Mapping[str, Any], own: Sequence[float],
    *, interval: Interval | None,
) -> dict[str, Any]:  # fmt: skip
    """The document of ``tuner confirm --with``.

    Args:
        handover: What was exported.
        made: The export.
        trainer: Its name.
        found: The child's answer (:class:`objectives.trainers.stopwatch.Stopwatch`, and the peak).
        own: Throughput of the study's own loop, just before and just after.
        interval: 95 % interval of the study's confirmation; None without one.
    """
    steps, wall, samples = int(found.get("steps") or 0), found.get("wall_seconds"), handover.global_batch_size
    rate = found["units"] / wall if wall else None
    here, micro = sqrt(own[0] * own[-1]), handover.config.accumulation_steps
    each = sorted(set(found.get("micro_batches") or ()))
    return {
        "study": handover.study,
        "trial": handover.trial,
        "trainer": trainer,
        "steps": steps,
        "samples_per_step": samples,
        "micro_batches_per_step": each,
        "as_exported": each == [micro],
        "throughput": rate,
        "throughput_unit": handover.throughput_unit,
        "samples_per_second": steps * samples / wall if wall else None,
        "study_throughput": handover.throughput,
        "study_interval": None if interval is None else [interval.low, interval.high],
        "own_loop_throughput": here,
        "own_loop_moved": abs(own[-1] - own[0]) / here,
        "of_study": _share(rate, handover.throughput),
        "of_own_loop": _share(rate, here),
        "seconds": {
            "wall": wall,
            **{name: found.get(f"{name}_seconds") for name in ("compute", "optimizer", "data", "trainer")},
        },
        "overhead_share": _share(found.get("trainer_seconds"), wall),
        "peak_memory_bytes": found.get("peak_memory_bytes"),
        "study_peak_memory_bytes": handover.peak_memory_bytes,
        "in_code": [{"knob": one.knob, "value": one.value, "reason": one.why} for one in made.not_carried],
        "trainer_says": dict(found.get("trainer_says") or {}),
        "verdict": verdict(rate, own, found.get("trainer_seconds"), wall),
    }


def verdict(rate: float | None, own: Sequence[float], overhead: float | None, wall: float | None) -> str:
    """One sentence: as fast as the study's own loop, or how much slower and how much of that is the trainer's own.

    Args:
        rate: The trainer's throughput.
        own: That of the study's own loop, before and after.
        overhead: Seconds of the trainer's own work.
        wall: Seconds of the timed steps.
    """
    if rate is None or not wall:
        return "no optimizer step was timed: nothing can be said"
    here = sqrt(own[0] * own[-1])
    share, mine = rate / here, (overhead or 0.0) / wall
    moved = abs(own[-1] - own[0]) / here
    if moved > NEAR and abs(share - 1) > NEAR:
        return (
            f"the study's own loop moved by {moved:.0%} meanwhile: this machine is too busy to tell ({share:.0%} of it)"
        )
    if share >= 1 - NEAR:
        return f"as fast as the study's own loop within {NEAR:.0%} ({share:.0%} of it)"
    without = share / max(1 - mine, 1e-9)
    tail = "without it the steps are as fast" if without >= 1 - NEAR else f"without it {without:.0%}"
    return f"{share:.0%} of the study's own loop; the trainer's own work is {mine:.0%} of the time, {tail}"


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
