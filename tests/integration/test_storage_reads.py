"""What screens and searches read: only what changed, lists at a glance, pages, the front."""

from __future__ import annotations

import random
import uuid

import pytest

from storage import overview, queue, runs, studies, trial_table, trials, workers
from storage.database import Database
from storage.records import StudyRecord
from tuner.search.front import pareto_front

LIMIT = 100


@pytest.fixture
def database(emptied_database: Database) -> Database:
    return emptied_database


def make_study(database: Database, name: str = "one") -> StudyRecord:
    made = studies.create(database, name=name, spec={}, identity={})
    return studies.set_facts(database, made.id, {}, device="H200", memory_limit_bytes=LIMIT)


def add(
    database: Database,
    study: StudyRecord,
    outcome: str | None = "completed",
    throughput: float | None = None,
    peak: int | None = None,
    **knobs: object,
) -> int:
    trial = trials.reserve(database, study_id=study.id, config=knobs, config_key="", source="tpe")
    assert trial is not None
    if outcome is not None:
        end = {"throughput": throughput, "peak_memory_bytes": peak, "throughput_unit": "tokens_per_second"}
        trials.finish(database, trial.id, outcome=outcome, evidence={"text": "long"}, **end)
    return trial.id


class TestChangedSince:
    def test_only_what_is_new_or_changed(self, database: Database) -> None:
        study = make_study(database)
        ids = [add(database, study, None) for _ in range(5)]
        seen = max(trial.changed for trial in trials.changed_since(database, study.id, 0))
        assert seen == studies.get(database, study.id).version
        assert trials.changed_since(database, study.id, seen) == ()
        changes = (
            lambda: trials.finish(database, ids[1], outcome="completed"),
            lambda: trials.update_fields(database, ids[3], windows=2),
            lambda: trials.release(database, ids[2]),
        )
        for change in changes:
            change()
        found = trials.changed_since(database, study.id, seen)
        assert [trial.id for trial in found] == [ids[1], ids[3]]  # nothing was there to release
        assert max(trial.changed for trial in found) <= studies.get(database, study.id).version

    def test_runs_alike_and_a_heartbeat_is_no_change(self, database: Database) -> None:
        study = make_study(database)
        worker = workers.register(database, id=str(uuid.uuid4()), host="h", pid=1, device_kind="cpu", device_name="cpu")
        trial = add(database, study, None)
        for name in ("a", "b"):
            runs.start(database, id=name, study_id=study.id, trial_id=trial, purpose="search", worker_id=worker.id)
        seen = max(run.changed for run in runs.changed_since(database, study.id, 0))
        version = studies.get(database, study.id).version
        workers.beat(database, worker.id, runs=("a", "b"))
        assert runs.changed_since(database, study.id, seen) == ()
        assert studies.get(database, study.id).version == version
        runs.finish(database, "b", outcome="crashed")
        (found,) = runs.changed_since(database, study.id, seen)
        assert (found.id, found.outcome) == ("b", "crashed")
        runs.keep_late(database, "b", result={})
        assert [run.id for run in runs.changed_since(database, study.id, found.changed)] == ["b"]

    def test_one_transaction_one_version(self, database: Database) -> None:
        study = make_study(database)
        trial = add(database, study, None)
        runs.start(database, id="a", study_id=study.id, trial_id=trial, purpose="search")
        run, tried = runs.record_end(database, id="a", outcome="completed", trial_id=trial)
        assert tried is not None
        assert run.changed == tried.changed == studies.get(database, study.id).version


class TestOverview:
    def test_a_study_at_a_glance(self, database: Database) -> None:
        study = make_study(database)
        baseline = add(database, study, "completed", 10.0, 50)
        best = add(database, study, "completed", 30.0, 90)
        add(database, study, "completed", 99.0, 101)  # over the limit
        add(database, study, "device_oom")
        last = add(database, study, None)
        (line,) = overview.list_studies(database)
        assert line.counts == {"completed": 3, "device_oom": 1}
        assert (line.open_trials, line.workers, line.device) == (1, 0, "H200")
        assert (line.best_throughput, line.baseline_throughput, line.speedup) == (30.0, 10.0, None)
        assert line.throughput_unit == "tokens_per_second"
        assert line.updated_at >= trials.get(database, last).created_at
        for trial, throughput in ((baseline, 11.0), (best, 22.0)):
            trials.update_fields(database, trial, confirmed=True, confirmed_throughput=throughput)
        (line,) = overview.list_studies(database)
        assert (line.best_throughput, line.baseline_throughput, line.speedup) == (22.0, 11.0, 2.0)

    def test_an_empty_study(self, database: Database) -> None:
        study = make_study(database)
        (line,) = overview.list_studies(database)
        assert (line.name, line.counts, line.best_throughput, line.speedup) == (study.name, {}, None, None)
        assert line.updated_at == study.created_at

    def test_newest_first_in_pages_and_by_status(self, database: Database) -> None:
        made = [make_study(database, f"study {number}") for number in range(5)]
        studies.set_status(database, made[1].id, "finished")
        assert [line.name for line in overview.list_studies(database, limit=2, offset=1)] == ["study 3", "study 2"]
        assert [line.name for line in overview.list_studies(database, statuses=["finished"])] == ["study 1"]

    def test_who_is_at_it(self, database: Database) -> None:
        queue.submit(database, name="shared", spec={}, identity={})
        for number in range(2):
            made = workers.register(
                database, id=str(uuid.uuid4()), host="h", pid=number, device_kind="cpu", device_name="cpu"
            )
            queue.claim_study(database, made.id)
        (line,) = overview.list_studies(database)
        assert (line.workers, line.status) == (2, "running")


