"""The workers, one box each: the device, the heartbeat's age by the database's clock, what runs, what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import streamlit as st

from storage.records import RunRecord
from tuner.cli import words
from ui import access, acting, data, links
from ui.data import SeenWorker
from ui.guard import guarded
from ui.plain import markdown, shortened

COLOURS = {
    "idle": "green",
    "working": "blue",
    "draining": "orange",
    "quarantined": "red",
    "gone": "gray",
    "lost": "red",
}
ICONS = {
    "idle": "check", "working": "play_arrow", "draining": "logout", "quarantined": "block",
    "gone": "power_settings_new", "lost": "link_off",
}  # fmt: skip
MEANINGS = {
    "draining": "It ends after the run in progress.",
    "quarantined": "Its device is kept out of service.",
    "lost": "It has said nothing for longer than its lease: another worker takes its trial over.",
}
MOST = 60


def draw() -> None:
    """All of them, the living ones first."""
    ended = st.toggle("Also those that have ended", key="ended", bind="query-params")
    found = sorted(data.seen_workers(ended=ended), key=lambda each: each.worker.started_at, reverse=True)
    found.sort(key=lambda each: each.worker.ended_at is not None)
    if not found:
        _draw_none()
        return
    runs = data.worker_runs()
    st.text(summary(found))
    for each in found[:MOST]:
        _box(each, runs)
    if len(found) > MOST:
        st.caption(f"and {len(found) - MOST} more that started earlier: tuner workers --all lists them")


def state(each: SeenWorker) -> str:
    """One word: the stored status, or ``lost``."""
    return "lost" if each.lost else each.worker.status


def summary(found: Sequence[SeenWorker]) -> str:
    """``3 workers: 2 working, 1 lost``."""
    said = ", ".join(f"{count} {name}" for name, count in Counter(map(state, found)).items())
    return f"{len(found)} worker{'' if len(found) == 1 else 's'}: {said}"


def heartbeat(each: SeenWorker) -> str:
    """When it last spoke, and how long it may be silent."""
    if each.worker.ended_at is not None:
        return f"last heard {words.duration(each.silent_seconds)} ago"
    return f"heard {words.duration(each.silent_seconds)} ago, lease {words.duration(each.worker.lease_seconds)}"


def _box(each: SeenWorker, runs: Mapping[str, RunRecord]) -> None:
    worker, now = each.worker, state(each)
    with st.container(border=True, key=f"worker-{worker.id}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            with st.container(horizontal=True, vertical_alignment="center", width="content"):
                colour = COLOURS.get(now, "gray")
                st.badge(now, icon=f":material/{ICONS.get(now, 'help')}:", color=colour)  # type: ignore[arg-type]
                st.text(shortened(worker.device_name, 70))
            st.text(heartbeat(each))
        st.caption(markdown(_facts(each)))
        _work(each, runs.get(worker.id))
        if now in MEANINGS:
            st.text(MEANINGS[now])
        if worker.reason:
            st.text(worker.reason)
        if worker.status == "quarantined" and access.may_act():
            _release(worker.id)


def _facts(each: SeenWorker) -> str:
    worker = each.worker
    memory = f"{words.size(worker.total_memory_bytes)} memory" if worker.total_memory_bytes else ""
    threads = f"{worker.threads} thread{'' if worker.threads == 1 else 's'}"
    failures = f"{worker.infra_in_a_row} infra failures in a row" if worker.infra_in_a_row else ""
    parts = (f"{worker.host}, process {worker.pid}", worker.device_uuid, memory, threads, failures)
    return " · ".join(part for part in parts if part)


def _work(each: SeenWorker, run: RunRecord | None) -> None:
    if each.study is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(links.STUDY_PAGE, label=markdown(shortened(each.study, 48)), query_params={"study": each.study})
        if run is not None:
            st.text(f"runs {run.purpose}, attempt {run.attempt}: {words.doing(run.progress, None)}")


def _release(worker: str) -> None:
    if st.button("Put back into service", key=f"release-{worker}", icon=":material/healing:"):
        with guarded():
            acting.release(worker)
            st.toast("Its device is back in service.", icon=":material/healing:")
            st.rerun()


def _draw_none() -> None:
    st.info("No worker is alive: studies wait in the queue until one comes.", icon=":material/memory:")
    st.text("Start one on the machine with the device:")
    st.code("tuner worker --devices all", language="bash")
    st.text("It must use this store: the same TUNER_DATABASE_URL, or the same data folder on this machine.")
