"""The pages that show studies, driven through the entry script on real stores filled with recorded trials."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import grow, record
from sqlalchemy import text
from streamlit import config
from streamlit.testing.v1 import AppTest

from storage import runs, studies, trials, workers
from storage.database import Database
from storage.records import StudyRecord
from ui import data

ENTRY = Path(__file__).parents[2] / "ui" / "app.py"
BAD = "<script>alert(1)</script> **bold** :material/delete: [x](javascript:alert(1))"


@pytest.fixture(autouse=True)
def _as_served() -> Iterator[None]:
    """The options of ``ui/.streamlit/config.toml`` that change what a script draws."""
    before = config.get_option("runner.magicEnabled")
    config.set_option("runner.magicEnabled", False)
    yield
    config.set_option("runner.magicEnabled", before)


def _only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    monkeypatch.setenv("TUNER_DATA_DIR", str(folder))
    for name in ("TUNER_DATABASE_URL", "TUNER_DATABASE_URL_FILE"):
        monkeypatch.delenv(name, raising=False)
    return f"sqlite:///{folder / 'tightfit.db'}"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of an embedded store that the screens find by the data folder alone."""
    return _only(monkeypatch, tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Database]:
    database = Database.open(url)
    database.prepare()
    yield database
    database.close()


@pytest.fixture(scope="module")
def recorded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    database = Database.open(f"sqlite:///{folder / 'tightfit.db'}")
    database.prepare()
    record(database, "gpt2-dev@121MiB", study="alpha")
    database.close()
    return folder


