"""The image objective on real picture files, a user's own objective, and what a template preloads for each."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import CPU, FAMILIES, SMALL, distance, gradients
from torch.utils.data import DataLoader

from objectives.contract import Objective, ObjectiveError, ObjectiveReference, load_objective
from objectives.image_classifier import ImageClassifier
from objectives.preload import preload_modules

ROOT = Path(__file__).parents[2]
SHAPES = {
    "vit": {"model_type": "vit", "patch_size": 8, **SMALL},
    "convnext": {"model_type": "convnext", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
    "resnet": {"model_type": "resnet", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "embedding_size": 8},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    script = ROOT / "examples" / "make_pictures.py"
    subprocess.run([sys.executable, str(script), str(folder / "pictures"), "--per-class", "8"], check=True)
    return folder


def classifier(pictures: Path, config: dict[str, Any], **data: Any) -> ImageClassifier:
    return ImageClassifier(
        model={"config": config},
        data={"path": "pictures", "image_size": 32, **data},
        folder=str(pictures),
        cache=str(pictures / "cache"),
    )


@pytest.mark.parametrize(
    ("family", "methods"),
    [("vit", {"checkpoint_blocks", "set_attention"}), ("convnext", set()), ("resnet", set())],
)
def test_image_classifiers_train_on_real_files(pictures: Path, family: str, methods: set[str]) -> None:
    objective = classifier(pictures, SHAPES[family])
    facts = json.loads(json.dumps(objective.prepare(pictures / "cache")))
    assert (facts["rows"], facts["classes"]) == (24, 3)
    workload = objective.build(CPU, 0)
    assert {name for name in ("checkpoint_blocks", "set_attention") if hasattr(workload, name)} == methods
    assert workload.model.config.num_labels == 3
    dataset = workload.dataset()
    loader = DataLoader(
        dataset, batch_size=6, collate_fn=workload.collate, num_workers=2, multiprocessing_context="fork"
    )
    batches = list(loader)
    assert pickle.loads(pickle.dumps(workload.collate)) is workload.collate
    assert sum(len(batch["labels"]) for batch in batches) == 24
    assert batches[0]["pixel_values"].shape == workload.longest(6)["pixel_values"].shape == (6, 3, 32, 32)
    loss, count = workload.loss(workload.model, batches[0])
    loss.backward()
    assert count == 6
    assert float(loss.detach()) / 6 == pytest.approx(np.log(3), rel=0.6)
    assert gradients(workload.model).norm() > 0


def test_image_gradients_do_not_depend_on_the_split(pictures: Path) -> None:
    objective = classifier(pictures, SHAPES["vit"])
    objective.prepare(pictures / "cache")
    workload = objective.build(CPU, 0)
    samples = [workload.dataset()[i] for i in range(8)]
    found = []
    for micro in (8, 2, 1):
        for start in range(0, 8, micro):
            workload.loss(workload.model, workload.collate(samples[start : start + micro]))[0].backward()
        found.append(gradients(workload.model))
    assert max(distance(one, found[0]) for one in found) < 2e-6


def test_image_attention_and_channels_last(pictures: Path) -> None:
    vit = classifier(pictures, SHAPES["vit"]).build(CPU, 0)
    vit.set_attention("eager")
    assert vit.model.config._attn_implementation == "eager"
    convnext = classifier(pictures, SHAPES["convnext"]).build(CPU, 0)
    convnext.model.to(memory_format=torch.channels_last)
    batch = convnext.longest(2)
    batch["pixel_values"] = batch["pixel_values"].to(memory_format=torch.channels_last)
    assert convnext.loss(convnext.model, batch)[0].isfinite()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({**SHAPES["vit"], "num_labels": 2}, "2 labels, but .* has 3 class folders"),
        ({**SHAPES["vit"], "image_size": 64}, "32, but the model wants pictures of 64"),
        (FAMILIES["llama"], "llama cannot be built"),
    ],
)
def test_image_models_that_do_not_fit_their_pictures_are_refused(
    pictures: Path, config: dict[str, Any], text: str
) -> None:
    with pytest.raises(ObjectiveError, match=text):
        classifier(pictures, config).prepare(pictures / "cache")


def test_the_example_of_a_users_own_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "own_objective"))
    objective = load_objective(ObjectiveReference(kind="forecaster:Forecaster", settings={"width": 8, "history": 16}))
    assert isinstance(objective, Objective)
    workload: Any = objective.build(CPU, 0)
    dataset = workload.dataset()
    batch = workload.collate([dataset[i] for i in range(4)])
    loss, count = workload.loss(workload.model, batch)
    loss.backward()
    assert (count, len(workload.checkpoint_blocks())) == (4, 3)
    assert workload.longest(4)["history"].shape == batch["history"].shape
    with pytest.raises(ObjectiveError, match="refuses its settings"):
        load_objective(ObjectiveReference(kind="forecaster:Forecaster", settings={"wdth": 8}))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("causal_lm", {"model": {"config": FAMILIES["llama"]}, "lora": {"r": 2}}),
        ("image_classifier", {"model": {"config": SHAPES["vit"]}}),
    ],
)
def test_preloading_starts_no_thread_and_leaves_little_to_import(kind: str, settings: dict[str, Any]) -> None:
    names = preload_modules(ObjectiveReference(kind=kind, settings=settings))
    code = (
        f"import importlib, os, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        "assert len(os.listdir('/proc/self/task')) == 1, 'threads'\n"
        "assert not [m for m in sys.modules if m.startswith(('pyarrow', 'transformers.trainer'))]\n"
    )
    quiet = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
