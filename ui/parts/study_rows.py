"""The rows of the list of studies, a page of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from storage.overview import StudyOverview
from ui import links
from ui.parts import actions, listing
from ui.plain import markdown, shortened

PAGE = 20


def draw(found: Sequence[StudyOverview], of: int) -> None:
    """One page of rows, and how many there are."""
    if not found:
        st.info("No study has these words, this status and this device. Empty the filters to see all of them.")
        return
    pages = -(-len(found) // PAGE)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{len(found):,} of {of:,} studies" if len(found) != of else f"{of:,} studies", width="content")
        at = st.pagination(pages, key="page", bind="query-params", max_visible_pages=5, width=300) if pages > 1 else 1
    with st.container(gap=None, key="studies"):
        for each in found[(at - 1) * PAGE : at * PAGE]:
            _row(each)


def _row(each: StudyOverview) -> None:
    """Cells of fixed widths beside each other; on a narrow screen they flow onto further lines."""
    texts = (
        (each.device or "no device yet", 165),
        (listing.best_text(each) or "no best yet", 115),
        (listing.speedup_text(each) or "no speed-up yet", 120),
        (listing.trials_text(each), 130),
        (listing.ago((datetime.now(UTC) - each.updated_at).total_seconds()), 90),
    )
    with st.container(border=True, horizontal=True, vertical_alignment="center", gap="small", key=f"study-{each.id}"):
        label = f"**{markdown(shortened(each.name, 32))}**"
        st.page_link(links.STUDY_PAGE, label=label, query_params={"study": each.name}, width=230)
        with st.container(width=96):
            badge(each.status)
        for text, width in texts:
            st.text(text, width=width, wrap=False)
        actions.menu(each.name, each.status, key=f"act-{each.id}", label="More")


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
