"""Parts of a page that follow the store: redrawn when something has changed, left alone while nothing has."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import streamlit as st

from ui.guard import guarded

EVERY_SECONDS = 1.0


def ticking(draw: Callable[[], None], *, every: float | None, key: str) -> None:
    """Draws a part by itself, again every so many seconds; None draws it when the page or one of its controls asks."""

    def part() -> None:
        with guarded():
            draw()

    part.__qualname__ = f"ticking {key}"
    st.fragment(part, run_every=every, key=key)()


def reload_on_change(look: Callable[[], Hashable], seen: Hashable, *, live: bool) -> None:
    """Looks at the store every second and redraws the page once what it sees is no longer what the page shows.

    Args:
        look: What the store says now, such as a study's version.
        seen: What the page was drawn from.
        live: Whether anything can change; False looks never again.
    """

    def watch() -> None:
        with guarded():
            if look() != seen:
                st.rerun(scope="app")

    st.fragment(watch, run_every=EVERY_SECONDS if live else None, key="watch")()
