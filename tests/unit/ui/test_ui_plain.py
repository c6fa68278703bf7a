"""Text of runs and people is shown as it is: nothing of it becomes markup."""

from __future__ import annotations

import re

import pytest

from ui.plain import chart_text, markdown, shortened

ATTACKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![x](http://example.org/x.png)",
    "# heading",
    "**bold** _under_ ~~gone~~ `code`",
    "$x^2$ and $$y$$",
    ":red[danger] :material/delete: :smile:",
    "http://example.org www.example.org someone@example.org",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "- list\n1. list\n> quote",
    "&lt;b&gt; &amp;",
    "a\\*b*",
)
SPECIAL = set("\\`*_{}[]()<>#+-.!|~$:&=^\"'/@")


def shown(text: str) -> str:
    """What a reader sees: the escapes taken out again, and what has no width."""
    return re.sub(r"\\(.)", r"\1", text).replace("\N{WORD JOINER}", "")


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_is_left_unescaped_and_nothing_is_lost(text: str) -> None:
    made = markdown(text)
    bare = re.sub(r"\\.", "", made)
    assert not SPECIAL & set(bare)
    assert shown(made) == " ".join(text.split())


@pytest.mark.parametrize("text", [":smile:", ":material/delete:", "http://a.b", "www.a.b", "a@b.c"])
def test_what_comes_alive_after_the_escapes_is_broken_up(text: str) -> None:
    """Icons and addresses are found in the text after Markdown is understood."""
    assert re.sub(r"\\(.)", r"\1", markdown(text)) != text


def test_chart_text_keeps_plotlys_tags_out() -> None:
    assert chart_text("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcd", 4) == "abcd"
