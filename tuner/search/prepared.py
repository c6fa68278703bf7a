"""What a study knows before its first trial (its ``facts`` column), and what may be tried by that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from objectives.knobs import facts_from_mapping
from objectives.knobs.knob import Facts
from tuner.search.baseline import Baseline, baseline_config
from tuner.search.batch import GlobalBatch
from tuner.search.space import Space, make_space
from tuner.spec.model import StudySpec


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What the study knows before its first trial.

    Attributes:
        facts: What can run here.
        data: What the objective's preparation returned; empty without one.
        predictions: Predicted peaks by configuration key, as ``estimate`` children answered; empty without.
    """

    facts: Facts
    data: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Prepared:
        """From the study's ``facts`` column."""
        return cls(
            facts=facts_from_mapping(stored["facts"]),
            data=stored.get("data", {}),
            predictions=stored.get("predictions", {}),
        )

    def batch(self, spec: StudySpec) -> GlobalBatch:
        """The study's global batch."""
        return GlobalBatch.of(
            samples=spec.global_batch_size, tokens=spec.global_batch_tokens, data=self.data, ranks=spec.ranks
        )

    def baseline_and_space(self, spec: StudySpec) -> tuple[Baseline, Space]:
        """Trial 0 and everything that may be tried beside it."""
        batch = self.batch(spec)
        baseline = baseline_config(spec, self.facts, batch)
        return baseline, make_space(spec, self.facts, batch, baseline.config.knobs())
