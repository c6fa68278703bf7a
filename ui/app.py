"""The entry script, started by ``tuner ui``. A page is added to ``SCREENS``, nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from ui import access
from ui.guard import guarded

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 13h3V9h4V5h5' "
    "fill='none' stroke='%23D55E00' stroke-width='2.5'/%3E%3C/svg%3E"
)
"""The browser's tab: a front, inside the page itself (an icon by name would be fetched from elsewhere)."""
FOLDER = Path(__file__).parent / "screens"
"""Not "pages": Streamlit runs what stands in a folder of that name past this script, and past its rules, when a fresh
server is first asked for such a page's address."""


@dataclass(frozen=True, kw_only=True)
class Screen:
    """One page.

    Attributes:
        file: In ``ui/screens``; its name without ending is the page's address.
        title: In the navigation and the browser's title.
        icon: A name of Material Symbols.
        default: Whether the bare address opens it.
        listed: Whether the navigation names it; the others are reached by links.
    """

    file: str
    title: str
    icon: str
    default: bool = False
    listed: bool = True

    def page(self) -> st.Page:
        """As Streamlit wants it."""
        return st.Page(
            FOLDER / self.file,
            title=self.title,
            icon=f":material/{self.icon}:",
            default=self.default,
            visibility="visible" if self.listed else "hidden",
        )


SCREENS = (
    Screen(file="studies.py", title="Studies", icon="science", default=True),
    Screen(file="new_study.py", title="New study", icon="add_circle"),
    Screen(file="study.py", title="Study", icon="query_stats"),
    Screen(file="trial.py", title="Trial", icon="deployed_code", listed=False),
    Screen(file="advice.py", title="Advice", icon="stethoscope"),
    Screen(file="export.py", title="Export", icon="ios_share"),
    Screen(file="workers.py", title="Workers", icon="memory"),
)
"""Every page, in the order of the navigation."""


def main() -> None:
    """Draws the page that the address names."""
    st.set_page_config(page_title="Tightfit", page_icon=ICON, layout="wide")
    page = st.navigation([screen.page() for screen in SCREENS], position="top")
    with guarded():
        if access.admitted():
            page.run()


main()
