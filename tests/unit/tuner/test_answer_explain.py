"""Why the winner won: the way through measured trials, what each change brought, and what a model has to split."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_fakes import CAPACITY, GIB, START, FakeStudy, fixture_1, limits_of, run_of, spec_of, trial_of

from objectives.config import TrainingConfig
from storage.records import StudyRecord
from tuner.answer.explain import Step, explain, explanation
from tuner.answer.shares import DRAWN_ORDERS, EXACT_ORDERS, shares
from tuner.answer.steps import Place, changed, way
from tuner.answer.summary import StudyView
from tuner.documents import STEP, missing
from tuner.search.noise import Comparison, comparison

SPEED = {"precision": math.log(1.6), "activation_checkpointing": math.log(0.75), "optimizer": math.log(1.1)}


def config_of(**knobs) -> TrainingConfig:
    made = TrainingConfig(**{"micro_batch_size": 4, **knobs})
    return made.with_values(accumulation_steps=64 // made.micro_batch_size)


def level(config: TrainingConfig) -> float:
    """Multiplicative knobs over a floor plus slope."""
    size = config.micro_batch_size
    start = TrainingConfig().knobs()
    return math.log(size / (0.02 + 0.004 * size)) + sum(
        worth for name, worth in SPEED.items() if config.knobs()[name] != start[name]
    )


def place(number: int, **knobs) -> Place:
    config = config_of(**knobs)
    peak = GIB * config.micro_batch_size // (4 if config.precision != "fp32" else 2)
    return Place(
        trial_id=number + 1,
        number=number,
        config=config,
        log_throughput=level(config),
        standard_error=0.01,
        peak_memory_bytes=peak,
    )


def compared(before: Place, after: Place) -> Comparison:
    return comparison(after.log_throughput - before.log_throughput, 0.014, 10)


@dataclass(frozen=True)
class Knowing:
    """A model that knows the world, up to a factor for configurations of several changes."""

    off: float = 0.0

    def predict(self, config: TrainingConfig) -> tuple[float, float]:
        return level(config) + self.off, 0.02


def product(steps: list[Step]) -> float:
    return prod(step.gain for step in steps)


def test_every_knob_is_measured_where_trials_stand_between() -> None:
    start, end = place(0), place(9, precision="bf16-mixed", optimizer="adamw-fused")
    steps = explain(start, end, [place(3, precision="bf16-mixed")], compared=compared)
    assert [(list(step.knobs), step.source, step.trials) for step in steps] == [
        (["precision"], "measured", (0, 3)),
        (["optimizer"], "measured", (3, 9)),
    ]
    assert [step.gain for step in steps] == pytest.approx([1.6, 1.1])
    assert steps[0].low < 1.6 < steps[0].high
    assert [step.memory_bytes for step in steps] == [-GIB, 0]
    assert product(steps) == pytest.approx(math.exp(end.log_throughput - start.log_throughput))


def test_the_way_with_most_measured_steps_is_taken_and_not_the_shortest() -> None:
    start = place(0)
    end = place(9, precision="bf16-mixed", optimizer="adamw-fused", micro_batch_size=16)
    others = [
        place(2, precision="bf16-mixed", optimizer="adamw-fused"),  # two knobs at once
        place(3, micro_batch_size=8),
        place(4, micro_batch_size=8, precision="bf16-mixed"),
        place(5, micro_batch_size=8, precision="bf16-mixed", optimizer="adamw-fused"),
    ]
    steps = explain(start, end, others, compared=compared)
    assert {step.source for step in steps} == {"measured"}
    assert [step.trials for step in steps] == [(0, 3), (3, 4), (4, 5), (5, 9)]
    assert [step.knobs.get("micro_batch_size") for step in steps] == [(4, 8), None, None, (8, 16)]


def test_as_little_of_the_way_as_possible_is_left_unmeasured() -> None:
    start, end = place(0), place(9, precision="bf16-mixed", micro_batch_size=32)
    near, far = (
        place(3, precision="bf16-mixed", micro_batch_size=8),
        place(4, precision="bf16-mixed", micro_batch_size=16),
    )
    steps = explain(start, end, [far, near], compared=compared)
    assert [(step.source, step.trials) for step in steps] == [("together", (0, 3)), ("measured", (3, 9))]


def test_trials_that_are_not_on_the_way_are_no_stops() -> None:
    start, end = place(0), place(9, precision="bf16-mixed", micro_batch_size=16)
    aside = [
        place(1, micro_batch_size=32, precision="bf16-mixed"),  # beyond the winner
        place(2, precision="bf16-true"),  # neither end's value
        place(3, precision="bf16-mixed", optimizer="adamw-fused"),  # a knob that the winner leaves alone
    ]
    assert way(start, end, aside) == [start, end]


def test_without_a_model_what_was_changed_together_is_told_together() -> None:
    steps = explain(place(0), place(9, precision="bf16-mixed", optimizer="adamw-fused"), [], compared=compared)
    assert [(sorted(step.knobs), step.source) for step in steps] == [(["optimizer", "precision"], "together")]
    assert steps[0].gain == pytest.approx(1.76)


@pytest.mark.parametrize("off", [0.0, 0.3])
def test_a_model_splits_what_was_changed_together_and_the_measured_total_stays(off: float) -> None:
    start, end = place(0), place(9, precision="bf16-mixed", optimizer="adamw-fused", activation_checkpointing="full")
    steps = explain(
        start, end, [place(1, precision="bf16-mixed")], compared=compared, models=lambda _configs: Knowing(off)
    )
    assert [step.source for step in steps] == ["measured", "modelled", "modelled"]
    assert {name: step.gain for step in steps for name in step.knobs} == pytest.approx(
        {"precision": 1.6, "optimizer": 1.1, "activation_checkpointing": 0.75}
    )
    assert all(step.trials == (1, 9) and step.low < step.gain < step.high for step in steps[1:])
    assert product(steps) == pytest.approx(math.exp(end.log_throughput - start.log_throughput))


def test_the_memory_of_a_split_is_told_only_where_every_peak_on_the_way_is_predicted() -> None:
    start, end = place(0), place(9, precision="bf16-mixed", micro_batch_size=8)
    predicted = {(8, "fp32"): 4 * GIB, (4, "bf16-mixed"): GIB, (4, "fp32"): 2 * GIB, (8, "bf16-mixed"): 2 * GIB}
    split = explain(
        start, end, [], compared=compared, models=lambda _configs: Knowing(),
        peaks=lambda config: predicted[config.micro_batch_size, config.precision],
    )  # fmt: skip
    assert sum(step.memory_bytes or 0 for step in split) == 0
    sizes = {name: step.memory_bytes for step in split for name in step.knobs}
    assert sizes == {"micro_batch_size": int(1.5 * GIB), "precision": -int(1.5 * GIB)}
    unknown = explain(start, end, [], compared=compared, models=lambda _configs: Knowing())
    assert [step.memory_bytes for step in unknown] == [None, None]


def test_the_baseline_needs_no_step_to_itself() -> None:
    assert explain(place(0), place(0), [place(1, precision="bf16-mixed")], compared=compared) == []


VALUES = {
    "micro_batch_size": (1, 2, 4, 8, 16),
    "precision": ("fp32", "bf16-mixed"),
    "activation_checkpointing": ("none", "full"),
    "optimizer": ("adamw", "adamw-fused"),
}
configs = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})


@settings(max_examples=100, deadline=None)
@given(configs, configs, st.lists(configs, max_size=12), st.booleans())
def test_from_any_trials_the_gains_multiply_and_every_knob_arrives(start, end, others, modelled) -> None:
    begin, finish = place(0, **start), place(1, **end)
    between = [place(number, **knobs) for number, knobs in enumerate(others, start=2)]
    steps = explain(
        begin, finish, between, compared=compared, models=lambda _configs: Knowing(0.1) if modelled else None
    )
    assert product(steps) == pytest.approx(math.exp(finish.log_throughput - begin.log_throughput))
    arrived = begin.config.knobs()
    for step in steps:
        for name, (before, after) in step.knobs.items():
            assert arrived[name] == before
            arrived[name] = after
    assert arrived == finish.config.knobs()
    assert all(len(step.knobs) == 1 for step in steps if modelled or step.source == "measured")
    assert all(step.source == "together" or len(step.knobs) == 1 for step in steps)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, EXACT_ORDERS + 2), st.floats(-2, 2), st.randoms(use_true_random=False))
def test_shares_add_up_and_equals_get_equal_parts(count: int, total: float, chance) -> None:
    names = [f"knob{index}" for index in range(count)]
    worths = {frozenset(names[:size]): chance.uniform(-1, 1) for size in range(count + 1)}
    asked: list[frozenset[str]] = []

    def worth(changed: frozenset[str]) -> float:
        asked.append(changed)
        return worths.get(changed, float(len(changed)))

    assert sum(shares(names, worth, total).values()) == pytest.approx(total, abs=1e-9)
    assert len(asked) == len(set(asked)) <= max(2**count, DRAWN_ORDERS * count)
    assert list(shares(names, len, total).values()) == pytest.approx([total / count] * count)


def test_a_whole_study_explains_itself() -> None:
    study = FakeStudy(spec=spec_of(**CAPACITY, limits=limits_of(trials=30)), model=fixture_1(noise=0.02))
    study.search()
    study.confirm()
    summary = study.summary()
    steps = summary["explanation"]
    assert steps
    assert all(missing(step, STEP) == [] for step in steps)
    assert prod(step["gain"] for step in steps) == pytest.approx(summary["speedup_over_baseline"])
    assert summary["speedup_over_baseline"] == pytest.approx(
        summary["best"]["throughput"] / summary["baseline"]["throughput"]
    )
    measured = [step for step in steps if step["source"] == "measured"]
    assert all(step["memory_bytes"] is not None for step in measured)
    if len(measured) == len(steps):
        moved = sum(step["memory_bytes"] for step in steps)
        assert moved == summary["best"]["peak_memory_bytes"] - summary["baseline"]["peak_memory_bytes"]
    assert len(measured) >= len(steps) - 2
    precision = next(step for step in steps if step["knobs"][0]["knob"] == "precision")
    assert precision["gain"] == pytest.approx(1.6, rel=0.1)
    json.dumps(summary, allow_nan=False)


def test_a_studys_own_model_splits_what_it_never_tried_apart() -> None:
    """Four corners of other knobs' changes teach it: precision alone beside two micro-batches, and the reverse."""
    configs = [
        config_of(), config_of(optimizer="adamw-fused"), config_of(precision="bf16-mixed", optimizer="adamw-fused"),
        config_of(micro_batch_size=2), config_of(micro_batch_size=8), config_of(precision="bf16-mixed", loss="chunked"),
        config_of(loss="chunked"), config_of(precision="bf16-mixed", micro_batch_size=16, optimizer="adamw-fused"),
    ]  # fmt: skip
    trials = [
        trial_of(number, config, throughput=math.exp(level(config)), windows=1, seconds=10.0)
        for number, config in enumerate(configs)
    ]
    runs = [run_of(trial.id, trial.throughput, 10.0 * trial.number) for trial in trials]
    runs += [
        run_of(trial.id, trial.throughput, 1000.0 + 20 * turn + trial.id, "confirm")
        for turn in range(2)
        for trial in (trials[0], trials[-1])
    ]
    study = StudyRecord(
        id=1, name="s", status="finished", spec={}, identity={}, created_at=START, memory_limit_bytes=2 * GIB
    )
    without = [trial for trial in trials if trial.number not in (2,)]
    steps = explanation(StudyView(study=study, trials=without, runs=runs, spec=spec_of()))
    assert steps is not None
    assert product(steps) == pytest.approx(math.exp(level(configs[-1]) - level(configs[0])))
    assert [step.source for step in steps] == ["measured", "modelled", "modelled"]
    gains = {name: step.gain for step in steps for name in step.knobs}
    assert gains["precision"] == pytest.approx(1.6, rel=0.15)
    assert all(step.low < step.gain < step.high for step in steps)


def test_accumulation_is_no_change_of_its_own() -> None:
    assert set(changed(config_of(), config_of(micro_batch_size=8))) == {"micro_batch_size"}