class TestTable:
    @pytest.fixture
    def study(self, database: Database) -> StudyRecord:
        study = make_study(database)
        for number in range(12):
            outcome = "completed" if number % 3 else "device_oom"
            knobs = {"micro_batch_size": 1 << number % 4, "precision": ["fp32", "bf16-mixed"][number % 2]}
            figure = float(number) if number % 3 else None
            add(database, study, outcome, figure, number, pin_memory=number < 6, rate=0.5, **knobs)
        return study

    def test_pages(self, database: Database, study: StudyRecord) -> None:
        first = trial_table.page(database, study.id, limit=5)
        last = trial_table.page(database, study.id, limit=5, offset=10)
        assert (first.total, last.total) == (12, 12)
        assert [trial.number for trial in (*first.trials, *last.trials)] == [0, 1, 2, 3, 4, 10, 11]
        assert {len(trial.evidence) for trial in first.trials} == {0}

    @pytest.mark.parametrize(
        ("filters", "numbers"),
        [
            ({"outcomes": ["device_oom"]}, [0, 3, 6, 9]),
            ({"outcomes": []}, []),
            ({"knobs": {"micro_batch_size": 4}}, [2, 6, 10]),
            ({"knobs": {"precision": "bf16-mixed", "pin_memory": True}}, [1, 3, 5]),
            ({"knobs": {"pin_memory": False}, "outcomes": ["device_oom"]}, [6, 9]),
            ({"knobs": {"pin_memory": 1}}, []),  # a number is no boolean
            ({"knobs": {"micro_batch_size": True}}, []),
            ({"knobs": {"micro_batch_size": "4"}}, []),
            ({"knobs": {"rate": 0.5, "precision": "fp32"}, "outcomes": ["device_oom"]}, [0, 6]),
            ({"knobs": {"unknown": 1}}, []),
            ({"knobs": {"precision": "fp32' OR 1=1 --"}}, []),
        ],
    )
    def test_filters(
        self, database: Database, study: StudyRecord, filters: dict[str, object], numbers: list[int]
    ) -> None:
        found = trial_table.page(database, study.id, **filters)
        assert ([trial.number for trial in found.trials], found.total) == (numbers, len(numbers))

    def test_sorting_puts_missing_figures_last(self, database: Database, study: StudyRecord) -> None:
        for descending, best in ((True, [11, 10]), (False, [1, 2])):
            found = trial_table.page(database, study.id, order_by="throughput", descending=descending)
            assert [trial.number for trial in found.trials][:2] == best
            assert [trial.number for trial in found.trials][-4:] == [0, 3, 6, 9]
        with pytest.raises(ValueError, match="not by 'evidence'"):
            trial_table.page(database, study.id, order_by="evidence")  # type: ignore[arg-type]

    def test_columns_for_charts(self, database: Database, study: StudyRecord) -> None:
        found = trial_table.points(database, study.id, "number", "outcome", "throughput")
        assert found[:2] == ((0, "device_oom", None), (1, "completed", 1.0))
        assert len(found) == 12


@pytest.mark.parametrize("seed", range(2))
def test_the_front_is_the_searchs_front(database: Database, seed: int) -> None:
    """Ties, trials over the limit and missing figures included."""
    study, chance = make_study(database), random.Random(seed)
    for _ in range(25):
        outcome = chance.choice(["completed"] * 4 + ["pruned", "crashed", None])
        add(
            database,
            study,
            outcome,
            chance.choice([None, *map(float, range(8))]),
            chance.choice([None, *range(90, 104)]),
        )
    expected = pareto_front(trials.list_of(database, study.id), LIMIT)
    assert trial_table.front(database, study.id) == tuple(expected)


def test_a_front_without_a_limit(database: Database) -> None:
    study = studies.create(database, name="free", spec={}, identity={})
    ids = [add(database, study, "completed", speed, peak) for speed, peak in ((1.0, 10), (2.0, 20), (1.5, 30))]
    assert [trial.id for trial in trial_table.front(database, study.id)] == [ids[1], ids[0]]
