"""The rows of the list of studies, a page of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from storage.overview import StudyOverview
from ui import links
from ui.parts import actions, listing
from ui.plain import markdown, shortened

PAGE = 15
WIDTHS = (3.2, 1.3, 2.4, 1.5, 1.0, 1.7, 1.2, 1.3)
HEADS = ("Study", "Status", "Device", "Best", "Speed-up", "Trials", "Changed", "")


def draw(found: Sequence[StudyOverview], of: int) -> None:
    """One page of rows, and how many there are."""
    if not found:
        st.info("No study has these words, this status and this device. Empty the filters to see all of them.")
        return
    pages = -(-len(found) // PAGE)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{len(found):,} of {of:,} studies")
        at = st.pagination(pages, key="page", bind="query-params") if pages > 1 else 1
    for each in found[(at - 1) * PAGE : at * PAGE]:
        _row(each)


def _row(each: StudyOverview) -> None:
    with st.container(border=True, key=f"study-{each.id}"):
        cells = iter(st.columns(WIDTHS, vertical_alignment="center", gap="small"))
        with next(cells):
            st.page_link(links.STUDY_PAGE, label=markdown(shortened(each.name, 48)), query_params={"study": each.name})
        with next(cells):
            badge(each.status)
        for text in (
            each.device or "no device yet",
            listing.best_text(each) or "no best yet",
            listing.speedup_text(each) or "-",
            listing.trials_text(each),
            listing.ago((datetime.now(UTC) - each.updated_at).total_seconds()),
        ):
            with next(cells):
                st.text(text)
        with next(cells):
            actions.menu(each.name, each.status, key=f"act-{each.id}")


def badge(status: str) -> None:
    """A status, by word, sign and colour."""
    st.badge(status, icon=f":material/{listing.STATUS_ICONS[status]}:", color=listing.STATUS_COLOURS[status])  # type: ignore[arg-type]


def draw_empty() -> None:
    """An empty store: why, and what to do."""
    st.info("No study yet.", icon=":material/science:")
    st.text("Start one in a shell; it appears here while it runs:")
    st.code("tuner run examples/quickstart.yaml", language="bash")
    st.text("Or hand one to the workers:")
    st.code("tuner submit SPEC", language="bash")
