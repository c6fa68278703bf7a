"""Trial 0: the configuration the user would have used, inside the space or not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from objectives.config import TrainingConfig
from objectives.knobs import KNOBS, canonical, clashes, legal_values
from objectives.knobs.knob import Facts
from tuner.search.batch import GlobalBatch
from tuner.spec.model import StudySpec


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The baseline as it will be run.

    Attributes:
        config: The canonical configuration; knobs the spec leaves out have the trainer's defaults.
        refused: Why it cannot run on this machine (trial 0 is then ``unsupported`` without a run); None when it can.
    """

    config: TrainingConfig
    refused: str | None = None


def baseline_config(spec: StudySpec, facts: Facts, batch: GlobalBatch) -> Baseline:
    """The spec's baseline. It may lie outside the space, lack knobs, or be refused: each has a clear answer."""
    defaults = {each.name: each.default for each in KNOBS}
    asked = TrainingConfig.from_mapping({**defaults, **spec.baseline})
    reasons = _refusals(asked, facts)
    try:
        steps = batch.accumulation(micro_batch_size=asked.micro_batch_size, batching=asked.batching)
    except ValueError as error:
        reasons.append(f"micro_batch_size={asked.micro_batch_size}: {error}")
        steps = 1
    config = canonical(asked.with_values(accumulation_steps=steps))
    return Baseline(config=config, refused="; ".join(reasons) or None)


def _refusals(config: TrainingConfig, facts: Facts) -> list[str]:
    values = config.knobs()
    alone = [
        f"{each.name}={value}: {reason}"
        for each in KNOBS
        for value, reason in legal_values(each, facts, [values[each.name]])[1].items()
    ]
    return alone or list(clashes(config, facts))
