"""All checks over one study. Pure: rows in, a diagnosis out; the command, the report and the screens show the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.doctor import (
    accumulation,
    batch_and_memory,
    data_loading,
    fragmentation,
    parallelism,
    precision,
    profiling,
)
from tuner.doctor.check import VERDICTS, Advice, Check, CheckResult

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

CHECKS: tuple[Check, ...] = (
    batch_and_memory.CHECK,
    precision.CHECK,
    fragmentation.CHECK,
    parallelism.CHECK,
    data_loading.CHECK,
    accumulation.CHECK,
    profiling.CHECK,
)
"""The seven mistakes, in their order. A new check is written in a file of its own and added here."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What the checks say of a study."""

    study: str
    checks: tuple[CheckResult, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of checks by verdict; every verdict is there."""
        found = Counter(each.verdict for each in self.checks)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def advice(self) -> tuple[tuple[CheckResult, Advice], ...]:
        """All advice with its check: broken checks first, then the largest gain."""
        told = [(check, each) for check in self.checks for each in check.advice]
        return tuple(sorted(told, key=lambda each: (each[0].verdict != "broken", -(each[1].gain or 0.0))))

    def to_json(self) -> dict[str, Any]:
        """The document of ``tuner doctor --json``."""
        return {
            "study": self.study,
            "counts": self.counts,
            "checks": [each.to_json() for each in self.checks],
        }


def diagnose(view: StudyView) -> Diagnosis:
    """Looks for the seven mistakes in what a study has measured. Runs nothing."""
    return Diagnosis(study=view.study.name, checks=tuple(check.result(view) for check in CHECKS))
