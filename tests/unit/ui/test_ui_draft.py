"""A form and a text that two people's fastest typing cannot tear apart: what the browser sends late changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ui.forms.draft import EDITOR, KIND, Draft
from ui.forms.text import value_at, values_of

TEXT = "study: x\nobjective: {kind: causal_lm, lora: {r: 8}}\nglobal_batch_size: 8\nsearch: {precision: [fp32]}\n"
STUDY, MICRO = "form.study", "form.search.micro_batch_size"


def drawn(draft: Draft) -> dict[str, Any]:
    """What every control says after a run: its key and its state."""
    draft.shown_as(EDITOR, draft.text)
    draft.shown_as(KIND, draft.kind())
    draft.controls()
    names = {key.rpartition(" ")[0] for key in draft.said}
    return {draft.key(name): draft.said[draft.key(name)] for name in names}


def at(draft: Draft, *path: str) -> Any:
    return value_at(values_of(draft.text) or {}, path)


def test_a_control_writes_and_the_editor_becomes_another_one() -> None:
    draft = Draft(text=TEXT)
    states = drawn(draft)
    before = draft.key(EDITOR)
    draft.take(states | {draft.key(STUDY): "y"})
    assert at(draft, "study") == "y"
    drawn(draft)
    assert draft.key(EDITOR) != before
    assert draft.key(STUDY) == f"{STUDY} 0"  # the control a person has just typed in is left alone


def test_what_the_browser_sends_late_changes_nothing() -> None:
    draft = Draft(text=TEXT)
    first = drawn(draft)
    draft.take(first | {draft.key(STUDY): "y"})
    drawn(draft)
    late = first | {f"{STUDY} 0": "y", f"{MICRO} 0": "1, 2"}  # the old editor still says the old text
    draft.take(late)
    assert (at(draft, "study"), at(draft, "search", "micro_batch_size")) == ("y", [1, 2])


def test_changes_that_come_together_are_all_taken() -> None:
    draft = Draft(text=TEXT)
    states = drawn(draft)
    draft.take(states | {draft.key(STUDY): "y", draft.key(MICRO): "1 to 8", draft.key("form.limits.trials"): "5"})
    assert at(draft, "study") == "y"
    assert at(draft, "search", "micro_batch_size") == {"low": 1, "high": 8}
    assert at(draft, "limits", "trials") == 5


def test_the_same_states_twice_are_one_change() -> None:
    draft = Draft(text=TEXT)
    states = drawn(draft) | {draft.key(STUDY): "y"}
    draft.take(states)
    text = draft.text
    draft.take(states)
    assert draft.text == text


def test_the_editor_fills_the_controls_anew() -> None:
    draft = Draft(text=TEXT)
    states = drawn(draft)
    draft.take(states | {draft.key(EDITOR): TEXT.replace("study: x", "study: z")})
    assert drawn(draft)[draft.key(STUDY)] == "z"
    assert draft.key(STUDY) == f"{STUDY} 1"


def test_a_text_that_cannot_be_read_has_no_controls_and_comes_back_whole() -> None:
    draft = Draft(text=TEXT)
    states = drawn(draft)
    draft.take(states | {draft.key(EDITOR): "study: ["})
    assert draft.controls() is None
    draft.take(drawn(draft) | {draft.key(EDITOR): TEXT})
    assert draft.controls() is not None


@pytest.mark.parametrize(("kind", "kept"), [("image_classifier", False), ("mine:Own", False), ("causal_lm", True)])
def test_another_objective_drops_the_keys_it_does_not_have(kind: str, kept: bool) -> None:
    draft = Draft(text=TEXT)
    states = drawn(draft)
    draft.take(states | {draft.key(KIND): kind})
    assert at(draft, "objective", "kind") == kind
    assert (at(draft, "objective", "lora") is not None) == kept
