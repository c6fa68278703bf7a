"""The pages that start, hand over and look after: driven through the entry script on a real embedded store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import record
from screens import button, control, embedded, page, texts
from streamlit.testing.v1 import AppTest

from storage import studies, trial_table, workers
from storage.database import Database
from tuner.export import FORMATS
from ui.forms.draft import EDITOR
from ui.parts.new_study import START


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with embedded(tmp_path, monkeypatch) as database:
        yield database


def spec(at: AppTest) -> str:
    return str(control(at, EDITOR).value)


def test_the_form_writes_the_yaml_and_the_yaml_fills_the_form(store: Database) -> None:
    at = page("new_study")
    assert spec(at) == START
    control(at, "form.search.precision").set_value(["bf16-true"]).run()
    assert "precision: [bf16-true]" in spec(at)
    assert "# What you would have used: trial 0." in spec(at)
    control(at, EDITOR).set_value(spec(at).replace("study: my-study", "study: typed")).run()
    assert control(at, "form.study").value == "typed"
    assert control(at, "form.search.precision").value == ["bf16-true"]
    assert not button(at, "Submit").disabled


def test_another_objective_takes_its_own_keys_along(store: Database) -> None:
    at = page("new_study")
    control(at, "form.objective.kind").set_value("image_classifier").run()
    assert "kind: image_classifier" in spec(at)
    assert "objective.data.sequence_length" in texts(at)  # the data is another one: its own problems are told
    assert "objective.kind" not in texts(at)


def test_problems_are_told_in_the_specs_own_words_with_line_and_way_out(store: Database) -> None:
    at = page("new_study")
    control(at, "form.search.micro_batch_size").set_value("3").run()
    assert "line" in texts(at)
    assert "search.micro_batch_size" in texts(at)
    assert button(at, "Submit").disabled
    control(at, EDITOR).set_value("study: [").run()
    assert "this is not YAML" in texts(at)
    assert "The YAML cannot be read" in texts(at)
    control(at, EDITOR).set_value(START).run()
    assert "This can be run." in texts(at)


def test_a_submitted_study_waits_for_a_worker_and_its_page_opens(store: Database) -> None:
    at = page("new_study")
    assert "No worker is alive" in texts(at)
    control(at, "form.study").set_value("by form").run()
    button(at, "Submit").click().run()
    found = studies.find(store, "by form")
    assert found is not None
    assert (found.status, found.submitted_at is not None) == ("queued", True)
    assert at.query_params["study"] in ("by form", ["by form"])


def test_a_name_that_means_another_study_is_refused_on_the_page(store: Database) -> None:
    at = page("new_study")
    button(at, "Submit").click().run()
    again = page("new_study")
    control(again, "form.global_batch_size").set_value("16").run()
    button(again, "Submit").click().run()
    said = "\n".join(str(each.value) for each in again.code)
    assert "another study" in said
    assert "global_batch_size" in said


def test_a_new_study_starts_from_a_past_one(store: Database) -> None:
    record(store, "llama-dev", study="old", most=12)
    at = page("new_study")
    at.selectbox(key="past").set_value("old").run()
    assert "study: old-2" in spec(at)
    assert control(at, "form.study").value == "old-2"
    assert "Configurations" in [each.label for each in at.metric]
    names = {each.label: each.value for each in at.metric}
    assert not str(names["Configurations"]).startswith("up to")  # the past study knows what can run


@pytest.fixture
def measured(store: Database) -> str:
    return record(store, "llama-dev", study="measured", most=40).name


def test_every_format_is_shown_with_copy_download_and_what_it_lacks(measured: str) -> None:
    for name in (each.name for each in FORMATS):
        at = page("export", study=measured, to=name)
        assert len(at.code) >= 1, name
        assert len(at.get("download_button")) >= 2, name
        whole = "The files carry every knob." in texts(at)
        assert whole or "Not in the files" in [each.value for each in at.subheader], name


def test_picks_and_the_memory_slider_change_the_trial(store: Database, measured: str) -> None:
    at = page("export", study=measured)
    fastest = texts(at)
    found = studies.find(store, measured)
    assert found is not None
    least = min(each.peak_memory_bytes or 0 for each in trial_table.front(store, found.id))
    labels = at.select_slider(key="memory").options
    assert len(set(labels)) == len(labels)
    at.select_slider(key="memory").set_value(least).run()
    assert not at.exception
    assert texts(at) != fastest
    smallest = page("export", study=measured, pick="smallest")
    assert "smallest" in texts(smallest)


def test_ranks_that_cannot_keep_the_batch_are_refused_with_those_that_can(measured: str) -> None:
    at = page("export", study=measured)
    at.number_input(key="ranks").set_value(7).run()
    assert not at.exception
    assert any("7" in str(each.value) for each in at.warning)


def test_the_seven_mistakes_are_told_with_evidence_and_way_out(measured: str) -> None:
    at = page("advice", study=measured)
    assert [each.label.partition(".")[0] for each in at.expander] == list("1234567")
    assert "To measure it:" in texts(at)
    assert any("figure" in each.value.columns for each in at.dataframe)


def test_an_export_of_nothing_says_why(store: Database) -> None:
    assert "No study yet" in texts(page("export"))
    studies.create(store, name="empty", spec=_stored(), identity={})
    assert "nothing to export" in texts(page("export", study="empty"))


def _stored() -> dict[str, Any]:
    from tuner import spec as specs

    return specs.to_mapping(specs.read(START, has_gpu=lambda: False))


def test_workers_are_shown_with_what_is_wrong_and_can_be_released(store: Database) -> None:
    assert "No worker is alive" in texts(page("workers"))
    ids = [str(uuid.uuid4()) for _ in range(2)]
    for number, id in enumerate(ids):
        workers.register(
            store, id=id, host="lab", pid=10 + number, device_kind="cuda", device_name="NVIDIA H200",
            device_uuid=f"GPU-{number}", total_memory_bytes=150 * 2**30, threads=8, lease_seconds=60, facts={},
        )  # fmt: skip
    workers.quarantine(store, ids[0], "three runs in a row ended as infra")
    at = page("workers")
    assert "2 workers" in texts(at)
    assert "three runs in a row ended as infra" in texts(at)
    assert "GPU\\-0" in texts(at) or "GPU-0" in texts(at)
    button(at, "Put back into service").click().run()
    assert workers.get(store, ids[0]).status == "idle"
    workers.retire(store, ids[1], reason="drained")
    gone = page("workers", ended="true")
    assert "drained" in texts(gone)
