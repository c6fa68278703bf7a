"""A diagnosis: what to change first, then the seven checks with their findings, figures and the trials behind them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from storage.records import StudyRecord
from tuner.cli import words
from tuner.doctor import Diagnosis
from tuner.doctor.check import VERDICTS, Advice, CheckResult, Finding
from ui import data, links
from ui.parts import study_head
from ui.plain import markdown

COLOURS = {"fine": "green", "improve": "orange", "broken": "red", "not_measured": "gray", "not_comparable": "gray"}
ICONS = {
    "fine": "check_circle", "improve": "trending_up", "broken": "error", "not_measured": "help",
    "not_comparable": "do_not_disturb_on",
}  # fmt: skip
MOST_FIRST = 3
MOST_TRIALS = 12
"""Links to trials beside a finding."""


def draw(study: StudyRecord) -> None:
    """The page of a stored study."""
    found = data.diagnosis(study)
    st.text(study_head.facts(study, data.answer(study)))
    _draw_counts(found)
    _draw_first(found)
    for check in found.checks:
        _draw_check(study, check)


def _draw_counts(found: Diagnosis) -> None:
    with st.container(horizontal=True, key="verdicts"):
        for verdict, count in found.counts.items():
            if count:
                label = f"{count} {_spaced(verdict)}"
                icon = f":material/{ICONS[verdict]}:"
                st.badge(label, icon=icon, color=COLOURS[verdict], help=VERDICTS[verdict])  # type: ignore[arg-type, index]


def _draw_first(found: Diagnosis) -> None:
    """What would bring most, before everything else."""
    if not found.advice:
        st.text("Nothing to change in what was measured.")
        return
    st.subheader("Change first", anchor=False)
    for check, advice in found.advice[:MOST_FIRST]:
        with st.container(border=True):
            st.text(advice.change)
            st.caption(markdown(f"{advice.expected} ({check.title})"))


def _draw_check(study: StudyRecord, check: CheckResult) -> None:
    opened = check.verdict in ("broken", "improve")
    title, icon = f"{check.mistake}. {markdown(check.title)}: {_spaced(check.verdict)}", ICONS[check.verdict]
    with st.expander(title, expanded=opened, icon=f":material/{icon}:", key=f"check-{check.name}"):
        for finding in check.findings:
            _draw_finding(study, finding)
        for advice in check.advice:
            _draw_advice(advice)


def _draw_finding(study: StudyRecord, finding: Finding) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        colour = COLOURS[finding.verdict]
        st.badge(_spaced(finding.verdict), icon=f":material/{ICONS[finding.verdict]}:", color=colour)  # type: ignore[arg-type]
        st.text(finding.statement)
    if finding.measured_by is not None:
        st.caption("To measure it:")
        st.code(finding.measured_by, language="bash", wrap_lines=True)
    figures = [each.to_json() for each in finding.figures if each.value is not None]
    if figures:
        rows = [{"figure": _spaced(each["name"]), "of": each["of"], "value": words.figure(each)} for each in figures]
        st.dataframe(rows, hide_index=True)
    _draw_trials(study, finding.trials)


def _draw_trials(study: StudyRecord, numbers: Sequence[int]) -> None:
    if not numbers:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Seen in")
        for number in numbers[:MOST_TRIALS]:
            query = {"study": study.name, "trial": str(number)}
            st.page_link(links.TRIAL_PAGE, label=f"trial {number}", query_params=query)
        if len(numbers) > MOST_TRIALS:
            st.caption(f"and {len(numbers) - MOST_TRIALS} more")


def _draw_advice(advice: Advice) -> None:
    with st.container(border=True):
        st.text(advice.change)
        st.caption(markdown(f"Expected: {advice.expected}"))
        st.caption(markdown(f"To see that it worked: {advice.check}"))


def _spaced(text: str) -> str:
    return text.replace("_", " ")
