"""Text from a study, a run or a person on its way to a screen: shown as it is, never understood as markup. Pure.

Whoever can, uses ``st.text``, ``st.code`` or a table, which understand nothing. What goes into a title, a label or a
message passes :func:`markdown`; what goes into a chart passes :func:`chart_text`.
"""

from __future__ import annotations

import re
from html import escape

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&=^\"'/@])")
_JOINER = "\N{WORD JOINER}"
"""Zero width: keeps ``:word:`` from becoming an icon and an address from becoming a link behind the escapes' back."""
_ALIVE = re.compile(r"(:(?=\w)|://|@|(?:^|(?<=\W))www(?=\.))", re.IGNORECASE)


def markdown(text: object) -> str:
    """The text for where Streamlit understands Markdown; one line stays one line."""
    quiet = _ALIVE.sub(lambda found: f"{found.group(0)[:1]}{_JOINER}{found.group(0)[1:]}", str(text))
    return _MARKS.sub(r"\\\1", " ".join(quiet.split()))


def chart_text(text: object) -> str:
    """The text for where plotly understands a few HTML tags."""
    return escape(str(text), quote=False)


def shortened(text: str, most: int = 60) -> str:
    """At most so many characters, the cut marked."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
