"""The data keys: unknown ones and impossible values are refused in the user's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveError
from objectives.data.settings import ImageData, TextData, read_settings
from objectives.data.tokenizer import TokenizerSource, tokenizer_source

GOOD: dict[str, Any] = {"path": "a.txt", "sequence_length": 8}


def test_good_keys_are_taken_as_they_are() -> None:
    assert read_settings(TextData, GOOD | {"format": "jsonl"}).format == "jsonl"
    assert read_settings(ImageData, {"path": "p"}).image_size == 224


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sequence_lenght": 8}, "unknown sequence_lenght. Known keys: path, sequence_length"),
        ({"format": "csv"}, "data.format: 'csv' is not one of auto, text"),
        ({"sequence_length": 1}, "data.sequence_length: expected a whole number of at least 2, found 1"),
        ({"sequence_length": True}, "found True"),
        ({"sequence_length": "8"}, "found '8'"),
        ({"dtype": "float32"}, "data.dtype: 'float32' is not one of"),
        ({"path": []}, "data.path: expected a path"),
        ({"path": 3}, "data.path: expected a path"),
    ],
)
def test_bad_keys_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ObjectiveError, match=text):
        read_settings(TextData, GOOD | change)


@pytest.mark.parametrize("values", [None, "corpus", {"path": "a"}])
def test_missing_keys_are_named(values: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"objective\.data: "):
        read_settings(TextData, values)


def test_tokenizer_sources(tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    assert tokenizer_source("tok", tmp_path) == TokenizerSource(folder=tmp_path / "tok")
    assert tokenizer_source({"path": "./tok"}, tmp_path) == TokenizerSource(folder=tmp_path / "tok")
    assert tokenizer_source("org/name", tmp_path) == TokenizerSource(hub="org/name")
    assert tokenizer_source({"hub": "gpt2"}, tmp_path) == TokenizerSource(hub="gpt2")
    assert tokenizer_source({"train": {"vocab_size": 300}}, tmp_path) == TokenizerSource(train_vocabulary=300)


@pytest.mark.parametrize(
    "asked",
    ["./none", "/none", "~/none", {"path": "none"}, {"train": {"vocab_size": 100}}, {"train": {}}, {"vocab": 3}],
)
def test_tokenizers_that_cannot_be_are_refused_without_a_download(tmp_path: Path, asked: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"objective\.data\.tokenizer"):
        tokenizer_source(asked, tmp_path)