@pytest.fixture
def alpha(recorded_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A store with one whole recorded study, not to be changed."""
    database = Database.open(_only(monkeypatch, recorded_folder))
    yield database
    database.close()


def page(name: str = "studies", **query: str) -> AppTest:
    at = AppTest.from_file(str(ENTRY), default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    if name != "studies":
        at.switch_page(f"screens/{name}.py")
    at.run()
    assert not at.exception
    return at


def study_of(store: Database, name: str = "alpha") -> StudyRecord:
    found = studies.find(store, name)
    assert found is not None
    return found


def texts(at: AppTest) -> str:
    """Everything that is shown as words."""
    elements = [
        *at.title,
        *at.subheader,
        *at.text,
        *at.error,
        *at.warning,
        *at.info,
        *at.caption,
        *at.markdown,
        *at.code,
    ]
    return "\n".join(str(each.value) for each in elements)


def figures(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(each.proto.spec) for each in at.get("plotly_chart")]


def drawn(figure: dict[str, Any]) -> set[int]:
    """Numbers of the trials of a front."""
    return {rows[0] for trace in figure["data"] for rows in trace.get("customdata") or []}


def metrics(at: AppTest) -> dict[str, str]:
    return {each.label: each.value for each in at.metric}


def links(at: AppTest) -> list[str]:
    return [each.proto.label for each in at.get("page_link")]


def test_an_empty_store_says_what_to_do(url: str) -> None:
    at = page()
    assert "No study yet" in texts(at)
    assert "tuner run" in texts(at)


def test_studies_are_listed_searched_and_filtered(store: Database) -> None:
    record(store, "gpt2-dev@121MiB", study="alpha", most=6)
    record(store, "gpt2-dev@121MiB", study="beta", most=4, finished=False)
    at = page()
    assert "2 studies" in texts(at)
    assert "6 trials" in texts(at)
    assert "AMD EPYC" in texts(at)
    at.text_input(key="q").set_value("ALP").run()
    assert "1 of 2 studies" in texts(at)
    at.text_input(key="q").set_value("").run()
    at.multiselect(key="status").set_value(["failed"]).run()
    assert "Empty the filters" in texts(at)


def test_filters_stand_in_the_address(store: Database) -> None:
    record(store, "gpt2-dev@121MiB", study="alpha", most=3)
    record(store, "gpt2-dev@121MiB", study="beta", most=3)
    at = page("studies", q="beta")
    assert "1 of 2 studies" in texts(at)


def test_many_studies_come_in_pages(store: Database) -> None:
    with store.transaction() as session:
        for at in range(45):
            studies.create_in(session, name=f"study {at:02}", spec={}, identity={})
    shown = page()
    assert "45 studies" in texts(shown)
    assert sum(label.startswith("**study") for label in links(shown)) == 20


def test_a_study_shows_its_answer_front_and_trials(alpha: Database) -> None:
    store, study = alpha, study_of(alpha)
    at = page("study", study="alpha")
    answer = data.answer(studies.get(store, study.id))
    winner = answer["best"]["number"]
    found = metrics(at)
    assert any(label == f"Winner: trial {winner}" for label in found)
    assert found["Speed-up"] == f"{answer['speedup_over_baseline']:.2f}x"
    front = figures(at)[0]
    assert drawn(front) == {each.number for each in trials.list_of(store, study.id)}
    assert {"front", "winner", "baseline", "out of memory"} <= {trace.get("name") for trace in front["data"]}
    assert "Baseline beside the best" in texts(at)
    assert "Why it won" in texts(at)


def test_the_front_is_seen_by_other_knobs_and_scales(alpha: Database) -> None:
    at = page("study", study="alpha")
    at.selectbox(key="colour").set_value("micro_batch_size").run()
    at.toggle(key="log").set_value(True).run()
    front = figures(at)[0]
    titles = {(trace.get("legendgrouptitle") or {}).get("text") for trace in front["data"]}
    assert "micro_batch_size" in titles
    assert front["layout"]["yaxis"]["type"] == "log"
    assert not at.exception


def test_selected_trials_of_a_shared_link_stand_side_by_side(alpha: Database) -> None:
    at = page("study", study="alpha", trials="2.5")
    assert "Side by side" in texts(at)
    assert {"Trial 2", "Trial 5"} <= set(links(at))
    columns = [list(frame.value.columns) for frame in at.dataframe]
    assert any({"trial 2", "trial 5"} <= set(names) for names in columns)
    assert "selected" in {trace.get("name") for trace in figures(at)[0]["data"]} or drawn(figures(at)[0])


def test_a_selection_can_be_cleared(alpha: Database) -> None:
    at = page("study", study="alpha", trials="2.5")
    at.button(key="clear").click().run()
    assert "trials" not in at.query_params
    assert "Side by side" not in texts(at)


@pytest.mark.parametrize("bad", ["x", "1.-2.9999999999999", "..", "1e5", "٣"])
def test_a_broken_selection_in_the_address_does_no_harm(alpha: Database, bad: str) -> None:
    assert not page("study", study="alpha", trials=bad).exception


def test_the_table_is_filtered_by_outcome_and_knob(alpha: Database) -> None:
    at = page("study", study="alpha")
    at.multiselect(key="outcome").set_value(["device_oom"]).run()
    table = next(frame.value for frame in at.dataframe if "trial" in frame.value.columns)
    assert set(table["outcome"]) == {"device oom: cap"}
    at.multiselect(key="outcome").set_value([]).run()
    at.selectbox(key="knob_precision").set_value("bf16-true").run()
    table = next(frame.value for frame in at.dataframe if "trial" in frame.value.columns)
    assert set(table["precision"]) == {"bf16-true"}


def test_a_trial_shows_configuration_time_memory_and_runs(alpha: Database) -> None:
    store, study = alpha, study_of(alpha)
    answer = data.answer(studies.get(store, study.id))
    at = page("trial", study="alpha", trial=str(answer["best"]["number"]))
    assert metrics(at)["Outcome"] == "completed"
    assert len(figures(at)) == 3
    assert any(each.label.startswith("confirm 1") for each in at.expander)
    knobs = next(frame.value for frame in at.dataframe if "knob" in frame.value.columns)
    assert "precision" in set(knobs["knob"])


def test_an_out_of_memory_trial_shows_its_evidence_and_log(alpha: Database) -> None:
    store, study = alpha, study_of(alpha)
    gone = next(each for each in trials.list_of(store, study.id) if each.outcome == "device_oom")
    at = page("trial", study="alpha", trial=str(gone.number))
    assert "can't allocate memory" in texts(at)
    assert any("RuntimeError: out of memory" in each.value for each in at.code)


@pytest.mark.parametrize("number", ["999", "x", "-1"])
def test_a_trial_that_is_not_there_is_said(alpha: Database, number: str) -> None:
    at = page("trial", study="alpha", trial=number)
    assert "no trial 999" in texts(at) or "Open a trial from its study" in texts(at)


def test_an_unknown_study_is_said_without_details(store: Database) -> None:
    at = page("study", study="nowhere")
    assert "not in the store" in texts(at)


def _open_run(store: Database, study: StudyRecord, **worker: Any) -> str:
    id = str(uuid.uuid4())
    workers.register(
        store, id=id, host="gpu-7", pid=1, device_kind="cuda", device_name="H200", total_memory_bytes=2**37, **worker
    )
    workers.attach(store, id, study.id)
    config = dict(trials.list_of(store, study.id)[0].config)
    trial = trials.reserve(
        store, study_id=study.id, config=config, config_key="k", source="auto", worker_id=id,
        predicted_peak_memory_bytes=60 * 2**20,
    )  # fmt: skip
    assert trial is not None
    runs.start(store, id=str(uuid.uuid4()), study_id=study.id, trial_id=trial.id, purpose="search", worker_id=id)
    return id


def test_a_live_study_shows_what_its_workers_run(store: Database) -> None:
    study = record(store, "gpt2-dev@121MiB", study="alpha", most=8, finished=False)
    _open_run(store, study)
    shown = texts(page("study", study="alpha"))
    assert "**Trial 8**: measuring" in shown
    assert "H200 on gpu-7" in shown
    assert "running" in {trace.get("name") for trace in figures(page("study", study="alpha"))[0]["data"]}


def test_a_run_in_progress_shows_phase_rate_memory_and_time(store: Database) -> None:
    study = record(store, "gpt2-dev@121MiB", study="alpha", most=8, finished=False)
    _open_run(store, study)
    assert "starting" in texts(page("study", study="alpha"))
    (run,) = runs.unfinished(store, study_id=study.id)
    seen = {"phase": "worst_case", "steps": 12, "units_per_second": 3420.0, "memory_bytes": 70 * 2**20}
    runs.note_progress(store, {run.id: seen})
    data._ongoing.clear()
    at = page("study", study="alpha")
    assert "worst case, step 12, 3.42k tokens/s" in texts(at)
    bars = {each.proto.text: each.proto.value for each in at.get("progress")}
    assert bars.get("memory 70 MiB of 0.12 GiB, predicted 60 MiB") == 57, bars
    assert any("s, about" in text and text.endswith("left") for text in bars), bars


def test_a_queued_study_without_a_worker_says_how_to_start_one(store: Database) -> None:
    from storage import queue

    made = record(store, "gpt2-dev@121MiB", study="template", most=3)
    queue.submit(store, name="waiting", spec=made.spec, identity=made.identity)
    shown = texts(page("study", study="waiting"))
    assert "none is alive" in shown
    assert "tuner worker" in shown


def test_where_nothing_fits_it_says_why(store: Database) -> None:
    study = record(store, "gpt2-dev", study="tight", most=5, finished=False)
    studies.set_facts(store, study.id, study.facts, memory_limit_bytes=2**20)
    studies.set_status(store, study.id, "finished", "nothing fits")
    shown = texts(page("study", study="tight"))
    assert "Nothing fits" in shown
    assert "smaller micro" in shown


def test_what_may_be_done_follows_the_status_and_deleting_asks(store: Database) -> None:
    record(store, "gpt2-dev@121MiB", study="alpha", most=3)
    at = page("study", study="alpha")
    from ui.parts.actions import BY_NAME, offered

    assert offered("finished") == ("Resume", "Delete")
    assert offered("running") == ("Pause", "Cancel")
    assert BY_NAME["Delete"].asks
    assert not at.exception
    BY_NAME["Delete"].act("alpha")
    assert studies.find(store, "alpha") is None


@pytest.mark.parametrize("name", ["studies", "study", "trial"])
def test_text_of_runs_and_people_is_never_markup(store: Database, name: str) -> None:
    """Names, causes, errors and logs: whatever they hold, it reaches the page escaped or as plain text."""
    study = record(store, "gpt2-dev@121MiB", study=BAD, most=6, finished=False)
    gone = trials.list_of(store, study.id)[1]
    with store.transaction() as session:
        session.execute(text("UPDATE tuner_trial SET cause = :bad, evidence = :json WHERE id = :id"),
                        {"bad": BAD, "json": json.dumps({"text": BAD, "advice": BAD}), "id": gone.id})  # fmt: skip
        session.execute(text("UPDATE tuner_run SET cause = :bad, evidence = :json WHERE trial_id = :id"),
                        {"bad": BAD, "json": json.dumps({"text": BAD, "log_tail": BAD}), "id": gone.id})  # fmt: skip
        session.execute(text("UPDATE tuner_study SET version = version + 1"))
    studies.set_status(store, study.id, "failed", BAD)
    at = page(name, study=BAD, trial=str(gone.number)) if name != "studies" else page()
    understood = [*at.title, *at.subheader, *at.markdown, *at.caption, *at.error, *at.warning, *at.info]
    labels = [*(each.label for each in at.expander), *links(at), *(each.label for each in at.metric)]
    values = [*(str(each.value) for each in understood), *labels, *(str(each.delta) for each in at.metric)]
    for value in values:
        assert "<script>" not in value
        assert "**bold**" not in value
        assert "](javascript" not in value
        assert ":material/delete:" not in value.replace(":material/delete: ", "") or "bold" not in value
    assert "<script>" not in json.dumps(figures(at))


def test_a_store_of_an_older_version_names_the_command(
    store: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.transaction() as session:
        session.execute(text("UPDATE tuner_schema_version SET version_num = '9999'"))
    at = page()
    assert "not those of this version" in texts(at)


def test_a_store_that_cannot_be_reached_says_so_without_a_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TUNER_DATABASE_URL", "postgresql://me:s3cret-word@127.0.0.1:1/none")
    shown = texts(page())
    assert "The store cannot be reached" in shown
    assert "s3cret-word" not in shown


def test_a_new_version_is_read_and_an_old_one_is_kept(store: Database) -> None:
    study = record(store, "gpt2-dev@121MiB", study="alpha", most=5, finished=False)
    first = data.points(study)
    assert data.points(study) is first
    trials.update_fields(store, first.ids[0], predicted_peak_memory_bytes=1)
    newer = studies.get(store, study.id)
    assert data.points(newer) is not first
    assert data.points(newer).predicted[0] == 1


def test_two_studies_of_one_version_are_not_mixed_up(store: Database) -> None:
    one = record(store, "gpt2-dev@121MiB", study="alpha", most=5, finished=False)
    other = record(store, "gpt2-dev", study="beta", most=5, finished=False)
    assert one.version == other.version
    assert data.points(one) is not data.points(other)
    assert figures(page("study", study="alpha"))[0] != figures(page("study", study="beta"))[0]


def test_a_large_study_is_answered_from_the_trials_that_matter(postgres_database: Database) -> None:
    """The same winner, speed-up and front as from all of them; bounded, on PostgreSQL."""
    study = grow(postgres_database, record(postgres_database, "gpt2-dev@155MiB", study="large"), 1400)
    whole = data._whole(postgres_database, study.id)
    few = data._that_matter(postgres_database, study.id)
    assert len(few[0]) <= data.MOST_MATTER < len(whole[0])
    from tuner import spec as specs
    from tuner.answer.summary import summarise

    spec = specs.from_mapping(study.spec)
    of_all, of_few = (summarise(study, *rows, spec) for rows in (whole, few))
    assert of_few["best"] == of_all["best"]
    assert of_few["speedup_over_baseline_interval"] == of_all["speedup_over_baseline_interval"]
    assert of_few["front"] == of_all["front"]
    assert of_few["knee"] == of_all["knee"]
