"""The replay table, and the files on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from search_fakes import CAPACITY, GIB, START, FakeStudy, fixture_1, limits_of, run_of, spec_of, trial_of

from storage.records import StudyRecord
from tuner.answer.summary import StudyView
from tuner.export.documents import read_config, write_files
from tuner.export.handover import ExportRefused
from tuner.export.study import Wish, export_study
from tuner.export.table import write

HEAD = {"table", "device", "throughput_unit", "global_batch_size", "memory_limit_bytes", "baseline", "versions"}
ROW = {"config", "outcome", "throughput", "peak_memory_bytes", "seconds", "outcome_source"}


def view_of(trials, runs, spec=None) -> StudyView:
    study = StudyRecord(
        id=1, name="s", status="finished", spec={}, identity={}, created_at=START, device="cpu",
        memory_limit_bytes=2 * GIB,
    )  # fmt: skip
    return StudyView(study=study, trials=trials, runs=runs, spec=spec or spec_of())


def lines_of(view: StudyView) -> list[dict]:
    return [json.loads(line) for line in write(view).files["table.jsonl"].splitlines()]


def test_a_whole_study_is_a_head_and_a_row_a_trial() -> None:
    study = FakeStudy(spec=spec_of(**CAPACITY, limits=limits_of(trials=20)), model=fixture_1(noise=0.02))
    study.search()
    study.confirm()
    head, *rows = lines_of(view_of(study.trials, study.runs, study.spec))
    assert set(head) >= HEAD
    assert head["baseline"] == rows[0]["config"]
    assert len(rows) == len(study.trials)
    assert all(set(row) >= ROW for row in rows)
    assert all(row["throughput"] is None for row in rows if row["outcome"] not in ("completed", "pruned"))


def measured(window: float = 4.0, compiled: float = 0.0) -> dict:
    return {
        "window_seconds": window,
        "stall_seconds": 0.5,
        "compile": {"seconds": compiled},
        "data_stall_share": 0.25,
        "relative_standard_error": 0.01,
    }


def test_a_row_holds_what_a_search_run_cost_and_saw() -> None:
    trial = trial_of(0, seconds=60.0, predicted_peak_memory_bytes=GIB)
    runs = [
        run_of(1, 100.0, 0.0, seconds=12.0, step_seconds=(0.5, 0.6), measurement=measured()),
        run_of(1, 101.0, 20.0, "repeat", seconds=11.0, measurement=measured()),
        run_of(1, 95.0, 40.0, "confirm", seconds=37.0),
    ]
    row = lines_of(view_of([trial], runs))[1]
    assert row["seconds"] == 12.0
    assert row["runs"] == [{"throughput": 100.0, "seconds": 12.0}, {"throughput": 101.0, "seconds": 11.0}]
    assert (row["setup_seconds"], row["window_seconds"], row["step_seconds"]) == (7.5, 4.0, [0.5, 0.6])
    assert row["data_stall_share"] == 0.25
    assert "compile_seconds" not in row
    assert row["predicted_peak_memory_bytes"] == GIB


def test_compilation_is_no_setup() -> None:
    runs = [run_of(1, 100.0, 0.0, seconds=42.0, measurement=measured(compiled=30.0))]
    row = lines_of(view_of([trial_of(0)], runs))[1]
    assert (row["setup_seconds"], row["compile_seconds"]) == (7.5, 30.0)


def test_composed_steps_are_told_at_the_time_they_took() -> None:
    runs = [run_of(1, 100.0, 0.0, seconds=12.0, step_seconds=(3.0, 5.0), measurement=measured())]
    assert lines_of(view_of([trial_of(0)], runs))[1]["step_seconds"] == [1.5, 2.5]


def test_the_error_of_a_mean_has_the_spread_between_runs_in_it() -> None:
    def runs(trial: int, *speeds: float) -> list:
        purposes = ("search", *("repeat" for _ in speeds[1:]))
        told = zip(speeds, purposes, strict=True)
        return [run_of(trial, v, 10.0 * n, p, measurement=measured()) for n, (v, p) in enumerate(told)]

    trials = [trial_of(0), trial_of(1)]
    view = view_of(trials, [*runs(1, 100.0, 130.0, 100.0, 130.0, 100.0, 130.0), *runs(2, 50.0)])
    _, repeated, single = lines_of(view)
    assert repeated["throughput"] == pytest.approx(13000**0.5)
    relative = [row["throughput_standard_error"] / row["throughput"] for row in (repeated, single)]
    assert relative[1] == pytest.approx(relative[0] * 6**0.5)
    assert 0.08 < relative[1] < 0.20


def test_failed_and_cut_rows() -> None:
    trials = [
        trial_of(0, outcome="device_oom", cause="capacity", throughput=0.0, peak_memory_bytes=2 * GIB),
        trial_of(1, outcome="pruned", throughput=40.0),
        trial_of(2, outcome="cancelled", throughput=None),
        trial_of(3, outcome=None, throughput=None),
        trial_of(4, outcome="infra", cause="busy_device", throughput=None),
    ]
    _, oom, pruned = lines_of(view_of(trials, []))
    assert (oom["throughput"], oom["peak_memory_bytes"], oom["outcome_source"]) == (None, None, "measured")
    assert (pruned["throughput"], pruned["outcome_source"]) == (40.0, "cut")


def test_an_empty_study_and_arguments_without_meaning_are_refused() -> None:
    with pytest.raises(ExportRefused, match="no ended trial"):
        write(view_of([], []))
    view = view_of([trial_of(0)], [])
    for wish in (Wish(to="table", world_size=2), Wish(to="table", memory="1GiB"), Wish(to="table", pick="knee")):
        with pytest.raises(ExportRefused, match="leave out --"):
            export_study(view, wish)
    with pytest.raises(ExportRefused, match="no format 'yaml'; there are hf-trainer"):
        export_study(view, Wish(to="yaml"))


def test_files_are_written_whole_and_never_over_others(tmp_path: Path) -> None:
    files = {"a.json": "{}\n", "run.sh": "#!/bin/sh\n"}
    folder = tmp_path / "deep" / "er"
    assert write_files(folder, files) == [str(folder / name) for name in files]
    assert write_files(folder, files)
    assert (folder / "run.sh").stat().st_mode & 0o100
    (folder / "run.sh").write_text("mine\n")
    with pytest.raises(ExportRefused, match="says something else"):
        write_files(folder, {"b.json": "{}", **files})
    assert sorted(path.name for path in folder.iterdir()) == ["a.json", "run.sh"]
    with pytest.raises(ExportRefused, match="--output"):
        write_files(folder / "a.json" / "x", files)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "{", "a.json"),
        ("a.yaml", "a: [", "a.yaml"),
        ("a.yaml", "- 1", "no keys"),
        ("no.yaml", None, "No such"),
    ],
)
def test_an_unreadable_file_of_yours_is_refused(name: str, text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ExportRefused, match=said):
        read_config(tmp_path / name)


def test_your_yaml_is_read_as_the_targets_read_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("bf16: true\nmixed_precision: 'no'\nlearning_rate: 1.0e-4\n")
    assert read_config(tmp_path / "mine.yaml") == {"bf16": True, "mixed_precision": "no", "learning_rate": 1e-4}
