"""Mistake 2: each planted fault is found, its clean twin is not accused."""

from __future__ import annotations

import pytest
from doctor_studies import Tried, check, figure, finding, run, study

NAME = "precision_and_memory_format"


def precisions(**rates: float) -> list[Tried]:
    return [Tried(knobs={"precision": name.replace("_", "-")}, rate=rate) for name, rate in rates.items()]


def test_what_each_precision_gains_at_the_same_other_settings():
    view = study(*precisions(fp32=500.0, bf16_mixed=1000.0))
    found = finding(view, NAME, "precision_gain")
    assert found.verdict == "improve"
    assert figure(found, "precision bf16-mixed over fp32") == pytest.approx(2.0, rel=1e-6)
    assert found.advice[0].knobs == {"precision": "bf16-mixed"}
    assert found.trials == (0, 1)


def test_pairs_at_several_other_settings_are_pooled():
    tried = [
        Tried(knobs={"precision": name, "micro_batch_size": size}, rate=rate)
        for size, name, rate in (
            (8, "fp32", 100.0),
            (8, "bf16-mixed", 180.0),
            (16, "fp32", 100.0),
            (16, "bf16-mixed", 200.0),
        )
    ]
    found = finding(study(*tried), NAME, "precision_gain")
    assert 1.8 < figure(found, "precision bf16-mixed over fp32") < 2.0


def test_two_trials_that_differ_in_more_say_nothing_of_precision_alone():
    view = study(
        Tried(knobs={"precision": "fp32"}), Tried(knobs={"precision": "bf16-mixed", "loss": "chunked"}, rate=2000.0)
    )
    assert finding(view, NAME, "precision_gain").verdict == "not_measured"


@pytest.mark.parametrize("rates", [{"bf16_mixed": 1000.0, "fp32": 500.0}, {"fp32": 1000.0, "bf16_mixed": 1005.0}])
def test_the_fastest_precision_is_not_accused(rates):
    assert check(study(*precisions(**rates)), NAME).verdict == "fine"


@pytest.mark.case("C12")
def test_a_precision_that_loses_updates_is_advised_with_its_price_and_beside_the_safe_one():
    view = study(*precisions(fp32=500.0, bf16_mixed=900.0, bf16_true=1000.0))
    changes = {each.knobs["precision"]: each for each in finding(view, NAME, "precision_gain").advice}
    assert set(changes) == {"bf16-true", "bf16-mixed"}
    assert "tuner verify" in changes["bf16-true"].check
    assert finding(view, NAME, "lost_updates").verdict == "not_measured"  # the winner's weights are bf16


@pytest.mark.case("C12")
@pytest.mark.parametrize(("share", "verdict"), [(0.95, "broken"), (0.4, "improve"), (0.01, "fine")])
def test_lost_small_updates_come_from_the_verification(share, verdict):
    verify = run("verify", trial_id=1, measurement={"lost_update_shares": {"bf16-true": share}})
    view = study(*precisions(bf16_true=1000.0, bf16_mixed=900.0), longer=[verify])
    found = next(each for each in check(view, NAME).findings if each.name.startswith("lost_updates"))
    assert found.verdict == verdict
    assert found.runs == (verify.id,)
    if verdict != "fine":
        assert found.advice[0].gain == pytest.approx(0.9, rel=1e-6)  # the price of going back, measured


@pytest.mark.case("C06")
def test_tf32_left_off_for_no_reason():
    ampere = {"device": "cuda", "machine": {"capability": (8, 0)}}
    left = finding(study(*precisions(fp32=500.0), **ampere), NAME, "tf32")
    assert left.verdict == "not_measured"
    assert "tf32" in left.measured_by
    tried = study(*precisions(fp32=500.0, tf32=900.0), **ampere)
    assert finding(tried, NAME, "precision_gain").advice[0].knobs == {"precision": "tf32"}
    assert "tf32" not in {each.name for each in check(tried, NAME).findings}
    no_gain = study(*precisions(fp32=500.0, tf32=501.0), **ampere)
    assert finding(no_gain, NAME, "tf32").verdict == "fine"
    for machine in ({"device": "cpu"}, {"device": "cuda", "machine": {"capability": (7, 0)}}):
        assert "tf32" not in {each.name for each in check(study(*precisions(fp32=500.0), **machine), NAME).findings}


