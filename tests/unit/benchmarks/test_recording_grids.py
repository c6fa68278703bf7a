"""Every grid that `make tables` records: enough configurations, nothing that takes minutes here, a frugal baseline."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.recording.__main__ import _on_cores
from benchmarks.recording.grids import GRIDS, Grid
from objectives.knobs.knob import Facts
from tuner import spec as specs
from tuner.search.baseline import baseline_config
from tuner.search.batch import GlobalBatch
from tuner.search.space import Space, make_space
from tuner.settings import Settings
from tuner.spec.model import StudySpec

METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens", "lengths"})
FACTS = Facts(device_kind="cpu", cores=2, workload_methods=METHODS, has_convolutions=True)
SETTINGS = Settings(data_dir=Path("data"), cache_dir=Path("cache"))


def space_of(spec: StudySpec) -> Space:
    batch = GlobalBatch(samples=spec.global_batch_size)
    return make_space(spec, FACTS, batch, baseline_config(spec, FACTS, batch).config.knobs())


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.name)
def test_a_grid_is_large_quick_to_run_and_exhaustive(grid: Grid) -> None:
    spec = specs.read(grid.spec_file, settings=SETTINGS)
    space = space_of(spec)
    assert spec.study == grid.name
    assert spec.sampler == "grid"
    assert spec.device == "cpu"
    assert space.size >= 60
    assert space.size <= spec.limits.trials
    assert spec.limits.target_half_width == 0
    assert "fp16-mixed" not in space.values["precision"]
    assert "compile" not in space.values
    assert spec.baseline["micro_batch_size"] == min(map(int, space.values["micro_batch_size"]))


def models_of(kind: str) -> set[str]:
    read = (specs.read(grid.spec_file, settings=SETTINGS) for grid in GRIDS if grid.set == kind)
    return {str(spec.objective.settings["model"]) for spec in read}


def test_the_two_sets_share_no_model_and_no_material() -> None:
    assert not models_of("dev") & models_of("eval")
    material = {kind: {grid.material for grid in GRIDS if grid.set == kind} for kind in ("dev", "eval")}
    assert not material["dev"] & material["eval"]


def test_a_grid_keeps_to_its_cores() -> None:
    before = os.sched_getaffinity(0)
    with _on_cores(1):
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before
