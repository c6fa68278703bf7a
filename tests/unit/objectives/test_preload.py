"""What a template imports: by name only, nothing that does not exist, nothing that poisons a fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveReference
from objectives.preload import preload_modules


def modules(kind: str, folder: Path = Path(), **settings: Any) -> tuple[str, ...]:
    return preload_modules(ObjectiveReference(kind=kind, settings=settings, folder=str(folder)))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3"])
def test_the_family_of_a_config(kind: str) -> None:
    found = modules("causal_lm", model={"config": {"model_type": kind}})
    assert f"transformers.models.{kind}.modeling_{kind}" in found
    assert found[-1] == "objectives.causal_lm"
    assert "peft" not in found


def test_adapters_and_pictures() -> None:
    assert "peft" in modules("causal_lm", model={"config": {"model_type": "llama"}}, lora={"r": 4})
    found = modules("image_classifier", model={"config": {"model_type": "vit"}})
    assert "transformers.models.vit.modeling_vit" in found
    assert found[-1] == "objectives.image_classifier"


def test_the_family_of_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
    assert "transformers.models.gpt_neox.modeling_gpt_neox" in modules("causal_lm", tmp_path, model={"path": "m"})


@pytest.mark.parametrize(
    "model",
    [None, {"hub": "org/name"}, {"path": "gone"}, {"config": None}]
    + [{"config": {"model_type": kind}} for kind in ("no-such", "../x", 3)],
)
def test_unknown_families_are_left_to_the_child(model: Any) -> None:
    assert not any("transformers.models." in name and ".auto" not in name for name in modules("causal_lm", model=model))


def test_a_users_own_module_comes_last() -> None:
    assert modules("forecaster:Forecaster")[-1] == "forecaster"


def test_naming_them_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from objectives.preload import preload_modules;"
        "from objectives.contract import ObjectiveReference;"
        "preload_modules(ObjectiveReference(kind='causal_lm', settings={'model': {'config': {'model_type': 'gpt2'}}}));"
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
