"""The engine as an Optuna sampler: a real one, in anybody's study, over known and unknown parameters."""

from __future__ import annotations

import random
import subprocess
import sys

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.trial import TrialState
from synthetic_device import Device

import tuner
from tuner.search.samplers.optuna_grid import Axis, Grid
from tuner.search.samplers.optuna_sampler import STOP_REASON

optuna.logging.set_verbosity(optuna.logging.ERROR)


def tuned(device: Device, directions: list[str], *, seed: int = 0, constraint: bool = True, **values) -> optuna.Study:
    study = optuna.create_study(directions=directions, sampler=tuner.TightfitSampler(seed=seed, **values))
    chance = random.Random(seed)

    def objective(trial: optuna.Trial):
        config = {name: trial.suggest_categorical(name, choices) for name, choices in device.knobs.items()}
        seen = device.run(config, chance)
        trial.set_user_attr("seconds", seen.seconds)
        if constraint:
            trial.set_constraint("fits", device.peak(config) / device.limit_bytes - 1)
        found = (seen.throughput or 0.0, float(seen.peak_memory_bytes or device.limit_bytes))
        return found if len(directions) == 2 else found[0]

    study.enqueue_trial({name: choices[0] for name, choices in device.knobs.items()})
    study.optimize(objective, n_trials=40)
    return study


@pytest.mark.parametrize("directions", [["maximize"], ["maximize", "minimize"]])
def test_it_finds_a_good_configuration_and_stops_by_itself(directions):
    device = Device(seed=3, noise=0.01)
    study = tuned(device, directions)
    fits = [each for each in study.trials if each.constraints["fits"] <= 0]
    best = max(device.true_rate(each.params) for each in fits)
    assert best >= 0.97 * device.best_rate()
    assert len(study.trials) < 40
    assert "nothing left to gain" in study.user_attrs[STOP_REASON]
    assert len({tuple(each.params.items()) for each in study.trials}) == len(study.trials)
    assert len(study.trials) - len(fits) <= 6


def test_a_time_may_be_minimised_and_the_parameters_be_anything():
    study = optuna.create_study(direction="minimize", sampler=tuner.TightfitSampler(seed=1, device_kind="cpu"))

    def objective(trial: optuna.Trial) -> float:
        size = trial.suggest_int("tile", 8, 4096, log=True)
        share = trial.suggest_float("share", 0.0, 1.0)
        layout = trial.suggest_categorical("layout", ["a", 2.5, None])
        return 1 + (size.bit_length() - 9) ** 2 / 20 + (share - 0.5) ** 2 + 0.3 * (layout is None)

    study.optimize(objective, n_trials=40)
    assert study.best_value < 1.1


def test_pruned_failed_and_running_trials_are_understood():
    sampler = tuner.TightfitSampler(seed=2, stops=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {
        "size": optuna.distributions.IntDistribution(1, 6),
        "mode": optuna.distributions.CategoricalDistribution("ab"),
    }
    for number in range(12):
        trial = study.ask(space)
        if number == 3:
            continue  # runs for ever
        if number == 4:
            study.tell(trial, state=TrialState.FAIL)
        elif number == 5:
            trial.report(3.0, 0)
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, float(trial.params["size"]))
    seen = [tuple(sorted(each.params.items())) for each in study.trials]
    assert len(set(seen)) == 12
    study.tell(study.ask(space), 1.0)  # everything has been tried: Optuna still gets an answer


def test_the_same_seed_proposes_the_same():
    runs = [tuned(Device(seed=4), ["maximize", "minimize"], seed=7) for _ in range(2)]
    assert [each.params for each in runs[0].trials] == [each.params for each in runs[1].trials]


def test_a_changing_space_falls_back_to_what_is_common():
    study = optuna.create_study(direction="maximize", sampler=tuner.TightfitSampler(seed=0, stops=False))

    def objective(trial: optuna.Trial) -> float:
        size = trial.suggest_int("size", 1, 4)
        return size + (trial.suggest_float("extra", 0, 1) if trial.number % 2 else 0.0)

    study.optimize(objective, n_trials=8)
    assert study.best_value >= 4


def test_other_objectives_are_refused_with_the_way_out():
    study = optuna.create_study(directions=["maximize"] * 2, sampler=tuner.TightfitSampler(stops=False))
    space = {"size": optuna.distributions.IntDistribution(1, 4)}
    study.tell(study.ask(space), [1.0, 1.0])
    with pytest.raises(ValueError, match="minimize"):
        study.ask(space)


def test_grids_keep_values_and_snap_what_lies_between():
    assert Axis.of(optuna.distributions.IntDistribution(1, 1000, log=True)).values[0] == 1
    assert Axis.of(optuna.distributions.IntDistribution(2, 8, step=2)).values == (2, 4, 6, 8)
    steps = Axis.of(optuna.distributions.FloatDistribution(0.0, 1.0, step=0.25))
    assert steps.values == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert steps.code(0.3) == 1
    grid = Grid.of({"a": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)}, seed=0)
    assert len(grid.ranks) == 9
    assert grid.params(8) == {"a": pytest.approx(1.0)}
    many = {f"k{n}": optuna.distributions.IntDistribution(0, 9) for n in range(6)}
    assert 10_000 < len(Grid.of(many, seed=0).ranks) <= 20_000


def test_it_is_a_sampler_and_importing_the_package_loads_no_optuna():
    assert issubclass(tuner.TightfitSampler, BaseSampler)
    code = "import sys, tuner; print('optuna' in sys.modules, 'numpy' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False", "False"]
