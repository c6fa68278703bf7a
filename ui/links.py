"""Addresses of pages: everything a page shows follows from its address, so that a link can be shared."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

STUDY_PAGE, TRIAL_PAGE, STUDIES_PAGE = "pages/study.py", "pages/trial.py", "pages/studies.py"
PICKED = "trials"
"""Query parameter with the selected trials' numbers."""
LAST_STUDY = "last study"


def chosen_study() -> str | None:
    """The study that the address names, else the one this session looked at last."""
    named = st.query_params.get("study") or st.session_state.get(LAST_STUDY)
    return None if named is None else str(named)


def remember_study(name: str) -> None:
    """Keeps the study in the address and for the navigation's bare links."""
    st.session_state[LAST_STUDY] = name
    if st.query_params.get("study") != name:
        st.query_params["study"] = name


def chosen_trial() -> int | None:
    """The trial that the address names; None for none, or for no number."""
    return whole_number(st.query_params.get("trial"))


def picked_trials() -> tuple[int, ...]:
    """The selected trials of the address, smallest first; what is no number is left out."""
    numbers = (whole_number(each) for each in st.query_params.get(PICKED, "").split("."))
    return tuple(sorted({each for each in numbers if each is not None}))


def pick_trials(numbers: Sequence[int]) -> None:
    """Puts the selected trials into the address."""
    if numbers:
        st.query_params[PICKED] = ".".join(str(each) for each in sorted(set(numbers)))
    elif PICKED in st.query_params:
        del st.query_params[PICKED]


def whole_number(text: str | None) -> int | None:
    """The number a text is; None where it is none, or one that no trial can have."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
