"""The contract every sampler passes: inside the space, never twice, never a certain misfit, exhausted in the end."""

from __future__ import annotations

import subprocess
import sys
import warnings
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from objectives.knobs.knob import Facts
from storage.records import TrialRecord
from tuner.search.batch import GlobalBatch
from tuner.search.memory_order import learn_misfits
from tuner.search.samplers import SAMPLERS, Exhausted, SearchTask, make_proposer
from tuner.search.space import Space

LIMIT = 10**9
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = {
    "micro_batch_size": (1, 2, 4, 8, 16),
    "precision": ("fp32", "bf16-mixed"),
    "activation_checkpointing": ("none", "full"),
}
SPACE = Space(
    values=VALUES,
    fixed={},
    batch=GlobalBatch(samples=16),
    facts=Facts(workload_methods=frozenset({"checkpoint_blocks"})),
)
ALL = list(SPACE.configs())
OUTCOMES = (
    "completed", "completed", "pruned", "device_oom", "numerical", "unsupported", "timeout", "host_oom", "shm",
    "crashed", "infra", "cancelled",
)  # fmt: skip
QUICK = [each for each in SAMPLERS if each.name != "gp"]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: each.name)
quick_sampler = pytest.mark.parametrize("sampler", QUICK, ids=lambda each: each.name)


def row(number: int, config: TrainingConfig, outcome: str | None, throughput: float = 100.0, **values) -> TrialRecord:
    measured = outcome in ("completed", "pruned")
    made = {
        "throughput": throughput if measured else None,
        "peak_memory_bytes": 10**7 * config.micro_batch_size if measured else None,
        "confidence": "certain",
        **values,
    }
    return TrialRecord(
        id=number + 1, study_id=1, number=number, config=config.to_mapping(), config_key=config_key(config),
        source="x", outcome=outcome, created_at=NOW, **made,
    )  # fmt: skip


def task_of(space: Space = SPACE, seed: int = 0) -> SearchTask:
    return SearchTask(space=space, seed=seed, limit_bytes=LIMIT)


def _ends_by_itself(sampler, proposed) -> bool:
    """Whether a sampler that knows what a run may bring has said that none is worth it; the others go on."""
    return sampler.name == "auto" and isinstance(proposed, Exhausted) and proposed.kind == "nothing_to_gain"


def test_names_are_unique_and_have_words():
    assert len({each.name for each in SAMPLERS}) == len(SAMPLERS)
    assert {each.name for each in SAMPLERS} >= {"auto", "tpe", "gp", "nsga2", "random", "grid"}
    assert all(each.summary and "\n" not in each.summary for each in SAMPLERS)


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(ValueError, match="auto, tpe"):
        make_proposer("annealing", task_of())


@every_sampler
def test_it_walks_the_space_without_repetition_and_ends(sampler):
    proposer, history = sampler.build(task_of()), [row(0, ALL[0], "completed")]
    for number in range(1, len(ALL)):
        proposed = proposer.propose(history, [])
        if _ends_by_itself(sampler, proposed):
            return
        assert isinstance(proposed, TrainingConfig)
        assert proposed in SPACE
        history.append(row(number, proposed, "completed", throughput=50.0 + number % 7))
        if sampler.name == "gp" and number > 6:
            return
    assert len({each.config_key for each in history}) == len(ALL)
    ended = proposer.propose(history, [])
    assert isinstance(ended, Exhausted)
    assert "every configuration" in ended.reason


@every_sampler
def test_same_rows_same_seed_same_proposal(sampler):
    history = [row(number, config, "completed", 50.0 + number) for number, config in enumerate(ALL[:9])]
    first, second = (sampler.build(task_of(seed=3)).propose(history, []) for _ in range(2))
    assert first == second


@every_sampler
def test_mixed_outcomes_and_running_trials_never_break_it(sampler):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = [each for each in OUTCOMES if each != "cancelled"]
        history = [row(n, config, outcomes[n % len(outcomes)]) for n, config in enumerate(ALL[:14])]
        running = [row(14, ALL[14], None), row(15, ALL[15], None)]
        proposed = sampler.build(task_of()).propose(history, running)
    if _ends_by_itself(sampler, proposed):
        return
    assert isinstance(proposed, TrainingConfig)
    assert config_key(proposed) not in {each.config_key for each in (*history, *running)}


