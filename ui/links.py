"""Addresses of pages: everything a page shows follows from its address, so that a link can be shared."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

STUDIES_PAGE, STUDY_PAGE = "screens/studies.py", "screens/study.py"
TRIAL_PAGE, EXPORT_PAGE = "screens/trial.py", "screens/export.py"
PICKED = "trials"
"""Query parameter with the selected trials' numbers."""
LAST_STUDY = "last study"
KEPT, MOST_IN_ADDRESS = "picked", 100


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
    """The selected trials, smallest first: those of the address, else (too many for one) those of this session."""
    if PICKED in st.query_params:
        numbers = (whole_number(each) for each in st.query_params[PICKED].split("."))
        return tuple(sorted({each for each in numbers if each is not None}))
    study, numbers_kept = st.session_state.get(KEPT, (None, ()))
    return tuple(numbers_kept) if study == st.query_params.get("study") else ()


def pick_trials(numbers: Sequence[int]) -> None:
    """Selects these trials: in the address, as long as it stays one that can be sent to somebody."""
    chosen = tuple(sorted(set(numbers)))
    st.session_state[KEPT] = (st.query_params.get("study"), chosen if len(chosen) > MOST_IN_ADDRESS else ())
    if 0 < len(chosen) <= MOST_IN_ADDRESS:
        st.query_params[PICKED] = ".".join(map(str, chosen))
    elif PICKED in st.query_params:
        del st.query_params[PICKED]


def whole_number(text: str | None) -> int | None:
    """The number a text is; None where it is none, or one that no trial can have."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
