"""What a space holds, what it refuses with which reason, and how the global batch stays exact."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_fakes import FACTS, spec_of

from objectives.config import TrainingConfig, divisors
from objectives.knobs import config_key
from tuner.errors import SpecError
from tuner.search.baseline import baseline_config
from tuner.search.batch import TOKEN_TOLERANCE, GlobalBatch
from tuner.search.memory_order import learn_misfits
from tuner.search.prepared import Prepared
from tuner.search.space import Space, make_space
from tuner.work.preparation import require_possible_batch


def space_of(search, *, facts=FACTS, batch=None, **values) -> Space:
    spec = spec_of(search=search, **values)
    batch = batch or GlobalBatch(samples=spec.global_batch_size)
    return make_space(spec, facts, batch, baseline_config(spec, facts, batch).config.knobs())


def test_every_configuration_once_and_back_again():
    space = space_of({"micro_batch_size": (1, 2, 64), "precision": ("fp32", "bf16-mixed"), "loader_workers": (0, 2)})
    configs = list(space.configs())
    assert len(configs) == space.size == 12
    assert len({config_key(each) for each in configs}) == 12
    for each in configs:
        assert each in space
        assert space.config(space.params(each)) == each
        assert each.micro_batch_size * each.accumulation_steps == 64


def test_knobs_that_do_not_act_do_not_multiply():
    space = space_of({"loader_workers": (0, 2), "prefetch_factor": (2, 4, 8)})
    assert space.combinations == 6
    assert space.size == 4


def test_what_is_not_searched_stays_as_the_baseline_has_it():
    space = space_of({"micro_batch_size": (1, 2)}, baseline={"precision": "bf16-mixed", "micro_batch_size": 8})
    assert {each.precision for each in space.configs()} == {"bf16-mixed"}
    assert {each.micro_batch_size for each in space.configs()} == {1, 2}


def test_the_machines_refusals_are_kept_with_their_reason():
    facts = replace(FACTS, unsupported={"attention=flash_attention_2": "it failed on a tiny step"})
    space = space_of({"attention": ("sdpa", "flash_attention_2")}, facts=facts)
    assert space.values["attention"] == ("sdpa",)
    assert space.refused["attention=flash_attention_2"]
    none_left = space_of({"attention": ("flash_attention_2",)}, facts=facts)
    assert none_left.values["attention"] == ("sdpa",)


def test_a_refused_baseline_says_why_and_the_space_goes_on():
    facts = replace(FACTS, unsupported={"precision=bf16-mixed": "no bf16 here"})
    spec = spec_of(baseline={"precision": "bf16-mixed"}, search={"micro_batch_size": (1, 2)})
    batch = GlobalBatch(samples=64)
    baseline = baseline_config(spec, facts, batch)
    assert baseline.refused is not None
    assert "no bf16 here" in baseline.refused
    space = make_space(spec, facts, batch, baseline.config.knobs())
    assert {each.precision for each in space.configs()} == {"fp32"}
    assert "no bf16 here" in space.refused["precision=bf16-mixed"]


def test_a_baseline_without_knobs_takes_the_defaults():
    baseline = baseline_config(spec_of(), FACTS, GlobalBatch(samples=64))
    assert baseline.refused is None
    assert baseline.config == TrainingConfig(accumulation_steps=64)


def test_sizes_that_do_not_divide_are_refused():
    space = space_of({"micro_batch_size": (3, 4, 48, 64)})
    assert space.values["micro_batch_size"] == (4, 64)
    assert "does not divide" in space.refused["micro_batch_size=3"]
    baseline = baseline_config(spec_of(baseline={"micro_batch_size": 5}), FACTS, GlobalBatch(samples=64))
    assert baseline.refused is not None


@given(st.integers(1, 512), st.integers(1, 8), st.lists(st.integers(1, 600), min_size=1, max_size=8, unique=True))
def test_the_global_batch_is_exact_in_every_configuration(samples, ranks, sizes):
    batch = GlobalBatch(samples=samples * ranks, ranks=ranks)
    space = space_of({"micro_batch_size": tuple(sizes)}, batch=batch)
    for each in space.configs():
        if each.micro_batch_size in space.values["micro_batch_size"] and each.micro_batch_size in divisors(samples):
            assert each.micro_batch_size * each.accumulation_steps * ranks == samples * ranks


def test_tokens_are_met_within_one_percent_or_refused_by_batching():
    batch = GlobalBatch(tokens=100_000, tokens_per_row={"padded": 300.0, "packed": 4000.0})
    facts = replace(FACTS, packable=True)
    search = {"micro_batch_size": (1, 2, 4, 8, 16, 64), "batching": ("padded", "packed")}
    space = space_of(search, facts=facts, batch=batch, global_batch_size=None, global_batch_tokens=100_000)
    made = list(space.configs())
    assert made
    for each in made:
        tokens = each.micro_batch_size * each.accumulation_steps * batch.tokens_per_row[each.batching]
        assert abs(tokens / 100_000 - 1) <= TOKEN_TOLERANCE
    assert "asked for" in space.refused["micro_batch_size=64 batching=packed"]
    assert 64 not in space.values["micro_batch_size"] or "micro_batch_size=64 batching=padded" not in space.refused


@given(
    st.integers(1_000, 200_000), st.integers(1, 64), st.floats(20, 4000), st.integers(1, 4),
    st.sampled_from(["padded", "packed"]),
)  # fmt: skip
def test_a_size_that_tokens_cannot_meet_names_near_ones_that_can(tokens, size, per_row, ranks, batching):
    batch = GlobalBatch(tokens=tokens, tokens_per_row={batching: per_row}, ranks=ranks)
    try:
        batch.accumulation(micro_batch_size=size, batching=batching)
    except ValueError as error:
        tokens_named, _, sizes_named = str(error).partition("Use a global_batch_tokens of ")[2].partition(", or a ")
        assert tokens_named
        for near in map(int, re.findall(r"\d+", tokens_named)):
            replace(batch, tokens=near).accumulation(micro_batch_size=size, batching=batching)
        for near in map(int, re.findall(r"\d+", sizes_named)):
            batch.accumulation(micro_batch_size=near, batching=batching)


def test_data_too_small_for_the_tokens_is_found_before_a_run():
    data = {"rows": 300, "packed_rows": 20, "mean_tokens_per_row": {"padded": 100.0, "packed": 1500.0}}
    enough, much = (GlobalBatch.of(samples=None, tokens=tokens, data=data) for tokens in (30_000, 60_000))
    assert enough.accumulation(micro_batch_size=1, batching="packed") == 20
    for batching in ("padded", "packed"):
        with pytest.raises(ValueError, match="no optimizer step would ever be made"):
            much.accumulation(micro_batch_size=1, batching=batching)
    unknown = GlobalBatch.of(samples=None, tokens=60_000, data={"mean_tokens_per_row": {"padded": 100.0}})
    assert unknown.accumulation(micro_batch_size=1) == 600


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (60_000, "no optimizer step"),
        (1_010, "Use a global_batch_tokens of 800 or 1600, or a micro_batch_size of 5 or 10"),
    ],
)
def test_a_batch_in_tokens_that_nothing_can_make_is_refused_in_preparation(tokens, said):
    data = {"rows": 300, "packed_rows": 20, "mean_tokens_per_row": {"padded": 100.0, "length-grouped": 100.0}}
    prepared = Prepared(facts=FACTS, data=data)
    search = {"micro_batch_size": (8, 16)}
    spec = spec_of(global_batch_size=None, global_batch_tokens=tokens, search=search, baseline={"micro_batch_size": 8})
    with pytest.raises(SpecError, match=said) as caught:
        require_possible_batch(spec, prepared)
    assert caught.value.problems[0].where == "global_batch_tokens"
    possible = spec_of(global_batch_size=None, global_batch_tokens=1600, search=search)
    require_possible_batch(possible, prepared)


def test_unknown_row_lengths_are_a_reason_not_a_guess():
    with pytest.raises(ValueError, match="not known"):
        GlobalBatch(tokens=1000).accumulation(micro_batch_size=1, batching="packed")


@pytest.mark.case("B10")
def test_accumulation_is_not_memory_neutral():
    from search_fakes import trial_of

    small = TrainingConfig(micro_batch_size=16, accumulation_steps=4)
    misfits = learn_misfits([trial_of(0, small, outcome="device_oom", confidence="certain")], None)
    assert misfits.refuses(TrainingConfig(micro_batch_size=32, accumulation_steps=2))
    assert not misfits.refuses(TrainingConfig(micro_batch_size=64, accumulation_steps=1))
    assert not misfits.refuses(TrainingConfig(micro_batch_size=8, accumulation_steps=8))
    assert not misfits.refuses(small.with_values(precision="bf16-mixed"))
    assert misfits.refuses(small.with_values(loader_workers=4))


def test_only_what_is_certain_refuses_others():
    from search_fakes import trial_of

    config = TrainingConfig(micro_batch_size=4, accumulation_steps=4)
    larger = TrainingConfig(micro_batch_size=8, accumulation_steps=2)
    probable = learn_misfits([trial_of(0, config, outcome="device_oom", confidence="probable")], 100)
    assert not probable.refuses(larger)
    over = learn_misfits([trial_of(0, config, peak_memory_bytes=101)], 100)
    assert over.refuses(larger)
    crashed = learn_misfits([trial_of(0, config, outcome="crashed", confidence="certain")], 100)
    assert not crashed.refuses(larger)
