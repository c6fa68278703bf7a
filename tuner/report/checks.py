"""The seven checks as HTML: an overview, then each with its findings, figures and advice. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.cli import words
from tuner.report.html import Html, element, joined, prose, table

if TYPE_CHECKING:
    from tuner.doctor import Diagnosis
    from tuner.doctor.check import Advice, CheckResult, Finding

OPEN = frozenset({"improve", "broken"})
"""Verdicts whose details stand open."""


def checks(diagnosis: Diagnosis) -> Html:
    """Overview and details."""
    rows = [
        (str(each.mistake), each.title, verdict(each.verdict), each.summary)
        for each in diagnosis.checks
    ]  # fmt: skip
    overview = table(("", "mistake", "verdict", "what decided"), rows)
    return joined([element("h2", "The seven mistakes"), overview, *(_check(each) for each in diagnosis.checks)])


def verdict(word: str) -> Html:
    """A verdict in its colour."""
    return element("span", word.replace("_", " "), class_=f"verdict {word}")


def _check(check: CheckResult) -> Html:
    name = element("h3", f"{check.mistake}. {check.title}")
    summary = element("summary", verdict(check.verdict), name)
    shown = "open" if check.verdict in OPEN else None
    return element("details", summary, *(_finding(each) for each in check.findings), id=check.name, open=shown)


def _finding(finding: Finding) -> Html:
    known = [each.to_json() for each in finding.figures if each.value is not None]
    rows = [(each["name"], each["of"], words.figure(each)) for each in known]
    measured_by = finding.measured_by
    return element(
        "div",
        element("p", verdict(finding.verdict), " ", prose(finding.statement)),
        _plain(f"Measure it: {measured_by}") if measured_by is not None else None,
        table(("figure", "of", "value"), rows, right=("value",)) if rows else None,
        *(_advice(each) for each in finding.advice),
        _sources(finding),
        class_="finding",
    )


def _advice(advice: Advice) -> Html:
    return element(
        "div",
        element("p", element("b", "Change: "), prose(advice.change)),
        element("p", element("b", "Expected: "), prose(advice.expected)),
        element("p", element("b", "Check: "), prose(advice.check)),
        class_="advice",
    )


def _sources(finding: Finding) -> Html | None:
    parts: list[Any] = []
    if finding.trials:
        parts.append(f"trials {', '.join(map(str, finding.trials))}")
    if finding.runs:
        parts.append(f"runs {', '.join(each[:8] for each in finding.runs)}")
    return element("small", "From " + "; ".join(parts)) if parts else None


def _plain(text: str) -> Html:
    return element("p", prose(text), class_="soft")
