"""All studies: find one, see how it stands, steer it."""

import streamlit as st

from storage.models import STATUSES
from ui import data
from ui.parts import listing, study_rows
from ui.parts.live import ticking

st.title("Studies", anchor=False)


def page() -> None:
    """Search, filters and the rows."""
    found = data.list_studies()
    if not found:
        study_rows.draw_empty()
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        text = st.text_input(
            "Search", key="q", placeholder="name or device", icon=":material/search:", width=280, bind="query-params",
        )  # fmt: skip
        statuses = st.multiselect("Status", STATUSES, key="status", width=280, bind="query-params")
        device = st.selectbox(
            "Device", listing.devices(found), index=None, key="device", placeholder="any", width=220,
            bind="query-params",
        )  # fmt: skip
        order = st.selectbox("Sort by", list(listing.ORDERS), key="sort", width=180, bind="query-params")
    shown = listing.matching(found, text=text or "", statuses=statuses, device=device)
    study_rows.draw(listing.in_order(shown, order or "newest"), of=len(found))


ticking(page, every=2.0, key="studies")
