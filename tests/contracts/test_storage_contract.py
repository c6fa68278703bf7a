"""What the store promises, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from objectives.trial.outcome import Confidence, Outcome
from storage import runs, studies, trials
from storage.database import Database
from storage.errors import AlreadyFinished, InvalidName, NameTaken, NotFound, SchemaMismatch
from storage.models import CONFIDENCES, OUTCOMES, STATUSES, Trial
from storage.records import RunRecord, StudyRecord, StudyStatus, TrialRecord

SPEC = {"search": {"precision": ["fp32", "bf16-mixed"], "micro_batch_size": [1, 2, 4]}, "limits": {"trials": 40}}
IDENTITY = {"global_batch_size": 8, "search": SPEC["search"]}


def make_study(database: Database, name: str = "llama-1b-4k") -> StudyRecord:
    return studies.create(database, name=name, spec=SPEC, identity=IDENTITY)


def make_trial(database: Database, study: StudyRecord, **values: object) -> TrialRecord:
    given = {"config": {"micro_batch_size": 2}, "config_key": "k2", "source": "tpe", **values}
    trial = trials.reserve(database, study_id=study.id, **given)
    assert trial is not None
    return trial


def make_run(database: Database, study: StudyRecord, trial: TrialRecord | None = None, **values: object) -> RunRecord:
    given = {"purpose": "search", "trial_id": trial and trial.id, **values}
    return runs.start(database, id=str(uuid.uuid4()), study_id=study.id, **given)


class TestStudies:
    def test_a_study_comes_back_as_it_was_stored(self, database: Database) -> None:
        made = make_study(database)
        assert made == studies.find(database, "llama-1b-4k") == studies.get(database, made.id)
        assert (made.status, made.spec, made.identity, made.facts) == ("queued", SPEC, IDENTITY, {})
        assert made.created_at.tzinfo is UTC
        assert abs(made.created_at - datetime.now(UTC)) < timedelta(minutes=1)

    def test_the_order_of_knobs_survives(self, database: Database) -> None:
        assert list(make_study(database).spec["search"]) == ["precision", "micro_batch_size"]

    def test_a_name_belongs_to_one_study(self, database: Database) -> None:
        make_study(database)
        with pytest.raises(NameTaken, match="llama-1b-4k"):
            make_study(database)

    @pytest.mark.case("G22")
    @pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "line\nbreak", " padded ", "\ud800"])
    def test_a_name_that_no_store_should_hold_is_refused(self, database: Database, name: str) -> None:
        with pytest.raises(InvalidName):
            make_study(database, name)
        assert studies.find(database, name) is None

    @pytest.mark.parametrize("name", ["x" * 200, "größe 模型", "a'b\"c%s{}"])
    def test_any_printable_name_works(self, database: Database, name: str) -> None:
        assert make_study(database, name) == studies.find(database, name)

    def test_unknown_studies_are_said_so(self, database: Database) -> None:
        assert studies.find(database, "nobody") is None
        for act in (studies.get, studies.delete):
            with pytest.raises(NotFound, match="77"):
                act(database, 77)
        with pytest.raises(NotFound):
            studies.set_status(database, 77, "running")

    def test_every_change_raises_the_version(self, database: Database) -> None:
        study = make_study(database)
        trial = make_trial(database, study)
        changes = (
            lambda: studies.set_status(database, study.id, "running"),
            lambda: studies.set_facts(database, study.id, {"cores": 2}),
            lambda: studies.update_spec(database, study.id, {**SPEC, "sampler": "gp"}),
            lambda: studies.add_seconds(database, study.id, 1.0),
            lambda: make_trial(database, study),
            lambda: trials.update_fields(database, trial.id, windows=1),
            lambda: trials.finish(database, trial.id, outcome="crashed"),
        )
        for change in changes:
            before = studies.get(database, study.id).version
            change()
            assert studies.get(database, study.id).version > before

    def test_an_ended_study_that_goes_on_has_no_end(self, database: Database) -> None:
        study = make_study(database)
        ended = studies.set_status(database, study.id, "finished", "40 trials are done")
        assert ended.finished_at is not None
        assert ended.stop_reason == "40 trials are done"
        again = studies.set_status(database, study.id, "running")
        assert (again.finished_at, again.stop_reason) == (None, None)

    def test_facts_device_and_limit(self, database: Database) -> None:
        study = make_study(database)
        first = studies.set_facts(database, study.id, {"cores": 2}, device="H200", memory_limit_bytes=2**40)
        later = studies.set_facts(database, study.id, {"cores": 4})
        assert (first.device, first.memory_limit_bytes) == (later.device, later.memory_limit_bytes) == ("H200", 2**40)
        assert later.facts == {"cores": 4}

    def test_seconds_add_up(self, database: Database) -> None:
        study = make_study(database)
        studies.add_seconds(database, study.id, 1.5)
        assert studies.add_seconds(database, study.id, 2.0).seconds == 3.5

    def test_listing_is_newest_first_and_paged(self, database: Database) -> None:
        made = [make_study(database, f"study {number}") for number in range(5)]
        assert studies.list_all(database) == tuple(reversed(made))
        assert studies.list_all(database, limit=2, offset=1) == (made[3], made[2])

    def test_deleting_takes_trials_and_runs_along_and_nothing_else(self, database: Database) -> None:
        gone, stays = make_study(database), make_study(database, "other")
        for study in (gone, stays):
            make_run(database, study, make_trial(database, study))
        studies.delete(database, gone.id)
        assert studies.list_all(database) == (studies.get(database, stays.id),)
        assert trials.list_of(database, gone.id) == ()
        assert {run.study_id for run in runs.list_of(database)} == {stays.id}


class TestTrials:
    def test_numbers_are_contiguous_from_0_and_bounded(self, database: Database) -> None:
        study = make_study(database)
        made = [make_trial(database, study, max_trials=3).number for _ in range(3)]
        assert made == [0, 1, 2]
        for _ in range(2):
            assert (
                trials.reserve(database, study_id=study.id, config={}, config_key="", source="tpe", max_trials=3)
                is None
            )
        assert make_trial(database, study, max_trials=4).number == 3

    def test_a_trial_of_no_study(self, database: Database) -> None:
        with pytest.raises(NotFound):
            trials.reserve(database, study_id=77, config={}, config_key="", source="tpe", max_trials=1)
        for act in (trials.get, trials.release):
            with pytest.raises(NotFound):
                act(database, 77)

    def test_a_trial_comes_back_with_its_end(self, database: Database) -> None:
        trial = make_trial(database, make_study(database), predicted_peak_memory_bytes=5 * 2**30)
        end = {
            "cause": None, "confidence": "certain", "throughput": 1234.5, "throughput_unit": "tokens_per_second",
            "throughput_standard_error": 3.5, "windows": 2, "peak_memory_bytes": 80 * 2**30, "metrics": {"mfu": 0.4},
            "evidence": {"phase": "done"}, "seconds": 12.5,
        }  # fmt: skip
        stored = trials.finish(database, trial.id, outcome="completed", **end)
        assert stored == trials.get(database, trial.id)
        assert {name: getattr(stored, name) for name in end} == end
        assert stored.finished_at is not None
        assert (stored.config, stored.predicted_peak_memory_bytes) == ({"micro_batch_size": 2}, 5 * 2**30)

    def test_exactly_one_outcome(self, database: Database) -> None:
        trial = make_trial(database, make_study(database))
        first = trials.finish(database, trial.id, outcome="infra", cause="worker_lost")
        assert trials.finish(database, trial.id, outcome="infra", cause="busy_device") == first
        with pytest.raises(AlreadyFinished, match="infra") as caught:
            trials.finish(database, trial.id, outcome="completed", throughput=9.0)
        assert caught.value.outcome == "infra"
        assert trials.get(database, trial.id) == first

    def test_later_windows_and_the_confirmation(self, database: Database) -> None:
        trial = make_trial(database, make_study(database))
        trials.finish(database, trial.id, outcome="completed", throughput=10.0, windows=1)
        stored = trials.update_fields(database, trial.id, throughput=11.0, windows=2, confirmed=True)
        assert (stored.throughput, stored.windows, stored.confirmed, stored.outcome) == (11.0, 2, True, "completed")

    def test_an_update_never_touches_the_outcome(self, database: Database) -> None:
        trial = make_trial(database, make_study(database))
        for field in ({"outcome": "completed"}, {"number": 7}, {"nonsense": 1}):
            with pytest.raises(TypeError):
                trials.update_fields(database, trial.id, **field)
        assert trials.get(database, trial.id) == trial

    def test_duplicates_are_found_by_key(self, database: Database) -> None:
        study, other = make_study(database), make_study(database, "other")
        same = [make_trial(database, study, config_key="same") for _ in range(2)]
        make_trial(database, other, config_key="same")
        assert trials.by_key(database, study.id, "same") == tuple(same)
        assert trials.by_key(database, study.id, "new") == ()

    def test_counts_and_lists(self, database: Database) -> None:
        study = make_study(database)
        made = [make_trial(database, study) for _ in range(4)]
        for trial, outcome in zip(made, ("completed", "device_oom", "completed"), strict=False):
            trials.finish(database, trial.id, outcome=outcome)
        assert trials.counts(database, study.id) == {"completed": 2, "device_oom": 1}
        assert [trial.number for trial in trials.list_of(database, study.id)] == [0, 1, 2, 3]
        assert trials.unfinished(database, study.id) == (made[3],)
        assert trials.finished_ids(database, study.id) == tuple(trial.id for trial in made[:3])
        assert trials.by_ids(database, [made[2].id, made[0].id])[0].number == 0

    def test_a_released_trial_keeps_its_number_and_its_runs_are_lost(self, database: Database) -> None:
        study = make_study(database)
        trial = make_trial(database, study)
        done, lost = make_run(database, study, trial), make_run(database, study, trial, attempt=2)
        runs.finish(database, done.id, outcome="crashed")
        released = trials.release(database, trial.id, evidence={"noticed": "on resume"})
        assert (released.number, released.outcome) == (0, None)
        assert runs.get(database, done.id).outcome == "crashed"
        stored = runs.get(database, lost.id)
        assert (stored.outcome, stored.cause, stored.evidence) == ("infra", "worker_lost", {"noticed": "on resume"})


class TestRuns:
    def test_a_run_comes_back_with_its_end(self, database: Database) -> None:
        study = make_study(database)
        run = make_run(database, study, make_trial(database, study), hardware={"device": "cpu"})
        stored = runs.finish(
            database, run.id, outcome="completed", confidence="certain", throughput=7.5, peak_memory_bytes=10,
            measurement={"windows": 1}, step_seconds=[0.5, 0.25], evidence={"log": "…"}, seconds=3.0,
        )  # fmt: skip
        assert stored == runs.get(database, run.id)
        assert (stored.step_seconds, stored.hardware, stored.throughput) == ((0.5, 0.25), {"device": "cpu"}, 7.5)

    def test_exactly_one_outcome_and_a_late_result_counts_nowhere(self, database: Database) -> None:
        study = make_study(database)
        run = make_run(database, study)
        lost = runs.finish(database, run.id, outcome="infra", cause="worker_lost", evidence={"lease": "expired"})
        assert runs.finish(database, run.id, outcome="infra") == lost
        with pytest.raises(AlreadyFinished, match="infra"):
            runs.finish(database, run.id, outcome="completed", throughput=9.0)
        kept = runs.keep_late(database, run.id, result={"outcome": "completed", "throughput": 9.0})
        assert kept.evidence == {"lease": "expired", "late": {"outcome": "completed", "throughput": 9.0}}
        assert (kept.outcome, kept.throughput) == ("infra", None)

    def test_starting_twice_is_starting_once(self, database: Database) -> None:
        study = make_study(database)
        first = runs.start(database, id="7", study_id=study.id, purpose="capability")
        assert runs.start(database, id="7", study_id=study.id, purpose="capability") == first

    def test_a_run_of_nothing(self, database: Database) -> None:
        with pytest.raises(NotFound):
            runs.start(database, id="7", study_id=77, purpose="search")
        with pytest.raises(NotFound):
            runs.finish(database, "7", outcome="crashed")

    def test_lists_by_study_trial_and_purpose(self, database: Database) -> None:
        study, other = make_study(database), make_study(database, "other")
        trial = make_trial(database, study)
        search, confirm = make_run(database, study, trial), make_run(database, study, trial, purpose="confirm")
        capability = make_run(database, study, purpose="capability")
        foreign = make_run(database, other)
        assert runs.list_of(database, study_id=study.id) == (search, confirm, capability)
        assert runs.list_of(database, trial_id=trial.id, purpose="confirm") == (confirm,)
        assert foreign in runs.list_of(database)
        runs.finish(database, search.id, outcome="completed")
        assert runs.unfinished(database, trial_id=trial.id) == (confirm,)
        assert runs.unfinished(database, study_id=study.id) == (confirm, capability)

    def test_run_and_trial_end_together_or_not_at_all(self, database: Database) -> None:
        study = make_study(database)
        trial = make_trial(database, study)
        run = make_run(database, study, trial)
        end = {"run": {"throughput": 5.0}, "trial_id": trial.id, "trial": {"throughput": 5.0, "windows": 1}}
        for _ in range(2):
            ended, tried = runs.record_end(database, id=run.id, outcome="completed", **end)
            assert (ended.outcome, tried and tried.outcome) == ("completed", "completed")
        second = make_run(database, study, trial, attempt=2)
        with pytest.raises(AlreadyFinished, match="trial 0"):
            runs.record_end(database, id=second.id, outcome="crashed", trial_id=trial.id)
        assert runs.get(database, second.id).outcome is None

    def test_a_run_declared_lost_leaves_its_trial_alone(self, database: Database) -> None:
        study = make_study(database)
        trial = make_trial(database, study)
        run = make_run(database, study, trial)
        trials.release(database, trial.id)
        with pytest.raises(AlreadyFinished, match="infra"):
            runs.record_end(database, id=run.id, outcome="completed", trial_id=trial.id)
        assert trials.get(database, trial.id).outcome is None

    def test_a_run_may_end_otherwise_than_its_trial(self, database: Database) -> None:
        study = make_study(database)
        trial = make_trial(database, study)
        run = make_run(database, study, trial)
        ended, tried = runs.record_end(
            database, id=run.id, outcome="crashed", trial_id=trial.id, trial_outcome="completed"
        )
        assert (ended.outcome, tried and tried.outcome) == ("crashed", "completed")


class TestDirtyValues:
    """No value that a child can send loses its run."""

    @pytest.mark.case("G14")
    def test_what_json_does_not_know_becomes_null(self, database: Database) -> None:
        study = make_study(database)
        run = make_run(database, study)
        dirty = {"loss": math.nan, "deep": [{"x": math.inf}, -math.inf], "fine": 1.5}
        stored = runs.finish(database, run.id, outcome="completed", measurement=dirty, throughput=math.nan,
                             step_seconds=[0.1], seconds=1.0, peak_memory_bytes=2**80)  # fmt: skip
        assert stored.measurement == {"loss": None, "deep": [{"x": None}, None], "fine": 1.5}
        assert (stored.throughput, stored.peak_memory_bytes) == (None, None)

    @pytest.mark.case("G14", "G22")
    @pytest.mark.parametrize(
        "text",
        ["a\0b", "\ud800 alone", "\x1b[31mred\x1b[0m\r 40%|####", "line " * 1_000_000],
        ids=["nul", "surrogate", "ansi", "5 MB line"],
    )
    def test_text_of_any_kind_is_kept(self, database: Database, text: str) -> None:
        study = make_study(database)
        trial = make_trial(database, study)
        run = make_run(database, study, trial)
        end = {"cause": text[:100], "evidence": {"log": text, text[:9]: [text[:9]]}}
        ended, tried = runs.record_end(database, id=run.id, outcome="crashed", run=end, trial_id=trial.id, trial=end)
        expected = text.replace("\0", "\N{REPLACEMENT CHARACTER}").replace("\ud800", "?")
        assert tried is not None
        for stored in (ended, tried):
            assert stored.evidence["log"] == expected
            assert stored.cause == expected[:100]
        assert studies.set_status(database, study.id, "failed", text).stop_reason == expected


class TestWords:
    def test_the_schema_knows_the_words_of_the_records(self) -> None:
        assert get_args(Outcome) == OUTCOMES
        assert get_args(Confidence) == CONFIDENCES
        assert get_args(StudyStatus) == STATUSES

    def test_an_unknown_word_is_refused_by_the_schema(self, database: Database) -> None:
        trial = make_trial(database, make_study(database))
        with pytest.raises(IntegrityError):
            trials.finish(database, trial.id, outcome="exploded")
        assert trials.get(database, trial.id).outcome is None


class TestDatabase:
    def test_work_that_fails_leaves_nothing(self, database: Database) -> None:
        study = make_study(database)

        def work(session: object) -> None:
            session.execute(text("UPDATE tuner_study SET seconds = 99"))  # type: ignore[attr-defined]
            raise RuntimeError("in the middle")

        with pytest.raises(RuntimeError):
            database.write(work)
        with pytest.raises(RuntimeError), database.transaction() as session:
            work(session)
        assert studies.get(database, study.id) == study

    def test_a_transaction_commits(self, database: Database) -> None:
        trial = make_trial(database, make_study(database))
        with database.transaction() as session:
            session.execute(text("UPDATE tuner_trial SET source = 'grid'"))
        assert database.read(lambda session: session.scalar(select(Trial.source))) == "grid"
        assert trials.get(database, trial.id).source == "grid"

    def test_a_lock_has_one_holder(self, database: Database) -> None:
        with database.lock("study 1") as first, database.lock("study 1") as second, database.lock("study 2") as other:
            assert (first, second, other) == (True, False, True)
        with database.lock("study 1") as again:
            assert again

    @pytest.mark.case("G07")
    def test_a_store_without_tables_names_the_command(self, empty_url: str) -> None:
        empty = Database.open(empty_url)
        assert empty.check() == "missing"
        with pytest.raises(SchemaMismatch, match="tuner db migrate"):
            empty.require_schema()
        with pytest.raises(SchemaMismatch, match="tuner db migrate"):
            studies.list_all(empty)
        empty.close()

    def test_migrating_says_what_was_there(self, empty_url: str) -> None:
        empty = Database.open(empty_url)
        assert [empty.migrate(), empty.migrate(), empty.check()] == ["missing", "current", "current"]
        make_study(empty)
        empty.close()

    def test_a_newer_store_is_left_alone(self, database: Database) -> None:
        with database.transaction() as session:
            session.execute(text("UPDATE tuner_schema_version SET version_num = '9999'"))
        assert database.check() == "newer"
        for act in (database.require_schema, database.migrate, database.prepare):
            with pytest.raises(SchemaMismatch, match="newer"):
                act()
