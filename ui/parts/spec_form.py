"""Form and editor of a spec, in step: the text is the truth, every control shows what it says and writes into it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from ui.forms.check import offered_kinds
from ui.forms.fields import Field, Section, fields, holds, meant, shown
from ui.forms.text import edited, value_at, values_of
from ui.plain import shortened

SPEC, EDITOR, KIND = "spec text", "spec editor", "form.objective.kind"
"""Names in a session: the text itself, the editor's control, the objective's control."""
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


def draw_editor() -> None:
    """The text."""
    st.session_state[EDITOR] = st.session_state[SPEC]
    st.html(MONOSPACED)
    with st.container(key="spec-text"):
        st.text_area(
            "The spec as YAML", key=EDITOR, height=400, on_change=_text_changed, label_visibility="collapsed",
        )  # fmt: skip


def _text_changed() -> None:
    st.session_state[SPEC] = st.session_state[EDITOR]


def draw_form() -> None:
    """The controls; nothing can be changed in them while the text cannot be read."""
    values = values_of(st.session_state[SPEC])
    if values is None:
        st.info(
            "The YAML cannot be read as it is: mend it on the right, then the form is back.", icon=":material/edit:"
        )
        return
    kind = value_at(values, ("objective", "kind"))
    found = fields(kind if isinstance(kind, str) else None)
    for section, title, opened in SECTIONS:
        with st.expander(title, expanded=opened, key=f"form-{section}"):
            if section == "objective":
                _draw_kind(kind)
            mine = [field for field in found if field.section == section]
            for field in (each for each in mine if each.shape == "mapping"):
                _draw(field, values)
            with st.grid(columns="auto", min_column_width=190, gap="small"):
                for field in (each for each in mine if each.shape != "mapping"):
                    _draw(field, values)


def _draw_kind(kind: Any) -> None:
    """Only objectives that the operator lists are offered."""
    offered = offered_kinds()
    st.session_state[KIND] = kind if kind in offered else None
    st.selectbox(
        "Objective", offered, key=KIND, on_change=_kind_changed, placeholder="choose one",
        help="What the operator of the workers lists (TUNER_ALLOWED_FILE).",
    )  # fmt: skip
    if kind is not None and kind not in offered:
        st.text(f"{shortened(str(kind), 80)} is not on the operator's list.")


def _kind_changed() -> None:
    _write(("objective", "kind"), st.session_state[KIND])


def _draw(field: Field, values: Mapping[str, Any]) -> None:
    value = value_at(values, field.path)
    if not holds(field, value):
        st.text_input(
            field.label, value="written in the YAML", key=f"{field.key}.fixed", disabled=True, help=field.help
        )
        return
    st.session_state[field.key] = shown(field, value)
    _control(field, partial(_changed, field))


def _control(field: Field, changed: Any) -> None:
    common: dict[str, Any] = {"key": field.key, "on_change": changed, "help": _paragraphs(field.help)}
    if field.shape == "choice":
        st.selectbox(
            field.label, field.values, placeholder=field.hint or LEFT_OUT, format_func=_word, index=None, **common
        )
    elif field.shape == "choices":
        st.multiselect(field.label, field.values, placeholder=field.hint, format_func=_word, **common)
    elif field.shape == "mapping":
        with st.container(key=f"form-mapping-{'-'.join(field.path)}"):
            st.text_area(field.label, placeholder=field.hint, height=150, **common)
    else:
        st.text_input(field.label, placeholder=field.hint, **common)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _paragraphs(text: str) -> str:
    return text.replace("\n", "\n\n")


def _changed(field: Field) -> None:
    _write(field.path, meant(field, st.session_state[field.key]))


def _write(path: tuple[str, ...], value: Any) -> None:
    st.session_state[SPEC] = edited(st.session_state[SPEC], path, value)
