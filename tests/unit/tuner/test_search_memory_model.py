from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import pytest

from objectives.config import TrainingConfig
from storage.records import TrialRecord
from tuner.search.memory_model import OUTSIDE_PRIOR_BYTES, Observation, Points, learn, observations_of

MIB = 2**20
PRECISIONS = ("fp32", "bf16-mixed", "bf16-true")
KINDS = ("none", "selective", "full")


def config(**values: Any) -> TrainingConfig:
    return TrainingConfig(**values)


def seen(offset_mib: float, predicted_mib: float = 400, **values: Any) -> Observation:
    return Observation(
        config=config(**values),
        predicted_bytes=round(predicted_mib * MIB),
        measured_bytes=round((predicted_mib + offset_mib) * MIB),
    )


def mib(number: float) -> float:
    return number / MIB


def test_before_any_run_the_bar_holds_what_was_ever_measured_on_a_cpu() -> None:
    bar = learn([], device_kind="cpu").predict(config(), 300 * MIB, limit_bytes=None)
    assert bar.low_bytes <= (300 + 1) * MIB
    assert bar.high_bytes >= (300 + 40) * MIB
    assert not bar.certain_misfit
    assert not bar.doubtful


def test_one_run_corrects_its_precision_and_narrows_every_bar() -> None:
    before, after = learn([], device_kind="cpu"), learn([seen(31.0)], device_kind="cpu")
    same = after.predict(config(micro_batch_size=8), 600 * MIB, limit_bytes=None)
    other = after.predict(config(precision="bf16-true"), 600 * MIB, limit_bytes=None)
    prior = before.predict(config(), 600 * MIB, limit_bytes=None)
    assert mib(same.mean_bytes) == pytest.approx(631, abs=3)
    assert other.mean_bytes > prior.mean_bytes
    widths = [bar.high_bytes - bar.low_bytes for bar in (same, other, prior)]
    assert widths == sorted(widths)


