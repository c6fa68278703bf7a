"""The top of a study's page: what it is, how it stands, the answer in four numbers, what a person should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from storage.records import StudyRecord
from tuner.cli import words
from ui import links
from ui.parts import actions, study_rows
from ui.plain import markdown
from ui.points import Points

Document = Mapping[str, Any]


def draw(study: StudyRecord, points: Points, answer: Document) -> None:
    """Title, state, progress, the four numbers and the notices."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key="head"):
        st.title(markdown(study.name), anchor=False, width="content")
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            study_rows.badge(study.status)
            st.page_link(
                links.EXPORT_PAGE, label="Export", icon=":material/ios_share:", query_params={"study": study.name}
            )
            actions.menu(study.name, study.status, key="study-actions")
    st.text(facts(study, answer))
    if study.stop_reason:
        st.text(f"{study.status}: {study.stop_reason}")
    _progress(study, points)
    _numbers(study, points, answer)


def facts(study: StudyRecord, answer: Document) -> str:
    """One line: objective, device, batch, limit."""
    size, tokens = answer.get("global_batch_size"), answer.get("global_batch_tokens")
    batch = f"global batch {size:,} samples" if size else f"global batch {tokens:,} tokens" if tokens else ""
    limit = f"limit {words.size(study.memory_limit_bytes)}" if study.memory_limit_bytes else ""
    return " · ".join(part for part in (answer.get("objective"), study.device, batch, limit) if part)


def _progress(study: StudyRecord, points: Points) -> None:
    limits: Document = study.spec.get("limits") or {}
    most, seconds = limits.get("trials"), limits.get("time_seconds")
    done = sum(points.counts.values())
    if study.status not in ("queued", "running", "paused"):
        return
    spent = words.duration(study.seconds) + (f" of {words.duration(seconds)}" if seconds else "")
    share = max(done / most if most else 0.0, study.seconds / seconds if seconds else 0.0)
    st.progress(min(share, 1.0), text=f"{done:,} of {most or 0:,} trials, {spent}")


def _numbers(study: StudyRecord, points: Points, answer: Document) -> None:
    best, front = answer.get("best"), answer.get("front") or []
    shown = best or (front[0] if front else None)
    done, gone = sum(points.counts.values()), points.counts.get("device_oom", 0)
    with st.grid(columns=4, min_column_width=170, gap="small", key="numbers"):
        number(_winner_label(best, shown), _rate(shown, points.unit), _baseline(answer))
        number("Speed-up", *_speedup(answer))
        number("Its peak memory", words.size((shown or {}).get("peak_memory_bytes")), _free(shown, study))
        number("Trials", f"{done:,}", f"{gone:,} out of memory" if gone else f"{words.duration(study.seconds)} spent")


def number(label: str, value: str, below: str) -> None:
    """A figure with its name above and a remark below; all three are ours or escaped."""
    st.metric(label, value, below, delta_color="off", delta_arrow="off", border=True, height="stretch")


def _winner_label(best: Document | None, shown: Document | None) -> str:
    return (
        f"Winner: trial {best['number']}"
        if best
        else f"Fastest so far: trial {shown['number']}"
        if shown
        else "Fastest"
    )


def _rate(trial: Document | None, unit: str | None) -> str:
    return words.rate(trial["throughput"], unit) if trial else words.NOTHING


def _baseline(answer: Document) -> str:
    baseline = answer.get("baseline")
    known = baseline is not None and baseline.get("throughput")
    return f"baseline {words.number(baseline['throughput'])}" if known and baseline else "no baseline yet"


def _speedup(answer: Document) -> tuple[str, str]:
    speedup, bounds = answer.get("speedup_over_baseline"), answer.get("speedup_over_baseline_interval")
    if speedup is None:
        return words.NOTHING, "not confirmed yet"
    return words.times(speedup), f"{bounds[0]:.2f} to {bounds[1]:.2f} (95 %)" if bounds else "of the baseline"


def _free(trial: Document | None, study: StudyRecord) -> str:
    peak, limit = (trial or {}).get("peak_memory_bytes"), study.memory_limit_bytes
    if peak is None or limit is None:
        return "no limit known" if limit is None else f"limit {words.size(limit)}"
    return f"{words.size(limit - peak)} free"


def draw_notices(answer: Document) -> None:
    """What a person should know beside the numbers, refusals and demotions included."""
    said = [str(each) for each in answer.get("notices") or []]
    said += [
        f"trial {each['number']} was thrown out by a longer run: {each['reason']}"
        for each in answer.get("demoted") or []
    ]
    refused = answer.get("refused") or []
    if not said and not refused:
        return
    with st.expander(f"Good to know ({len(said) + len(refused)})", icon=":material/info:", key="notices"):
        for line in said:
            st.text(line)
        if refused:
            st.text("Refused before any trial:")
            rows = [
                {"choice": f"{each['knob']} {words.value(each.get('value'))}", "reason": each["reason"]}
                for each in refused
            ]
            st.dataframe(rows, hide_index=True)
