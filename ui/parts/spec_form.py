"""Form and editor of a spec, in step: :mod:`ui.forms.draft` holds both, here they are drawn."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.forms.check import offered_kinds
from ui.forms.draft import EDITOR, KIND, Draft
from ui.forms.fields import Field, Section
from ui.plain import shortened

SECTIONS: tuple[tuple[Section, str, bool], ...] = (
    ("study", "Study and batch", True),
    ("objective", "What is trained", True),
    ("search", "What is searched", True),
    ("baseline", "Baseline: what you would have used", False),
    ("limits", "Limits", False),
    ("more", "More", False),
)
"""Sections with their titles, and whether they are open at first."""
MONOSPACED = """<style>
.st-key-spec-text textarea, [class*="st-key-form-mapping"] textarea {font-family: ui-monospace, monospace}
</style>"""
LEFT_OUT = "left out"


def take_changes(draft: Draft) -> None:
    """Reads every control before anything is changed: a run that is cut off in between has taken over nothing."""
    draft.take({key: st.session_state[key] for key in list(draft.said) if key in st.session_state})


def draw_editor(draft: Draft) -> None:
    """The text."""
    st.html(MONOSPACED)
    with st.container(key="spec-text"):
        key = _set(draft.shown_as(EDITOR, draft.text), draft)
        st.text_area("The spec as YAML", key=key, height=400, label_visibility="collapsed")


def draw_form(draft: Draft) -> None:
    """The controls; nothing can be changed in them while the text cannot be read."""
    controls = draft.controls()
    if controls is None:
        said = "The YAML cannot be read as it is: mend it on the right, then the form is back."
        st.info(said, icon=":material/edit:")
        return
    for section, title, opened in SECTIONS:
        mine = [(field, key) for field, key in controls if field.section == section]
        with st.expander(title, expanded=opened, key=f"form-{section}"):
            if section == "objective":
                _draw_kind(draft)
            for field, key in mine:
                if field.shape == "mapping":
                    _draw(draft, field, key)
            with st.grid(columns="auto", min_column_width=190, gap="small"):
                for field, key in mine:
                    if field.shape != "mapping":
                        _draw(draft, field, key)


def _draw_kind(draft: Draft) -> None:
    """Only objectives that the operator lists are offered."""
    kind, offered = draft.kind(), offered_kinds()
    key = _set(draft.shown_as(KIND, kind if kind in offered else None), draft)
    st.selectbox(
        "Objective", offered, key=key, placeholder="choose one",
        help="What the operator of the workers lists (TUNER_ALLOWED_FILE).",
    )  # fmt: skip
    if kind is not None and kind not in offered:
        st.text(f"{shortened(kind, 80)} is not on the operator's list.")


def _draw(draft: Draft, field: Field, key: str | None) -> None:
    if key is None:
        name = f"{field.key} in the text"
        st.text_input(field.label, value="written in the YAML", key=name, disabled=True, help=field.help)
        return
    _control(field, _set(key, draft))


def _control(field: Field, key: str) -> None:
    common: dict[str, Any] = {"key": key, "help": field.help.replace("\n", "\n\n")}
    if field.shape == "choice":
        hint = field.hint or LEFT_OUT
        st.selectbox(field.label, field.values, placeholder=hint, format_func=_word, index=None, **common)
    elif field.shape == "choices":
        st.multiselect(field.label, field.values, placeholder=field.hint, format_func=_word, **common)
    elif field.shape == "mapping":
        with st.container(key=f"form-mapping-{'-'.join(field.path)}"):
            st.text_area(field.label, placeholder=field.hint, height=150, **common)
    else:
        st.text_input(field.label, placeholder=field.hint, **common)


def _set(key: str, draft: Draft) -> str:
    """A control that is new says what the draft says."""
    if key not in st.session_state:
        st.session_state[key] = draft.said[key]
    return key


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
