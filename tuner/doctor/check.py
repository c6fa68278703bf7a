"""What a check is, and what it says: findings with figures, the runs they come from, and advice. Plain data.

A check asks several questions of one study. A question that the measurements do not answer is ``not_measured`` and
names the command that answers it; it is never passed for want of data. The check's verdict is that of its worst
finding; questions beside the point of this study (``essential`` False) stay open without making the check so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

Verdict = Literal["fine", "improve", "broken", "not_measured", "not_comparable"]
VERDICTS: Mapping[Verdict, str] = {
    "fine": "Measured, and nothing to change.",
    "improve": "Measured: a change would bring speed, memory or safety.",
    "broken": "Measured: training is wrong, or will fail.",
    "not_measured": "Nothing measured answers it; the finding says the command that does.",
    "not_comparable": "It cannot be judged on this model or device; the finding says why.",
}
"""Verdicts and what each means."""
WORST_FIRST: tuple[Verdict, ...] = ("broken", "improve", "not_measured", "not_comparable", "fine")

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number.

    Attributes:
        name: What it is, in words of :mod:`tuner.documents`, such as ``headroom``.
        value: None where it is not known.
        unit: ``bytes``, ``share`` (0 to 1), ``ratio``, ``seconds``, ``tokens_per_second``, ``samples`` and the like;
            empty for a name or a plain count.
        interval: 95 %; None without one.
        of: What it belongs to: ``baseline``, ``winner``, ``trial 7``, ``4 workers``; empty for the study.
    """

    name: str
    value: float | int | str | None
    unit: str = ""
    interval: Interval | None = None
    of: str = ""

    def to_json(self) -> dict[str, Any]:
        """As documented in :data:`tuner.documents.FIGURE`."""
        bounds = None if self.interval is None else list(self.interval)
        return {"name": self.name, "of": self.of, "value": self.value, "unit": self.unit, "interval": bounds}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change.

    Attributes:
        change: What to do, one sentence.
        expected: What it is expected to gain, in words, with the ground for it.
        check: How to see that it worked: a command, or what to look at.
        knobs: The knob values it comes to, ``accumulation_steps`` among them where the batch changes.
        gain: Throughput after over before; None where that was neither measured nor follows from a measurement.
        gain_interval: 95 %; None without one.
        measured: Whether the gain was measured between trials (else it is a bound that follows from a measurement).
    """

    change: str
    expected: str
    check: str
    knobs: Mapping[str, Any] = field(default_factory=dict)
    gain: float | None = None
    gain_interval: Interval | None = None
    measured: bool = False

    def to_json(self) -> dict[str, Any]:
        """As documented in :data:`tuner.documents.ADVICE`."""
        bounds = None if self.gain_interval is None else list(self.gain_interval)
        return {
            "change": self.change,
            "expected": self.expected,
            "check": self.check,
            "knobs": dict(self.knobs),
            "gain": self.gain,
            "gain_interval": bounds,
            "measured": self.measured,
        }


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer to one question of a check.

    Attributes:
        name: The question, such as ``largest_that_fits``; unique within its check.
        statement: One or two sentences for people, with the numbers that matter.
        trials: Numbers of the trials it rests on.
        runs: Ids of the runs it rests on.
        measured_by: The command (or key of the spec) that would answer it; set exactly when it is ``not_measured``.
        essential: Whether the check is open while this is.
    """

    name: str
    verdict: Verdict
    statement: str
    figures: tuple[Figure, ...] = ()
    trials: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    measured_by: str | None = None
    essential: bool = True

    def __post_init__(self) -> None:
        assert (self.verdict == "not_measured") == (self.measured_by is not None), f"{self.name}: command or figures"

    def to_json(self) -> dict[str, Any]:
        """As documented in :data:`tuner.documents.EVIDENCE`."""
        return {
            "question": self.name,
            "verdict": self.verdict,
            "statement": self.statement,
            "figures": [each.to_json() for each in self.figures],
            "trials": list(self.trials),
            "runs": list(self.runs),
            "measured_by": self.measured_by,
        }


def open_question(
    name: str, statement: str, measured_by: str, *, essential: bool = True, figures: tuple[Figure, ...] = ()
) -> Finding:
    """A finding that nothing measured answers; ``figures`` hold what is known, where that is too little."""
    return Finding(
        name=name,
        verdict="not_measured",
        statement=statement,
        measured_by=measured_by,
        essential=essential,
        figures=figures,
    )


@dataclass(frozen=True, kw_only=True)
class Check:
    """One of the seven mistakes, looked for.

    Attributes:
        name: As in the JSON.
        mistake: Its number in the README's list, 1 to 7.
        title: For people.
        look: The findings of a study, in the order they are told. Pure; never raises for missing figures.
    """

    name: str
    mistake: int
    title: str
    look: Callable[[StudyView], Sequence[Finding]]

    def result(self, view: StudyView) -> CheckResult:
        """What it says of a study."""
        return CheckResult(name=self.name, mistake=self.mistake, title=self.title, findings=tuple(self.look(view)))


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check says of a study."""

    name: str
    mistake: int
    title: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """That of the worst finding; open ones beside the point do not count."""
        told = {each.verdict for each in self.findings if each.essential or each.verdict in ("broken", "improve")}
        return next((verdict for verdict in WORST_FIRST if verdict in told), "not_measured")

    @property
    def summary(self) -> str:
        """The statement of the finding that decided."""
        return next((each.statement for each in self.findings if each.verdict == self.verdict), "nothing was measured")

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What to change, in the order of the findings."""
        return tuple(each for finding in self.findings for each in finding.advice)

    def to_json(self) -> dict[str, Any]:
        """As documented in :data:`tuner.documents.CHECK`."""
        return {
            "name": self.name,
            "mistake": self.mistake,
            "title": self.title,
            "verdict": self.verdict,
            "summary": self.summary,
            "evidence": [each.to_json() for each in self.findings],
            "advice": [each.to_json() for each in self.advice],
        }
