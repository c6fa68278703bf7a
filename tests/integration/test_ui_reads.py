"""The reads that only the screens need, on both kinds of store."""

from __future__ import annotations

from pathlib import Path

from recorded import record

from storage import overview, runs, studies, trial_table, trials
from storage.database import Database

UI = Path(__file__).parents[2] / "ui"


def test_a_figure_of_the_metrics_by_trial_number(database: Database) -> None:
    study = record(database, "gpt2-dev@121MiB", study="alpha", most=6)
    found = dict(trial_table.figure(database, study.id, "median_step_seconds"))
    measured = {
        each.number: each.metrics["median_step_seconds"] for each in trials.list_of(database, study.id) if each.metrics
    }
    assert found == measured
    assert trial_table.figure(database, study.id, "mfu") == ()
    peaks = dict(trial_table.figure(database, study.id, "memory", "peak_memory_bytes"))
    assert set(peaks) == set(measured)


def test_the_runs_of_some_trials_by_the_time_they_started(database: Database) -> None:
    study = record(database, "gpt2-dev@121MiB", study="alpha", most=6)
    wanted = [each.id for each in trials.list_of(database, study.id)][:2]
    found = runs.of_trials(database, wanted)
    assert {run.trial_id for run in found} == set(wanted)
    assert list(found) == sorted(found, key=lambda run: (run.started_at, run.id))
    assert runs.of_trials(database, []) == ()


def test_the_stamp_of_the_list_changes_with_every_change(database: Database) -> None:
    seen = [overview.stamp(database)]
    study = record(database, "gpt2-dev@121MiB", study="alpha", most=2)
    seen.append(overview.stamp(database))
    studies.set_status(database, study.id, "paused")
    seen.append(overview.stamp(database))
    studies.delete(database, study.id)
    seen.append(overview.stamp(database))
    assert len(set(seen[:3])) == 3
    assert seen[3] not in seen[1:3]
    assert overview.stamp(database) == seen[3]


def test_no_folder_named_pages_lies_beside_the_entry_script() -> None:
    """A fresh server would run what stands in it past the entry script, and past its rules."""
    assert (UI / "app.py").is_file()
    assert not (UI / "pages").exists()
