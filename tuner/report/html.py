"""HTML by small pieces. Text is escaped wherever it enters; only what :func:`element` made passes as it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

VOID = frozenset({"meta", "br", "line", "path", "circle", "rect", "polyline"})
"""Elements without an end here."""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, /, *children: str | Html | None, **attributes: object) -> Html:
    """An element; children that are plain text are escaped, attributes with the value None are left out.

    Args:
        tag: Its name.
        children: Text or elements; None is nothing.
        attributes: Underscores become dashes; ``class_`` is ``class``.
    """
    given = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    head = "".join(f' {key}="{escape(str(value), quote=True)}"' for key, value in given)
    if tag in VOID and not children:
        return Html(f"<{tag}{head}/>")
    return Html(f"<{tag}{head}>{''.join(map(shown, children))}</{tag}>")


def prose(text: str) -> Html:
    """Text in which what stands between back quotes is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd number of quotes: then none of them is meant
        return Html(escape(text))
    return joined(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def shown(child: str | Html | None) -> str:
    """A child as it stands in the page."""
    if child is None:
        return ""
    return child if isinstance(child, Html) else escape(child)


def joined(parts: Iterable[str | Html | None]) -> Html:
    """Pieces one after the other."""
    return Html("".join(map(shown, parts)))


def table(head: Sequence[str], rows: Iterable[Sequence[str | Html]], right: Sequence[str] = ()) -> Html:
    """A table; the columns named in ``right`` are aligned there. It scrolls by itself where it is too wide."""
    sides = ["number" if name in right else None for name in head]
    top = element("tr", *(element("th", name, class_=side) for name, side in zip(head, sides, strict=True)))
    body = [
        element("tr", *(element("td", cell, class_=side) for cell, side in zip(row, sides, strict=True)))
        for row in rows
    ]
    return element("div", element("table", element("thead", top), element("tbody", *body)), class_="wide")
