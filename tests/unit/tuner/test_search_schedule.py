"""Whole studies on a fake clock: the handed fixtures, and what the schedule does in between."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from search_fakes import CAPACITY, GIB, START, FakeStudy, Result, fixture_1, limits_of, run_of, spec_of, trial_of

from objectives.config import TrainingConfig
from tuner.search.front import best_trial
from tuner.search.samplers import SearchTask, make_proposer
from tuner.search.schedule import FEWER_WORKERS, History, NextRun, fewer_workers, next_run
from tuner.search.stopping import PATIENCE, Stop


def study_of(model=None, **values) -> FakeStudy:
    return FakeStudy(spec=spec_of(**{**CAPACITY, **values}), model=model or fixture_1())


@pytest.mark.case("G15", "B08")
@pytest.mark.parametrize("seed", range(3))
def test_few_out_of_memory_launches_and_the_best_by_throughput(seed):
    study = study_of(fixture_1(noise=0.01, seed=seed), seed=seed, limits=limits_of(trials=60))
    study.search()
    assert sum(each.outcome == "device_oom" for each in study.trials) < 10
    study.confirm()
    best = study.summary()["best"]
    assert best["confirmed"]
    assert best["throughput"] >= 0.95 * 266.7  # bf16 without checkpointing at micro-batch 20 to 24
    assert best["config"]["micro_batch_size"] * best["config"]["accumulation_steps"] == 5040


@pytest.mark.case("B08")
def test_the_best_size_lies_between_the_last_that_fits_and_the_first_that_does_not():
    sizes = tuple(range(8, 257, 8))

    def model(config, _purpose, _before):
        size = config.micro_batch_size
        if size > 100:
            return Result(outcome="device_oom", cause="capacity")
        return Result(throughput=1000.0 - (size - 96) ** 2 / 10, peak_bytes=size * GIB // 100)

    study = FakeStudy(
        spec=spec_of(
            global_batch_size=math.lcm(*sizes),
            search={"micro_batch_size": sizes},
            baseline={"micro_batch_size": 8},
            limits=limits_of(trials=20),
        ),
        model=model,
    )
    study.search()
    study.confirm()
    assert study.summary()["best"]["config"]["micro_batch_size"] in (88, 96)  # 0.6 % apart: less than is searched for
    assert sum(each.outcome == "device_oom" for each in study.trials) <= 3


@pytest.mark.case("G17")
@pytest.mark.parametrize("sampler", ["auto", "tpe", "nsga2", "random", "grid"])
def test_a_space_of_four_stops_at_four_trials(sampler):
    search = {"precision": ("fp32", "bf16-mixed"), "activation_checkpointing": ("none", "full")}
    study = study_of(search=search, sampler=sampler, limits=limits_of(trials=30))
    stop = study.search()
    if sampler == "auto":  # may know before that the rest cannot be better
        assert (len(study.trials), stop.kind) == (4, "exhausted") or stop.kind == "nothing_to_gain"
        assert len(study.trials) <= 4
        return
    assert len(study.trials) == 4
    assert len({each.config_key for each in study.trials}) == 4
    assert stop.kind == "exhausted"


@pytest.mark.case("G18")
def test_the_budget_counts_every_trial_of_the_store():
    study = study_of(limits=limits_of(trials=5), sampler="random")
    assert study.search().kind == "trials"
    assert len(study.trials) == 5
    assert study.search().kind == "trials"  # resumed: not one more
    assert len(study.trials) == 5


@pytest.mark.case("G18")
def test_two_thirds_of_the_time_are_for_the_search():
    study = study_of(limits=limits_of(trials=500, time_seconds=600.0), sampler="random")
    assert study.search().kind == "time"
    assert 400 <= study.clock <= 420
    study.confirm()
    assert study.clock <= 620
    assert study.summary()["best"] is not None


@pytest.mark.case("G26", "A27")
@pytest.mark.parametrize(
    "text", ["mismatch train_micro_batch_size_per_gpu 1 vs 8", "CUDA error: device-side assert triggered"]
)
def test_equal_failures_end_the_study_with_their_reason(text):
    def model(_config, _purpose, before):
        chain = [{"cls": "builtins.ValueError", "text": f"{text} {before}"}]
        return Result(outcome="crashed", evidence={"chain": chain})

    study = study_of(model, limits=limits_of(trials=50))
    stop = study.search()
    assert stop.kind == "alike_failures"
    assert len(study.trials) <= 5
    assert text in stop.reason
    assert study.summary()["best"] is None


@pytest.mark.case("A36")
def test_nothing_feasible_says_the_smallest_and_the_first_reason():
    study = study_of(fixture_1(limit_gib=1.0), limits=limits_of(trials=40))
    stop = study.search()
    assert stop.kind == "nothing_feasible"
    assert "smallest tried was" in stop.reason
    assert "micro_batch_size=1" in stop.reason
    assert "CUDA out of memory" in stop.reason
    assert len(study.trials) <= 10
    study.confirm()
    summary = study.summary()
    assert summary["best"] is None
    assert summary["speedup_over_baseline"] is None
    assert summary["counts"] == {"device_oom": len(study.trials)}


@pytest.mark.case("A36")
def test_a_crash_at_some_sizes_leaves_the_study_going():
    def model(config, purpose, before):
        if config.micro_batch_size >= 12:
            return Result(outcome="crashed", evidence={"signal": 11})
        return fixture_1()(config, purpose, before)

    study = study_of(model, limits=limits_of(trials=25), sampler="random")
    study.search()
    study.confirm()
    assert study.summary()["best"]["config"]["micro_batch_size"] < 12


@pytest.mark.case("C03")
def test_a_numerical_configuration_is_never_chosen_though_faster():
    def model(config, purpose, before):
        if config.precision == "fp16-mixed":
            return Result(outcome="numerical", throughput=1000.0, peak_bytes=5 * GIB)
        return fixture_1()(config, purpose, before)

    search = {**CAPACITY["search"], "precision": ("fp32", "fp16-mixed", "bf16-mixed")}
    study = study_of(model, search=search, limits=limits_of(trials=30))
    study.search()
    study.confirm()
    summary = study.summary()
    assert summary["best"]["config"]["precision"] == "bf16-mixed"
    assert all(each["config"]["precision"] != "fp16-mixed" for each in summary["front"])
    tried = Counter(each.config["precision"] for each in study.trials)
    assert tried["fp16-mixed"] < tried["bf16-mixed"]


@pytest.mark.case("H03")
def test_throughput_decides_and_not_the_time_of_a_step():
    rates = {8: 34.3, 16: 36.1}
    study = FakeStudy(
        spec=spec_of(search={"micro_batch_size": (8, 16)}, baseline={"micro_batch_size": 8}),
        model=lambda config, _purpose, _before: Result(throughput=rates[config.micro_batch_size], peak_bytes=GIB),
    )
    study.search()
    study.confirm()
    assert study.summary()["best"]["config"]["micro_batch_size"] == 16


@pytest.mark.case("G25")
def test_the_confirmation_demotes_what_fails_in_a_longer_run():
    def model(config, purpose, before):
        if purpose == "confirm" and config.precision == "bf16-mixed" and config.activation_checkpointing == "none":
            return Result(outcome="device_oom", cause="capacity", evidence={"phase": "measure"})
        return fixture_1()(config, purpose, before)

    study = study_of(model, limits=limits_of(trials=30))
    study.search()
    study.confirm()
    summary = study.summary()
    assert summary["demoted"]
    assert "in the confirmation" in summary["demoted"][0]["reason"]
    config = summary["best"]["config"]
    assert (config["precision"], config["activation_checkpointing"]) != ("bf16-mixed", "none")
    assert summary["best"]["confirmed"]
    assert not {each["number"] for each in summary["demoted"]} & {each["number"] for each in summary["front"]}


@pytest.mark.case("G27")
def test_the_headroom_is_a_constraint_and_what_fits_without_it_is_listed():
    peaks = {8: 60.0, 16: 78.4}
    study = FakeStudy(
        spec=spec_of(search={"micro_batch_size": (8, 16)}, baseline={"micro_batch_size": 8}),
        model=lambda config, _p, _b: Result(
            throughput=10.0 * config.micro_batch_size, peak_bytes=int(peaks[config.micro_batch_size] * GIB)
        ),
        limit_bytes=76 * GIB,
    )
    study.search()
    study.confirm()
    summary = study.summary()
    assert summary["best"]["config"]["micro_batch_size"] == 8
    assert [each["config"]["micro_batch_size"] for each in summary["fits_without_margin"]] == [16]
    assert summary["headroom_bytes"] == 16 * GIB


@pytest.mark.parametrize("sampler", ["auto", "grid", "random"])
def test_order_bias_does_not_decide(sampler):
    """Fixture 2: the first three runs read 3 times too slow; the best configuration is one of them."""
    true = {8: 100.0, 16: 130.0, 32: 110.0, 64: 90.0}

    def model(config, _purpose, before):
        return Result(throughput=true[config.micro_batch_size] / (3 if before < 3 else 1), peak_bytes=GIB)

    for seed in range(6):
        study = FakeStudy(
            spec=spec_of(
                search={"micro_batch_size": (8, 16, 32, 64)}, baseline={"micro_batch_size": 8}, sampler=sampler,
                seed=seed,
            ),
            model=model,
        )  # fmt: skip
        study.search()
        study.confirm()
        summary = study.summary()
        assert summary["best"]["config"]["micro_batch_size"] == 16
        assert summary["speedup_over_baseline"] == pytest.approx(1.3, rel=0.01)


@pytest.mark.case("H06")
def test_a_difference_inside_the_noise_is_called_a_tie():
    readings = {8: (100.0, 101.0, 98.0, 102.0), 16: (104.0, 99.0, 105.0, 100.0)}
    seen = Counter()

    def model(config, _purpose, _before):
        size = config.micro_batch_size
        seen[size] += 1
        return Result(throughput=readings[size][seen[size] % 4], peak_bytes=size * GIB)

    study = FakeStudy(spec=spec_of(search={"micro_batch_size": (8, 16)}, baseline={"micro_batch_size": 8}), model=model)
    study.search()
    study.confirm()
    summary = study.summary()
    low, high = summary["speedup_over_baseline_interval"]
    assert low <= 1 <= high
    assert summary["ties"]


def test_the_baseline_is_repeated_as_drift_control():
    study = study_of(limits=limits_of(trials=20), sampler="random")
    study.search()
    repeats = [run for run in study.runs if run.purpose == "repeat" and run.trial_id == 1]
    assert len(repeats) >= 3
    assert all(run.trial_id != 1 for run in study.runs[1:5])


def test_contenders_get_further_windows():
    study = study_of(fixture_1(noise=0.05), limits=limits_of(trials=30), sampler="random")
    study.search()
    assert any(run.purpose == "repeat" and run.trial_id != 1 for run in study.runs)


def test_a_baseline_that_does_not_fit_leaves_a_winner_without_a_speedup():
    study = study_of(baseline={"micro_batch_size": 63}, limits=limits_of(trials=25))
    study.search()
    study.confirm()
    summary = study.summary()
    assert summary["baseline"]["outcome"] == "device_oom"
    assert summary["best"] is not None
    assert summary["speedup_over_baseline"] is None
    assert "out of memory" in summary["speedup_reason"]


def test_a_baseline_outside_the_space_is_compared_all_the_same():
    study = study_of(baseline={"micro_batch_size": 70, "activation_checkpointing": "full", "precision": "bf16-mixed"},
                     limits=limits_of(trials=25))  # fmt: skip
    study.limit_bytes = 30 * GIB
    study.model = fixture_1(limit_gib=30)
    study.search()
    study.confirm()
    assert study.summary()["speedup_over_baseline"] > 1


def test_a_winner_slower_than_the_baseline_is_not_called_best():
    def model(config, _purpose, _before):
        return Result(throughput=200.0 if config.micro_batch_size == 4 else 100.0, peak_bytes=GIB)

    study = study_of(model, search={"micro_batch_size": (8, 16)}, baseline={"micro_batch_size": 4})
    study.search()
    study.confirm()
    summary = study.summary()
    assert summary["best"]["number"] == 0
    assert summary["speedup_over_baseline"] == 1.0


def test_no_gain_ends_a_search_but_never_a_grid():
    model = lambda _config, _purpose, _before: Result(throughput=100.0, peak_bytes=GIB)  # noqa: E731
    random_one = study_of(model, sampler="random", limits=limits_of(trials=80))
    assert random_one.search().kind == "no_gain"
    assert len(random_one.trials) == PATIENCE + 1
    grid = study_of(model, sampler="grid", limits=limits_of(trials=80))
    assert grid.search().kind == "trials"


def test_an_unfinished_trial_is_the_next_attempt_after_a_restart():
    study = study_of(limits=limits_of(trials=5))
    config = study.baseline.config
    study.trials.append(trial_of(0, config, outcome=None, throughput=None, peak_memory_bytes=None, source="baseline"))
    study.runs.append(run_of(1, None, 0.0, outcome="infra", cause="worker_lost"))
    decided = next_run(study.history, study.spec, study.space, study.baseline, study.proposer)
    assert isinstance(decided, NextRun)
    assert (decided.trial_id, decided.attempt, decided.purpose) == (1, 2, "search")


def test_a_second_worker_waits_for_the_baseline():
    study = study_of()
    study.trials.append(trial_of(0, study.baseline.config, outcome=None, source="baseline"))
    study.runs.append(run_of(1, None, 0.0, outcome=None))
    assert next_run(study.history, study.spec, study.space, study.baseline, study.proposer) is None


def test_host_memory_is_tried_once_with_fewer_workers():
    study = study_of(search={"loader_workers": (0, 2, 4)})
    config = study.baseline.config.with_values(loader_workers=4)
    failed = trial_of(1, config, outcome="host_oom", throughput=None)
    history = History(trials=[trial_of(0, study.baseline.config), failed], runs=[])
    made = fewer_workers(history, study.space)
    assert made is not None
    assert made.loader_workers == 2
    again = trial_of(2, made, outcome="host_oom", throughput=None, source=FEWER_WORKERS)
    assert fewer_workers(History(trials=[*history.trials, again], runs=[]), study.space) is None


@pytest.mark.case("G17")
def test_a_running_configuration_is_not_proposed_to_another_worker():
    study = study_of(search={"precision": ("fp32", "bf16-mixed")})
    free = study.baseline.config.with_values(precision="bf16-mixed")
    running = trial_of(1, free, outcome=None, throughput=None, peak_memory_bytes=None)
    history = History(trials=[trial_of(0, study.baseline.config), running], runs=[run_of(2, None, 5.0, outcome=None)])
    proposer = make_proposer("tpe", SearchTask(space=study.space, limit_bytes=24 * GIB))
    assert next_run(history, study.spec, study.space, study.baseline, proposer) is None
    done = History(trials=[history.trials[0], trial_of(1, free)], runs=[])
    assert isinstance(next_run(done, study.spec, study.space, study.baseline, proposer), Stop)


def test_the_config_of_a_repeat_is_the_trials_own():
    study = study_of(sampler="random")
    study.search()
    by_id = {each.id: each for each in study.trials}
    assert all(run.trial_id in by_id for run in study.runs)
    assert all(TrainingConfig.from_mapping(each.config).micro_batch_size for each in study.trials)


def test_a_baseline_that_did_not_fit_is_run_again_under_a_larger_limit():
    study = study_of(baseline={"micro_batch_size": 20})
    failed = trial_of(
        0, study.baseline.config, outcome="device_oom", throughput=None, peak_memory_bytes=None, confidence="certain",
        source="baseline", evidence={"memory_limit_bytes": 10 * GIB},
    )  # fmt: skip
    study.trials.append(failed)
    study.runs.append(run_of(1, None, 0.0, outcome="device_oom"))
    decided = next_run(study.history, study.spec, study.space, study.baseline, study.proposer)
    assert isinstance(decided, NextRun)
    assert (decided.trial_id, decided.purpose, decided.attempt) == (1, "search", 2)
    study.model, study.limit_bytes = fixture_1(limit_gib=40), 40 * GIB
    study.search()
    assert study.trials[0].outcome == "completed"
    study.trials[0] = failed
    study.limit_bytes = 10 * GIB
    again = next_run(study.history, study.spec, study.space, study.baseline, study.proposer)
    assert not isinstance(again, NextRun) or again.trial_id != 1


@pytest.mark.parametrize("outcome", ["device_oom", "numerical", "timeout"])
def test_a_trial_whose_repeat_failed_is_not_the_searchs_best(outcome):
    fast = trial_of(1, throughput=300.0)
    trials = [trial_of(0), fast, trial_of(2, throughput=200.0)]
    runs = [run_of(each.id, each.throughput, 10.0 * each.id) for each in trials]
    runs.append(run_of(fast.id, None, 100.0, "repeat", outcome=outcome))
    history = History(trials=trials, runs=runs, limit_bytes=24 * GIB)
    assert [each.outcome for each in history.standing] == ["completed", outcome, "completed"]
    assert best_trial(history.standing, history.limit_bytes).number == 2
    assert [each.outcome for each in history.finished] == ["completed"] * 3


def test_a_repeat_that_the_time_would_cut_short_is_not_begun():
    study = study_of(sampler="random", limits=limits_of(trials=500, time_seconds=300.0))
    study.search()
    ends = 300.0 * 2 / 3
    repeats = [run for run in study.runs if run.purpose == "repeat"]
    assert repeats
    assert all((run.started_at - START).total_seconds() + run.seconds <= ends for run in repeats)
