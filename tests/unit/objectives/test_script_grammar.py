"""The closed little grammar: what a text becomes, and what is no text of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.script import grammar
from objectives.script.grammar import GrammarError

VALUES: grammar.Values = {
    "micro_batch_size": (4,), "pin_memory": (True,), "precision": ("--bf16", "True"), "attention": (),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("train.py", ["train.py"]),
        ("{micro_batch_size}", ["4"]),
        ("--batch={micro_batch_size}", ["--batch=4"]),
        ("{precision}", ["--bf16", "True"]),
        ("{attention}", []),
        ("--pin={pin_memory}", ["--pin=true"]),
        ("{{micro_batch_size}}", ["{micro_batch_size}"]),
        ("{{{micro_batch_size}}}", ["{4}"]),
        ("$HOME `id` ; rm -rf *", ["$HOME `id` ; rm -rf *"]),  # no shell: text is text
        ("", [""]),
    ],
)
def test_a_text_becomes_arguments(text: str, arguments: list[str]) -> None:
    assert list(grammar.arguments(text, VALUES)) == arguments


@pytest.mark.parametrize(
    "text", ["{", "a}", "{}", "{a b}", "{a.b}", "{0}", "{micro_batch_size!r}", "{a:>3}", "{A}", "{{}"]
)
def test_anything_else_in_braces_is_refused(text: str) -> None:
    with pytest.raises(GrammarError, match="is no placeholder"):
        grammar.parse(text)


def test_several_words_fit_into_no_longer_text() -> None:
    with pytest.raises(GrammarError, match="has 2 words there"):
        grammar.one_text("--p={precision}", VALUES)


def test_a_lone_placeholder_keeps_its_type_in_a_file() -> None:
    assert grammar.typed("{micro_batch_size}", VALUES) == 4
    assert grammar.typed("{pin_memory}", VALUES) is True
    assert grammar.typed("{precision}", VALUES) == ["--bf16", "True"]
    assert grammar.typed("{attention}", VALUES) == ""
    assert grammar.typed("mb{micro_batch_size}", VALUES) == "mb4"


@pytest.mark.parametrize(
    ("entry", "words"),
    [("", ()), ("x", ("x",)), ([], ()), ([""], ("",)), (False, (False,)), (None, (None,)), ([1, "a"], (1, "a"))],
)
def test_an_entry_of_a_table_is_words(entry: object, words: tuple[object, ...]) -> None:
    assert grammar.words_of(entry) == words


@pytest.mark.parametrize("entry", [{"a": 1}, [["nested"]], [{}]])
def test_an_entry_of_a_table_is_nothing_else(entry: object) -> None:
    with pytest.raises(GrammarError):
        grammar.words_of(entry)


@given(st.text())
def test_escaped_text_is_itself(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert grammar.one_text(escaped, {}) == text
    assert grammar.names(escaped) == ()