@quick_sampler
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_is_survived(sampler, data):
    chosen = data.draw(st.lists(st.sampled_from(range(len(ALL))), unique=True, max_size=len(ALL)))
    history, running = [], []
    for number, index in enumerate(chosen):
        outcome = data.draw(st.sampled_from((*OUTCOMES, None)))
        speed = data.draw(st.floats(0.0, 1e6, allow_nan=False))
        (running if outcome is None else history).append(row(number, ALL[index], outcome, speed))
    proposed = sampler.build(task_of()).propose(history, running)
    seen = {each.config_key for each in (*history, *running) if each.outcome != "cancelled"}
    if _ends_by_itself(sampler, proposed):
        return
    if isinstance(proposed, Exhausted):
        free = [each for each in ALL if config_key(each) not in seen]
        misfits = learn_misfits(history, LIMIT)
        assert all(misfits.refuses(each) for each in free)
        return
    assert proposed in SPACE
    assert 16 % proposed.micro_batch_size == 0
    assert proposed.micro_batch_size * proposed.accumulation_steps == 16
    assert config_key(proposed) not in seen
    if sampler.name != "grid":
        assert not learn_misfits(history, LIMIT).refuses(proposed)


@pytest.mark.case("G15")
@quick_sampler
def test_what_certainly_does_not_fit_is_not_launched_again(sampler):
    if sampler.name == "grid":
        return  # complete tables run their misfits, too
    proposer, history = sampler.build(task_of()), [row(0, ALL[0], "completed")]
    while not isinstance(proposed := proposer.propose(history, []), Exhausted):
        fits = proposed.micro_batch_size <= 2
        history.append(row(len(history), proposed, "completed" if fits else "device_oom"))
    misfits = [each for each in history if each.outcome == "device_oom"]
    # 4 and 8 accumulate, 16 does not: at most each of the three sizes once per family
    assert len(misfits) <= 4 * 3
    families = {}
    for each in misfits:
        family = (each.config["precision"], each.config["activation_checkpointing"])
        size = each.config["micro_batch_size"]
        smaller = [other for other in families.get(family, []) if other <= size and size < 16]
        assert not smaller
        families.setdefault(family, []).append(size)


@quick_sampler
def test_one_configuration_left_and_one_configuration_at_all(sampler):
    history = [row(number, config, "completed") for number, config in enumerate(ALL[:-1])]
    last = sampler.build(task_of()).propose(history, [])
    assert last == ALL[-1] or _ends_by_itself(sampler, last)
    single = Space(values={"precision": ("fp32",)}, fixed={}, batch=GlobalBatch(samples=4))
    only = next(single.configs())
    assert sampler.build(task_of(single)).propose([], []) == only
    assert isinstance(sampler.build(task_of(single)).propose([row(0, only, "completed")], []), Exhausted)


@quick_sampler
def test_a_baseline_outside_the_space_does_not_disturb(sampler):
    outside = TrainingConfig(micro_batch_size=3, precision="bf16-true", accumulation_steps=5)
    proposed = sampler.build(task_of()).propose([row(0, outside, "completed")], [])
    assert proposed in SPACE


@quick_sampler
def test_a_large_space_is_not_enumerated_first(sampler):
    values = {
        "micro_batch_size": tuple(2**n for n in range(10)),
        "precision": ("fp32", "tf32", "bf16-mixed", "bf16-true"),
        "activation_checkpointing": ("none", "selective", "full"),
        "loss": ("full", "chunked"),
        "compile": ("off", "default", "reduce-overhead", "max-autotune"),
        "optimizer": ("adamw", "adamw-foreach", "adamw-fused"),
        "loader_workers": tuple(range(16)),
        "pin_memory": (False, True),
    }
    methods = frozenset({"checkpoint_blocks", "set_loss"})
    space = Space(values=values, fixed={}, batch=GlobalBatch(samples=512), facts=Facts(workload_methods=methods))
    assert space.size > 20_000
    history = [
        row(number, config, "completed")
        for number, (config, _) in enumerate(zip(space.configs(), range(5), strict=False))
    ]
    assert sampler.build(task_of(space)).propose(history, []) in space


def test_importing_the_samplers_loads_neither_optuna_nor_torch():
    modules = ("optuna", "torch", "numpy")
    code = (
        f"import sys, tuner.search.samplers, tuner.search.schedule; print([m for m in {modules} if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