@pytest.mark.case("C01")
@pytest.mark.case("C03")
def test_skipped_updates_of_fp16():
    def named(tried: list[Tried], **more):
        return finding(study(*tried, **more), NAME, "loss_scale_skips")

    dead = [Tried(knobs={"precision": "fp16-mixed"}, outcome="numerical", rate=None)]
    assert named(dead).verdict == "broken"
    assert named(dead).advice[0].knobs == {"precision": "bf16-mixed"}
    skipping = [Tried(knobs={"precision": "fp16-mixed"}, said={"skipped_steps": 3, "blocks": 30})]
    assert named(skipping).verdict == "improve"
    assert named(skipping, device="cuda", machine={"capability": (7, 5)}).advice[0].knobs == {"precision": "fp32"}
    clean = [Tried(knobs={"precision": "fp16-mixed"}, said={"skipped_steps": 0, "blocks": 30})]
    assert named(clean).verdict == "fine"


def test_memory_format_is_asked_where_there_are_convolutions_alone():
    tried = [Tried(), Tried(knobs={"memory_format": "channels_last"}, rate=1500.0)]
    with_them = study(*tried, machine={"has_convolutions": True})
    assert finding(with_them, NAME, "memory_format_gain").advice[0].knobs == {"memory_format": "channels_last"}
    assert "memory_format_gain" not in {each.name for each in check(study(*tried), NAME).findings}
    alone = study(tried[0], machine={"has_convolutions": True})
    assert finding(alone, NAME, "memory_format_gain").verdict == "not_measured"


@pytest.mark.parametrize(("share", "verdict"), [(0.3, "improve"), (0.05, "fine")])
def test_copies_in_the_profile(share, verdict):
    profile = run(
        "profile", trial_id=1, measurement={"tool": "torch", "shares": {"copies": share, "matmul": 1 - share}}
    )
    assert finding(study(Tried(), longer=[profile]), NAME, "copies").verdict == verdict


def test_a_gain_that_may_be_there_is_neither_advised_nor_passed():
    unsteady = {"relative_standard_error": 0.3}
    tried = [
        Tried(knobs={"precision": name}, rate=rate, said=unsteady)
        for name, rate in (("fp32", 500.0), ("bf16-mixed", 600.0))
    ]
    found = finding(study(*tried), NAME, "precision_gain")
    assert found.verdict == "not_measured"
    assert "Too little is known" in found.statement
    assert figure(found, "precision bf16-mixed over fp32") == pytest.approx(1.2, rel=1e-6)


def test_what_was_never_measured_beside_the_baseline_s_own_value_is_open():
    others = [Tried(knobs={"precision": name}, rate=900.0) for name in ("bf16-mixed", "bf16-true")]
    view = study(Tried(knobs={"precision": "fp32", "loss": "chunked"}), *others)
    assert finding(view, NAME, "precision_gain").verdict == "not_measured"


def test_what_the_cost_model_splits_is_told_as_that_and_never_passes():
    base = Tried(knobs={"micro_batch_size": 1, "precision": "fp32"}, rate=100.0)
    others = [
        Tried(knobs={"micro_batch_size": size, "precision": "bf16-mixed"}, rate=rate)
        for size, rate in ((8, 900.0), (4, 700.0), (2, 400.0))
    ]
    confirmed = [
        run("confirm", trial_id=number, at=300.0 + 10 * turn + number, throughput=100.0 if number == 1 else 900.0)
        for turn in range(3)
        for number in (1, 2)
    ]
    view = study(base, *others, longer=confirmed)
    (step,) = [each for each in view.steps if list(each.knobs) == ["precision"]]
    assert step.source == "modelled"
    found = finding(view, NAME, "precision_gain")
    assert found.verdict in ("improve", "not_measured")
    assert figure(found, "precision bf16-mixed over fp32", "by the cost model") == step.gain
    assert not any(each.measured for each in found.advice)
