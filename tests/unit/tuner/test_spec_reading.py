"""A good spec becomes plain frozen data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.settings import Settings
from tuner.spec import MemoryLimit, StudySpec, difference, from_mapping, identity, read, to_mapping

GOOD = """
study: llama-1b-4k
objective:
  kind: causal_lm
  model: {config: {model_type: llama, hidden_size: 2048}}
  data: {path: "corpus/*.jsonl", tokenizer: ./tokenizer, sequence_length: 4096}
global_batch_size: 256
baseline: {micro_batch_size: 4, precision: bf16-mixed, activation_checkpointing: full}
search:
  micro_batch_size: {low: 1, high: 64}
  precision: [bf16-true, bf16-mixed]
  activation_checkpointing: [none, selective, full]
  compile: off
  loader_workers: [8, 0, 2, 4]
limits: {memory: 92%, trials: 40, time: 20m, trial_time: 120s, compile_time: 5m}
sampler: auto
"""
SETTINGS = Settings(data_dir=Path("/data"), cache_dir=Path("/cache"))


def spec(text: str = GOOD, **overrides: object) -> StudySpec:
    return read(text, overrides=overrides, settings=SETTINGS)


def test_the_documented_example_is_read() -> None:
    found = spec()
    assert found.study == "llama-1b-4k"
    assert found.objective.kind == "causal_lm"
    assert found.objective.settings["data"]["sequence_length"] == 4096
    assert found.baseline == {"micro_batch_size": 4, "precision": "bf16-mixed", "activation_checkpointing": "full"}
    assert found.limits.memory == MemoryLimit(share=0.92)
    assert (found.limits.time_seconds, found.limits.compile_time_seconds) == (1200.0, 300.0)


def test_off_stays_a_word_and_a_single_value_is_a_space_of_one() -> None:
    assert spec().search["compile"] == ("off",)
    assert spec("%YAML 1.1\n---" + GOOD).search["compile"] == ("off",)


def test_a_range_of_micro_batches_keeps_the_divisors_of_the_global_batch() -> None:
    assert spec().search["micro_batch_size"] == (1, 2, 4, 8, 16, 32, 64)
    assert spec(GOOD.replace("256", "96")).search["micro_batch_size"] == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def test_a_range_with_a_batch_in_tokens_keeps_powers_of_two_and_lists_stay() -> None:
    tokens = GOOD.replace("global_batch_size: 256", "global_batch_tokens: 1000000")
    assert spec(tokens).search["micro_batch_size"] == (1, 2, 4, 8, 16, 32, 64)
    assert spec(tokens.replace("{low: 1, high: 64}", "[3, 24]")).search["micro_batch_size"] == (3, 24)


def test_packed_batches_go_with_a_batch_in_tokens() -> None:
    tokens = GOOD.replace("global_batch_size: 256", "global_batch_tokens: 1000000\nseed: 3")
    found = spec(tokens.replace("compile: off", "batching: [packed, padded]"))
    assert found.search["batching"] == ("padded", "packed")


def test_a_range_of_another_integer_knob_holds_every_integer() -> None:
    assert spec(GOOD.replace("[8, 0, 2, 4]", "{low: 1, high: 3}")).search["loader_workers"] == (1, 2, 3)


@pytest.mark.case("G11")
def test_the_order_of_writing_means_nothing() -> None:
    head, objective, *rest = re.split(r"\n(?=objective|global|baseline|search|limits|sampler)", GOOD.strip())
    turned = "\n".join([*reversed(rest), objective, head])
    turned = turned.replace("[none, selective, full]", "[full, none, selective]").replace(
        "[8, 0, 2, 4]", "[0, 2, 4, 8]"
    )
    assert identity(spec(turned)) == identity(spec())
    assert list(spec(turned).search) == list(spec().search)
    assert difference(identity(spec()), identity(spec(turned))) == []


@pytest.mark.case("G11")
@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[bf16-true, bf16-mixed]", "[bf16-mixed]", "search.precision"),
        ("high: 64", "high: 32", "search.micro_batch_size"),
        ("micro_batch_size: 4,", "micro_batch_size: 8,", "baseline.micro_batch_size"),
        ("hidden_size: 2048", "hidden_size: 1024", "objective.settings.model.config.hidden_size"),
        ("sampler: auto", "seed: 7", "seed"),
        ("sampler: auto", "max_grad_norm: 0.5", "max_grad_norm"),
        ("sampler: auto", "environment: {OMP_NUM_THREADS: 2}", "environment.OMP_NUM_THREADS"),
        ("  compile: off\n", "", "search.compile"),
    ],
)
def test_an_edit_of_objective_space_or_baseline_is_another_study(old: str, new: str, key: str) -> None:
    lines = difference(identity(spec()), identity(spec(GOOD.replace(old, new))))
    assert [line.partition(":")[0] for line in lines] == [key]


@pytest.mark.case("B14")
def test_another_global_batch_is_another_study_and_the_difference_is_said() -> None:
    lines = difference(identity(spec()), identity(spec(GOOD.replace("256", "128"))))
    assert lines == ["global_batch_size: 256 in the store, 128 in the spec"]


@pytest.mark.case("G11")
def test_numbers_of_another_type_in_a_stored_space_are_another_space() -> None:
    old = identity(spec())
    stored = {**old, "search": {**old["search"], "micro_batch_size": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]}}
    assert len(difference(stored, old)) == 1


def test_limits_sampler_and_device_may_change_within_a_study() -> None:
    changed = GOOD.replace("trials: 40", "trials: 80").replace("sampler: auto", "sampler: tpe\ndevice: cpu")
    assert difference(identity(spec()), identity(spec(changed))) == []


def test_the_spec_survives_the_store() -> None:
    found = spec(GOOD.replace("memory: 92%", "memory: 40GiB") + "environment: {OMP_NUM_THREADS: 2}\n")
    stored = json.loads(json.dumps(to_mapping(found), allow_nan=False))
    assert from_mapping(stored) == found
    assert identity(from_mapping(stored)) == identity(found)
    assert json.loads(json.dumps(identity(found))) == identity(found)


def test_a_spec_stored_by_an_older_version_takes_the_defaults() -> None:
    stored = to_mapping(spec())
    del stored["device"], stored["limits"]["window_seconds"]
    assert from_mapping({**stored, "gone": 1}) == spec()


def test_overrides_replace_keys_and_none_replaces_nothing() -> None:
    found = spec(**{"limits.trials": 12, "limits.time": "4m", "sampler": "tpe", "limits.memory": None})
    assert (found.limits.trials, found.limits.time_seconds, found.sampler) == (12, 240.0, "tpe")
    assert found.limits.memory == MemoryLimit(share=0.92)


def test_a_wrong_override_has_no_line() -> None:
    with pytest.raises(SpecError) as caught:
        spec(**{"limits.time": "soon"})
    assert [(problem.where, problem.line) for problem in caught.value.problems] == [("limits.time", None)]


def test_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(GOOD)
    found = read(tmp_path / "study.yaml", settings=SETTINGS)
    assert found.objective.folder == str(tmp_path)
    assert read(str(tmp_path / "study.yaml"), settings=SETTINGS) == found
    assert spec().objective.folder == str(Path.cwd())


def test_a_mapping_is_a_spec_too() -> None:
    from ruamel.yaml import YAML

    assert read(YAML(typ="safe", pure=True).load(GOOD), settings=SETTINGS) == spec()


def test_an_own_objective_gets_its_settings_as_they_are_and_a_cache_of_its_own() -> None:
    objective = {"kind": "mine.model:Tiny", "settings": {"width": 8, "rates": [0.1, 1]}}
    base = {"study": "x", "global_batch_size": 4, "search": {"micro_batch_size": [1, 2]}}
    found = read({**base, "objective": objective}, settings=SETTINGS)
    other = read({**base, "objective": {**objective, "settings": {"width": 9}}}, settings=SETTINGS)
    assert (found.objective.kind, found.objective.settings) == ("mine.model:Tiny", objective["settings"])
    assert found.objective.cache != other.objective.cache
    assert found.objective.cache_path.is_relative_to("/cache")


def test_environment_values_are_text_in_alphabetical_order() -> None:
    found = spec(GOOD + "environment: {OMP_NUM_THREADS: 2, LD_PRELOAD: /usr/lib/libjemalloc.so}\n")
    assert list(found.environment.items()) == [("LD_PRELOAD", "/usr/lib/libjemalloc.so"), ("OMP_NUM_THREADS", "2")]


def test_allocator_settings_that_pytorch_reads_are_taken() -> None:
    found = spec(GOOD + 'environment: {PYTORCH_ALLOC_CONF: "garbage_collection_threshold:0.8"}\n')
    assert found.environment["PYTORCH_ALLOC_CONF"] == "garbage_collection_threshold:0.8"


def test_a_baseline_may_lie_outside_the_space() -> None:
    found = spec(GOOD.replace("micro_batch_size: 4, precision: bf16-mixed", "micro_batch_size: 128, precision: fp32"))
    assert found.baseline["micro_batch_size"] == 128


def test_an_empty_value_of_an_optional_key_counts_as_left_out() -> None:
    found = spec(GOOD.replace("sequence_length: 4096}", "sequence_length: 4096, text_field: text}\n  lora:"))
    assert "lora" not in found.objective.settings


@pytest.mark.case("G22")
@pytest.mark.parametrize("name", ["x", "ä" * 200, "a b/c:d", "日本"])
def test_names_of_1_to_200_printable_characters_are_taken(name: str) -> None:
    assert spec(GOOD.replace("llama-1b-4k", json.dumps(name, ensure_ascii=False))).study == name


def test_the_limit_never_exceeds_the_device() -> None:
    limits = spec(GOOD.replace("92%", "40GiB")).limits
    assert limits.memory.bytes_of(24 * 2**30) == 24 * 2**30
    assert replace(limits, memory=MemoryLimit(share=0.5)).memory.bytes_of(100) == 50


def test_every_example_is_a_spec() -> None:
    found = (Path(__file__).parents[3] / "examples").rglob("*.yaml")
    examples = sorted(path for path in found if path.parent.name != "container")  # an operator's list lies there
    assert examples
    for example in examples:
        assert read(example, settings=SETTINGS).search
