"""Where a model may come from: three ways, safetensors only, nobody's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveError
from objectives.pretrained import ModelSource, check_model_folder, model_source, refuse_foreign_code


def folder(place: Path, *files: str, **config: Any) -> Path:
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    for name in files:
        (place / name).write_bytes(b"x")
    return place


def test_the_three_ways(tmp_path: Path) -> None:
    assert model_source({"config": {"model_type": "llama"}}, tmp_path).config == {"model_type": "llama"}
    assert model_source({"path": "./m"}, tmp_path) == ModelSource(folder=tmp_path / "m")
    assert model_source({"hub": "org/m", "revision": "abc"}, tmp_path) == ModelSource(hub="org/m", revision="abc")


@pytest.mark.parametrize(
    "asked",
    [None, "gpt2", {}, {"config": {}}, {"config": {"model_type": "llama"}, "hub": "x"}, {"hub": 3}, {"path": None}],
)
def test_everything_else_is_refused(tmp_path: Path, asked: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"objective\.model: .* is none of"):
        model_source(asked, tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoModel": "modeling.Mine"}},
        {"trust_remote_code": True},
        {"text_config": {"auto_map": {}}},
        {"attn_implementation": "org/kernel"},
        {"text_config": {"_attn_implementation": "org/kernel"}},
    ],
)
def test_configurations_that_want_foreign_code_are_refused_wherever_they_stand(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    with pytest.raises(ObjectiveError, match="is refused"):
        model_source({"config": {"model_type": "llama", **config}}, tmp_path)
    with pytest.raises(ObjectiveError, match="is refused"):
        check_model_folder(folder(tmp_path / "m", "model.safetensors", **config))


def test_a_folder_with_safetensors_is_fine(tmp_path: Path) -> None:
    check_model_folder(
        folder(tmp_path / "m", "model-00001-of-00002.safetensors", auto_map=None, _attn_implementation="sdpa")
    )


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "weights.pkl", "tf_model.h5"])
def test_pickled_weights_are_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ObjectiveError, match=f"no safetensors weights.*{name}.*unpickling"):
        check_model_folder(folder(tmp_path / "m", name))


def test_missing_broken_and_adapter_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match="no folder"):
        check_model_folder(tmp_path / "none")
    broken = folder(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    with pytest.raises(ObjectiveError, match="cannot be read"):
        check_model_folder(broken)
    with pytest.raises(ObjectiveError, match="is an adapter, not a model"):
        check_model_folder(folder(tmp_path / "adapter", "adapter_config.json"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ObjectiveError, match=r"has no config\.json"):
        check_model_folder(tmp_path / "empty")


def test_a_tokenizer_folder_that_wants_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["x.Y", None]}}))
    with pytest.raises(ObjectiveError, match=r"objective\.data\.tokenizer.*`auto_map` is refused"):
        refuse_foreign_code(tmp_path, "objective.data.tokenizer")
