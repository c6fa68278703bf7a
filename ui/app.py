"""The entry script: ``streamlit run ui/app.py`` (``tuner ui`` does that). A page is added to ``SCREENS``, nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from ui.guard import guarded

FOLDER = Path(__file__).parent / "pages"


@dataclass(frozen=True, kw_only=True)
class Screen:
    """One page.

    Attributes:
        file: In ``ui/pages``; its name without ending is the page's address.
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

    def page(self) -> st.Page:  # type: ignore[valid-type]
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
    Screen(file="study.py", title="Study", icon="query_stats"),
    Screen(file="trial.py", title="Trial", icon="deployed_code", listed=False),
)
"""Every page, in the order of the navigation."""


def main() -> None:
    """Draws the page that the address names."""
    st.set_page_config(page_title="Tightfit", page_icon=":material/speed:", layout="wide")
    page = st.navigation([screen.page() for screen in SCREENS], position="top")
    with guarded():
        page.run()


main()