def test_a_slope_is_learnt_where_there_is_one() -> None:
    told = [seen(10 + 0.02 * size, size, micro_batch_size=size // 100) for size in (200, 400, 800, 1600)]
    bar = learn(told, device_kind="cpu").predict(config(micro_batch_size=32), 3200 * MIB, limit_bytes=None)
    assert mib(bar.mean_bytes) == pytest.approx(3200 + 10 + 64, rel=0.01)


def test_bad_predictions_widen_the_bars_of_the_whole_study() -> None:
    good = learn([seen(12, 300), seen(12, 500, micro_batch_size=2)], device_kind="cpu")
    bad = learn([seen(-40, 300), seen(90, 500, micro_batch_size=2)], device_kind="cpu")
    widths = []
    for model in (good, bad):
        bar = model.predict(config(precision="bf16-mixed"), 400 * MIB, limit_bytes=None)
        widths.append(bar.high_bytes - bar.low_bytes)
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.parametrize(
    ("predicted_mib", "certain", "doubtful"), [(300, False, False), (490, False, True), (900, True, False)]
)
def test_against_a_limit(predicted_mib: int, certain: bool, doubtful: bool) -> None:
    bar = learn([seen(12)], device_kind="cpu").predict(config(), predicted_mib * MIB, limit_bytes=500 * MIB)
    assert (bar.certain_misfit, bar.doubtful) == (certain, doubtful)


def test_compiled_and_uncertain_predictions_get_the_wide_bar_until_a_run_has_shown_them() -> None:
    model = learn([seen(12), seen(12, 500, micro_batch_size=2)], device_kind="cpu")
    plain, compiled, uncertain = (
        model.predict(wanted, 400 * MIB, limit_bytes=None, wide=wide)
        for wanted, wide in ((config(), False), (config(compile="default"), False), (config(), True))
    )
    for bar in (compiled, uncertain):
        assert bar.high_bytes - bar.low_bytes > 4 * (plain.high_bytes - plain.low_bytes)
    shown = learn([seen(-100, compile="default")], device_kind="cpu")
    bar = shown.predict(config(compile="default", micro_batch_size=2), 400 * MIB, limit_bytes=None)
    assert mib(bar.mean_bytes) == pytest.approx(300, rel=0.05)
    assert bar.high_bytes - bar.low_bytes < compiled.high_bytes - compiled.low_bytes


def test_cuda_learns_what_lies_outside_the_allocator_from_the_first_run() -> None:
    before = learn([], device_kind="cuda").predict(config(), 4096 * MIB, limit_bytes=None)
    assert before.mean_bytes > 4096 * MIB + OUTSIDE_PRIOR_BYTES
    told = Observation(config=config(), predicted_bytes=4096 * MIB, measured_bytes=5000 * MIB, outside_bytes=800 * MIB)
    after = learn([told], device_kind="cuda").predict(config(micro_batch_size=2), 8192 * MIB, limit_bytes=None)
    assert after.low_bytes < (8192 + 800 + 104) * MIB < after.high_bytes
    assert (after.high_bytes - after.low_bytes) / after.mean_bytes < (before.high_bytes - before.low_bytes) / (
        before.mean_bytes
    )


@pytest.mark.parametrize("runs", [0, 1, 5])
@pytest.mark.parametrize(("offset", "precision_spread"), [(12.0, 2.0), (14.0, 8.0), (30.0, 10.0)])
def test_the_bar_covers_what_it_says_and_no_more_than_it_must(
    runs: int, offset: float, precision_spread: float
) -> None:
    """Studies drawn as the CPU's were measured: a constant of the precision, small differences, little noise."""
    covered, widths = [], []
    for seed in range(150):
        numbers = np.random.default_rng(seed)
        truth = [*_study(numbers, offset, precision_spread)]
        numbers.shuffle(truth)  # type: ignore[arg-type]
        model = learn(truth[:runs], device_kind="cpu")
        for each in truth[runs:]:
            bar = model.predict(each.config, each.predicted_bytes, limit_bytes=None)
            covered.append(bar.low_bytes <= each.measured_bytes <= bar.high_bytes)
            widths.append((bar.high_bytes - bar.low_bytes) / MIB)
    assert np.mean(covered) >= 0.95
    assert np.median(widths) < (90 if runs < 5 else 60)


def _study(numbers: np.random.Generator, offset: float, spread: float) -> Sequence[Observation]:
    offsets = {name: offset + numbers.normal(0, spread) for name in PRECISIONS}
    return [
        seen(
            offsets[precision] + numbers.normal(0, 1.0),
            200 + 50 * size,
            precision=precision,
            activation_checkpointing=kind,
            micro_batch_size=size,
        )
        for precision, kind, size in product(PRECISIONS, KINDS, (1, 2, 4, 8))
    ]


def test_twenty_thousand_candidates_after_five_hundred_runs_take_no_time() -> None:
    wanted = [
        config(micro_batch_size=size, precision=precision, activation_checkpointing=kind, optimizer=optimizer)
        for size, precision, kind, optimizer in product(
            range(1, 742), PRECISIONS, KINDS, ("adamw", "adamw-foreach", "adamw-fused")
        )
    ]
    points = Points.of(wanted, [400 * MIB + each.micro_batch_size * MIB for each in wanted])
    told = [seen(12, 400 + each.micro_batch_size, **each.knobs()) for each in wanted[:: len(wanted) // 500][:500]]
    begun = time.perf_counter()
    bars = learn(told, device_kind="cpu").predict_many(points, 1100 * MIB)
    assert time.perf_counter() - begun < 1.0  # 0.1 s on an idle machine
    assert len(bars.mean_bytes) == len(wanted) > 20_000
    assert bars.certain_misfit.any()
    assert bars.at(0) == learn(told, device_kind="cpu").predict(wanted[0], 401 * MIB, limit_bytes=1100 * MIB)


def test_trials_with_both_peaks_teach_and_the_others_do_not() -> None:
    def trial(outcome: str | None, measured: int | None, predicted: int | None) -> TrialRecord:
        return TrialRecord(
            id=1, study_id=1, number=1, config=config().to_mapping(), config_key="k", source="auto", outcome=outcome,
            peak_memory_bytes=measured, predicted_peak_memory_bytes=predicted,
            metrics={"memory": {"outside_bytes": 7}}, created_at=datetime.now(UTC),
        )  # fmt: skip

    trials = [
        trial("completed", 10, 9), trial("pruned", 12, 9), trial("completed", 10, None), trial("device_oom", 10, 9),
        trial(None, None, 9), trial("completed", None, 9),
    ]  # fmt: skip
    told = observations_of(trials)
    assert [each.measured_bytes for each in told] == [10, 12]
    assert told[0].outside_bytes == 7
