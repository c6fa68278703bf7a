"""What a ``verify`` run means: the verdict, the faults by name, and the document of ``tuner verify``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectives.config import TrainingConfig
from storage.records import TrialRecord
from tuner.search.front import is_feasible

Json = dict[str, Any]
SEVERAL_STEPS = 1.5
"""Learning-rate steps per update above which a schedule follows the micro-batches."""
LOST_SHARE = 0.05
"""So large a share of the data behind the last whole batch asks for another global batch."""
FP32_FACTOR = 2.0
"""A configuration in 16 bits needs at most so many times its peak in fp32."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing found.

    Attributes:
        broken: Training is wrong.
        matters: It asks for a change (else it is only told).
    """

    name: str
    text: str
    broken: bool = True
    matters: bool = True


def whole_batch_fits(trials: Sequence[TrialRecord], winner: TrialRecord, limit_bytes: int | None) -> bool:
    """Whether the winner's whole global batch surely fits at once, in fp32 too.

    Its peak grows at most in proportion to the micro-batch (what does not grow only helps); or a trial has shown it.

    Args:
        trials: The study's.
        winner: Whose global batch it is.
        limit_bytes: None for no limit.
    """
    config = TrainingConfig.from_mapping(winner.config)
    whole = config.micro_batch_size * config.accumulation_steps
    if limit_bytes is None:
        return True
    if winner.peak_memory_bytes is None:
        return False
    more = FP32_FACTOR if config.precision not in ("fp32", "tf32") else 1.0
    if winner.peak_memory_bytes * config.accumulation_steps * more <= limit_bytes:
        return True
    same = ("activation_checkpointing", "attention", "loss", "precision")
    seen = (TrainingConfig.from_mapping(each.config) for each in trials if is_feasible(each, limit_bytes))
    return more == 1.0 and any(
        each.micro_batch_size == whole and all(getattr(each, name) == getattr(config, name) for name in same)
        for each in seen
    )


def faults(found: Mapping[str, Any]) -> list[Fault]:
    """What the run's measurement shows, worst first."""
    named = [*_gradient(found), *_schedule(found), *_curve(found), *_unreached(found), *_left_over(found)]
    return sorted(named, key=lambda fault: not fault.broken)


def _gradient(found: Mapping[str, Any]) -> list[Fault]:
    worst = found.get("gradient")
    if found.get("not_comparable") or not worst or worst["distance"] <= worst["bound"]:
        return []
    said = found.get("fault") or {"kind": "accumulation", "text": "the two splits give two gradients"}
    place = worst["parameters"][0] if worst.get("parameters") else None
    where = f"; farthest in {place['name']} ({place['distance']:.2g})" if place else ""
    text = (
        f"{worst['micro_batch_size']} x {worst['accumulation_steps']} and {worst['reference_micro_batch_size']} x "
        f"{worst['reference_accumulation_steps']} samples give gradients {worst['distance']:.2g} apart in "
        f"{worst['precision']} (rounding explains {worst['bound']:.1g}){where}: {said['text']}"
    )
    return [Fault(name=str(said["kind"]), text=text)]


def _schedule(found: Mapping[str, Any]) -> list[Fault]:
    steps = found.get("scheduler_steps_per_update")
    if steps is None or steps <= SEVERAL_STEPS:
        return []
    text = (
        f"the learning rate changes {steps:.2g} times per update: its schedule follows the micro-batches and ends "
        f"after 1/{steps:.2g} of the run. Step it once an optimizer step"
    )
    return [Fault(name="scheduler_per_micro_batch", text=text)]


def _curve(found: Mapping[str, Any]) -> list[Fault]:
    curve = found.get("loss_curve")
    if not curve or curve.get("leaves_at") is None or found.get("not_comparable"):
        return []
    at = int(curve["leaves_at"])
    examined, reference = curve["examined"][-1], curve["reference"][-1]
    text = (
        f"the loss curve leaves the baseline's at update {at + 1} of {len(curve['examined'])} and ends at "
        f"{examined:.4g} against {reference:.4g} (band {100 * curve['band']:.2g} %)"
    )
    return [Fault(name="loss_curve", text=text)]


def _unreached(found: Mapping[str, Any]) -> list[Fault]:
    names = list(found.get("without_gradient") or ())
    if not names:
        return []
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    text = f"no gradient reaches {', '.join(names[:3])}{rest}: trainable, and never trained"
    return [Fault(name="without_gradient", text=text, broken=False)]


def _left_over(found: Mapping[str, Any]) -> list[Fault]:
    left, samples = found.get("lost_samples"), found.get("samples")
    if not left or not samples:
        return []
    text = (
        f"{left} of {samples} samples ({100 * left / samples:.2g} %) are behind the last whole global batch: a trainer "
        "that drops an incomplete window never learns from them"
    )
    matters = left >= LOST_SHARE * samples
    return [Fault(name="lost_last_window", text=text, broken=False, matters=matters)]


def verdict_of(found: Mapping[str, Any]) -> str:
    """One of the doctor's verdicts."""
    named = faults(found)
    if any(fault.broken for fault in named):
        return "broken"
    if found.get("not_comparable"):
        return "not_comparable"
    if not found.get("gradient"):
        return "not_measured"
    return "improve" if any(fault.matters for fault in named) else "fine"


def document(found: Mapping[str, Any], *, study: str, trial: int, run: str) -> Json:
    """What ``tuner verify`` answers."""
    return {
        "study": study,
        "trial": trial,
        "run": run,
        "verdict": verdict_of(found),
        "faults": [{"name": each.name, "broken": each.broken, "text": each.text} for each in faults(found)],
        "not_comparable": found.get("not_comparable"),
        "gradient": found.get("gradient"),
        "gradients": list(found.get("gradients") or ()),
        "loss_curve": found.get("loss_curve"),
        "without_gradient": list(found.get("without_gradient") or ()),
        "scheduler_steps_per_update": found.get("scheduler_steps_per_update"),
        "lost_update_shares": dict(found.get("lost_update_shares") or {}),
        "samples": found.get("samples"),
        "lost_samples": found.get("lost_samples"),
        "notes": list(found.get("notes") or ()),
    }
