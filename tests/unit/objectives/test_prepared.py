"""What preparation leaves: whole or not at all, found again by the same settings only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveError
from objectives.data.prepared import need_facts, once, read_facts, settings_key, write_json


def test_made_once_and_found_again(tmp_path: Path) -> None:
    calls = []

    def make(aside: Path) -> dict[str, Any]:
        calls.append(aside)
        (aside / "rows").write_text("x")
        return {"rows": 1}

    place = tmp_path / "data" / "abc"
    assert once(place, make) == once(place, make) == {"rows": 1}
    assert len(calls) == 1
    assert sorted(file.name for file in place.iterdir()) == ["facts.json", "rows"]


def test_a_failure_leaves_nothing_and_a_remnant_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "data" / "abc"

    def fail(aside: Path) -> dict[str, Any]:
        (aside / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        once(place, fail)
    assert list(place.parent.iterdir()) == []
    place.mkdir()
    (place / "half").write_text("x")
    assert once(place, lambda _aside: {"rows": 2}) == {"rows": 2}
    assert list(place.parent.iterdir()) == [place]


def test_two_at_once_agree(tmp_path: Path) -> None:
    place = tmp_path / "data" / "abc"

    def slow(_aside: Path) -> dict[str, Any]:
        once(place, lambda _other: {"by": "the other"})
        return {"by": "me"}

    assert once(place, slow) == {"by": "the other"}
    assert list(place.parent.iterdir()) == [place]


def test_facts_by_settings(tmp_path: Path) -> None:
    key = settings_key("causal_lm", {"a": 1, "b": 2})
    assert key == settings_key("causal_lm", {"b": 2, "a": 1}) != settings_key("causal_lm", {"a": 1, "b": 3})
    assert read_facts(tmp_path, key) is None
    assert read_facts("", key) is None
    with pytest.raises(ObjectiveError, match=r"nothing is prepared .* call prepare"):
        need_facts("", key)
    write_json(tmp_path / f"{key}.json", {"rows": 3})
    assert need_facts(str(tmp_path), key) == {"rows": 3}
