"""What a service worker may run: the operator's list, paths as they really are, nothing pickled, no foreign code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveReference
from tuner.errors import TightfitError
from tuner.spec.model import StudySpec
from tuner.work.allowed import Allowed, Refused, require_allowed

CONFIG = {"config": {"model_type": "llama"}}


def listed(folder: Path, **lists: Any) -> Allowed:
    path = folder / "allowed.yaml"
    path.write_text(json.dumps(lists))
    return Allowed.read(path)


def allow(place: Path, allowed: Allowed, kind: str = "causal_lm", **changes: Any) -> StudySpec:
    settings = changes.pop("settings", {"model": CONFIG, "data": {"path": "stdlib", "sequence_length": 8}})
    spec = StudySpec(
        study="s",
        objective=ObjectiveReference(kind=kind, settings=settings, folder=str(changes.pop("folder", place))),
        global_batch_size=8,
        **changes,
    )
    return require_allowed(spec, allowed, place / "empty")


def data(path: Any) -> dict[str, Any]:
    return {"model": CONFIG, "data": {"path": path, "sequence_length": 8}}


def test_without_a_list_a_built_in_on_a_configuration_runs_and_no_module_is_found_beside_the_spec(
    tmp_path: Path,
) -> None:
    made = allow(tmp_path, Allowed())
    assert made.objective.folder == str(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


def test_an_own_objective_needs_its_module_on_the_list_and_its_folder_under_code(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"mine:Tiny' is not on this worker's list .* add 'mine' under `objectives`"):
        allow(tmp_path, Allowed(), kind="mine:Tiny", settings={})
    by_module = listed(tmp_path, objectives=["mine"])
    assert allow(tmp_path, by_module, kind="mine.deep:Tiny", settings={}).objective.folder != str(tmp_path)
    with_code = listed(tmp_path, objectives=["mine"], code=[str(tmp_path)])
    assert allow(tmp_path, with_code, kind="mine:Tiny", settings={}).objective.folder == str(tmp_path)
    with pytest.raises(Refused):
        allow(tmp_path, by_module, kind="mineral:Tiny", settings={})


@pytest.mark.parametrize("path", ["../outside/*.txt", "link/*.txt", "/etc/passwd", "inside/../../outside/a.txt"])
def test_paths_are_judged_as_they_really_are(tmp_path: Path, path: str) -> None:
    for name in ("data/inside", "outside"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.txt").write_text("x")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "data" / "inside" / "b.txt").symlink_to(tmp_path / "outside" / "a.txt")
    allowed = listed(tmp_path, data=[str(tmp_path / "data")])
    with pytest.raises(Refused, match="under `data`"):
        allow(tmp_path, allowed, settings=data(path), folder=tmp_path / "data")
    with pytest.raises(Refused):  # a file of a listed folder that is a link to another place
        allow(tmp_path, allowed, settings=data("inside"), folder=tmp_path / "data")
    made = allow(tmp_path, allowed, settings=data(["inside/a.txt"]), folder=tmp_path / "data")
    assert made.objective.settings["data"]["path"] == [str(tmp_path / "data" / "inside" / "a.txt")]


def model(folder: Path, config: dict[str, Any], *files: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name in files:
        (folder / name).write_bytes(b"x")
    return folder


@pytest.mark.parametrize(
    ("config", "files", "said"),
    [
        ({"model_type": "llama", "auto_map": {"AutoModel": "x.py"}}, ["model.safetensors"], "auto_map"),
        ({"model_type": "llama"}, ["pytorch_model.bin"], "unpickling"),
        ({"model_type": "llama"}, ["weights.ckpt"], "unpickling"),
    ],
)
def test_foreign_code_and_pickled_weights_are_refused(
    tmp_path: Path, config: dict[str, Any], files: list[str], said: str
) -> None:
    folder = model(tmp_path / "models" / "one", config, *files)
    allowed = listed(tmp_path, models=[str(tmp_path / "models")])
    with pytest.raises(Refused, match=said):
        allow(tmp_path, allowed, settings={**data("stdlib"), "model": {"path": str(folder)}})


def test_a_model_folder_outside_and_a_hub_name_are_refused_until_listed(tmp_path: Path) -> None:
    folder = model(tmp_path / "models" / "one", {"model_type": "llama"}, "model.safetensors")
    settings = {**data("stdlib"), "model": {"path": "models/one"}}
    with pytest.raises(Refused, match="under `models`"):
        allow(tmp_path, Allowed(), settings=settings)
    made = allow(tmp_path, listed(tmp_path, models=[str(folder.parent)]), settings=settings)
    assert made.objective.settings["model"]["path"] == str(folder)
    hub = {**data("stdlib"), "model": {"hub": "Qwen/Qwen3-0.6B"}}
    with pytest.raises(Refused, match="under `hub`"):
        allow(tmp_path, Allowed(), settings=hub)
    assert allow(tmp_path, listed(tmp_path, hub=["Qwen/*"]), settings=hub)


def test_a_configuration_with_foreign_code_will_run_nowhere(tmp_path: Path) -> None:
    wanted = {**data("stdlib"), "model": {"config": {"model_type": "llama", "auto_map": {"AutoModel": "x"}}}}
    with pytest.raises(Refused) as refused:
        allow(tmp_path, Allowed(), settings=wanted)
    assert refused.value.everywhere


def test_variables_that_load_code_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="LD_PRELOAD"):
        allow(tmp_path, Allowed(), environment={"LD_PRELOAD": "/tmp/x.so"})
    assert allow(tmp_path, Allowed(), environment={"OMP_NUM_THREADS": "2"})
    assert allow(tmp_path, listed(tmp_path, environment=["MY_*"]), environment={"MY_FLAG": "1"})


def script(*command: str, **more: Any) -> dict[str, Any]:
    return {"kind": "script", "settings": {"command": list(command), **more}}


def test_a_script_is_allowed_by_the_real_path_of_its_file(tmp_path: Path) -> None:
    allowed = listed(tmp_path, scripts=[str(tmp_path / "jobs" / "*.py")])
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_text("")
    (tmp_path / "jobs" / "link.py").symlink_to("/bin/sh")
    assert allow(tmp_path, allowed, **script("python", "train.py"), folder=tmp_path / "jobs")
    for refused in (
        script("python", "-c", "import os"),
        script("python", "link.py"),
        script("python", "../other.py"),
        script("./train.sh", "train.py"),
        script("python", "train.py", environment={"LD_PRELOAD": "x"}),
        script("python", "train.py", patch={"file": "/etc/passwd", "values": {}}),
    ):
        with pytest.raises(Refused):
            allow(tmp_path, allowed, **refused, folder=tmp_path / "jobs")


@pytest.mark.parametrize("text", ["objectves: [a]", "objectives: causal_lm", "[a]", "objectives: [1]", "a: ["])
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "allowed.yaml").write_text(text)
    with pytest.raises(TightfitError, match="operator's list"):
        Allowed.read(tmp_path / "allowed.yaml")
