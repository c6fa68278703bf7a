"""The answers as text for people, at 80 columns."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.config import TrainingConfig
from tuner.cli import tables
from tuner.documents import RESULT, TRIAL, missing


def trial(number: int, throughput: float, gibibytes: float, **knobs: Any) -> dict[str, Any]:
    return {
        "number": number, "outcome": "completed", "cause": None, "config": TrainingConfig(**knobs).to_mapping(),
        "throughput": throughput, "throughput_unit": "tokens_per_second",
        "throughput_interval": [throughput * 0.96, throughput * 1.03], "peak_memory_bytes": int(gibibytes * 2**30),
        "predicted_peak_memory_bytes": None, "seconds": 12.3, "confirmed": True,
    }  # fmt: skip


BASELINE = trial(0, 1204, 1.91, micro_batch_size=4, accumulation_steps=8)
BEST = trial(
    7, 3421, 1.42, micro_batch_size=8, accumulation_steps=4, precision="bf16-mixed", optimizer="adamw-fused",
    activation_checkpointing="selective", tokens="cached", loader_workers=2,
)  # fmt: skip
ANSWER: dict[str, Any] = {
    "study": "my study", "status": "finished", "stop_reason": "no gain in the last 8 trials", "objective": "causal_lm",
    "device": "Xeon, 2 cores", "global_batch_size": 32, "memory_limit_bytes": 8 * 2**30,
    "counts": {"completed": 11, "pruned": 3, "device_oom": 1}, "seconds": 231.0, "baseline": BASELINE, "best": BEST,
    "front": [trial(3, 815, 0.62), BEST], "speedup_over_baseline": 2.841, "speedup_over_baseline_interval": [2.61, 3.1],
    "refused": [{"knob": "attention", "value": "flash_attention_2", "reason": "flash-attn [2] is not installed"}],
    "global_batch_tokens": None, "speedup_reason": None, "headroom_bytes": 2**30, "knee": 3, "ties": [5, 7],
    "demoted": [{"number": 4, "reason": "device_oom at step 30"}], "fits_without_margin": [trial(9, 3500, 8.2)],
    "between_run_spread": 0.02,
    "explanation": [
        {"knobs": [{"knob": "precision", "from": "fp32", "to": "bf16-mixed"}], "gain": 1.6,
         "gain_interval": [1.55, 1.66], "memory_bytes": -(2**29), "source": "measured", "trials": [0, 3]},
        {"knobs": [{"knob": name, "from": "a", "to": "b"} for name in ("optimizer", "tokens")], "gain": 1.3,
         "gain_interval": [1.2, 1.4], "memory_bytes": 0, "source": "together", "trials": [3, 5]},
        {"knobs": [{"knob": "loader_workers", "from": 0, "to": 2}], "gain": 1.36,
         "gain_interval": [1.1, 1.7], "memory_bytes": None, "source": "modelled", "trials": [5, 7]},
    ],
    "search_level": 1.0, "notices": ["the machine was disturbed"],
}  # fmt: skip


def shown(capsys: pytest.CaptureFixture[str], **changes: Any) -> str:
    tables.print_result({**ANSWER, **changes})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    return out


def test_the_sample_is_a_whole_document() -> None:
    assert missing(ANSWER, RESULT) == []
    assert missing(BEST, TRIAL) == []


def test_a_result_shows_front_both_sides_speed_up_refusals_and_what_to_type_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shown(capsys)
    for said in (
        "my study: finished (no gain in the last 8 trials)", "15 trials in 3 min 51 s on Xeon, 2 cores",
        "11 completed, 3 pruned, 1", "memory limit 8.00 GiB, global batch 32 samples", "3.42k tokens/s", "0.62 GiB",
        "baseline (trial 0)", "winner (trial 7)", "[1.16k, 1.24k]", "[3.28k, 3.52k]", "accumulation_steps",
        "attention flash_attention_2", "flash-attn [2] is not installed",
        "tuner show 'my study'", "tuner front 'my study'",
    ):  # fmt: skip
        assert said in out
    assert "trains 2.84x as fast as the baseline (95 % interval 2.61x to 3.10x)" in " ".join(out.split())


def test_what_stands_around_the_winner_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys)
    for said in (
        "within the noise: trial 5.", "leaves 1.00 GiB", "Trial 4 was thrown out", "Trial 9 needs 8.20 GiB",
        "Note: the machine was disturbed",
    ):  # fmt: skip
        assert said in out


def test_why_it_won_is_a_line_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(shown(capsys).split("Why it won")[1].split())
    for said in (
        "1.60x 1.55 to 1.66 -0.50 GiB trials 0 and 3 precision fp32 -> bf16-mixed", "same trials 3 and 5 optimizer",
        "only tried together", "- model loader_workers 0 -> 2", "cost model splits",
    ):  # fmt: skip
        assert said in out
    assert "Why it won" not in shown(capsys, explanation=None)
    assert "model" not in shown(capsys, explanation=ANSWER["explanation"][:1]).split("Why it won")[1].split("Next")[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"counts": {}}, "no trial has ended yet"),
        ({"counts": {"crashed": 3, "device_oom": 1}}, "no trial completed"),
        ({"counts": {"device_oom": 4}}, "every trial ran out of memory"),
        ({"counts": {"completed": 1}, "demoted": [{"number": 1, "reason": "timeout"}]}, "thrown out by a longer run"),
        ({"counts": {"completed": 2, "crashed": 1}, "demoted": []}, "inside the memory limit"),
    ],
)
def test_no_winner_has_the_reason_that_holds(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], reason: str
) -> None:
    out = " ".join(shown(capsys, best=None, front=[], baseline=None, **changes).split())
    assert f"No winner: {reason}" in out or reason in out.split("No winner:")[1].split("Next")[0]
    others = {"no trial has ended", "every trial ran", "no trial completed", "thrown out by", "inside the memory limit"}
    said = out.split("No winner:")[1][:70]
    assert sum(each in said for each in others) == 1


def test_a_list_with_the_longest_names_stays_inside_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    name, device = "Q" * 200, "a CPU whose maker was fond of words, at 2.10 GHz and with 64 cores"
    tables.print_list({"studies": [{**ANSWER, "study": name, "device": device}, {"study": "new", "status": "running"}]})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("Q") == 200
    assert "finished" in out
    assert "2.84x" in out


def test_the_front_is_fastest_first(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_front({"study": "s", "trials": ANSWER["front"]})
    out = capsys.readouterr().out
    assert out.index("3.42k") < out.index("815")
    assert "defaults" in out


def test_a_difference_inside_the_noise_is_a_tie(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, speedup_over_baseline=1.02, speedup_over_baseline_interval=[0.97, 1.06])
    assert "A tie: 1.02x the baseline" in out
    assert "trains" not in out.split("Next")[0].split("A tie")[1].split("baseline")[1]


def test_a_baseline_that_wins_is_said_to_win(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, best=BASELINE, speedup_over_baseline=1.0, speedup_over_baseline_interval=None)
    assert "The baseline (trial 0) is the fastest" in out


def test_a_baseline_without_a_number_leaves_no_speed_up(capsys: pytest.CaptureFixture[str]) -> None:
    dead = {**BASELINE, "outcome": "device_oom", "throughput": None, "throughput_interval": None}
    out = shown(
        capsys,
        baseline=dead,
        speedup_over_baseline=None,
        speedup_over_baseline_interval=None,
        speedup_reason="the baseline ran out of memory",
        notices=["no speed-up is stated: see above"],
    )
    assert out.lower().count("no speed-up is stated") == 1
    assert "the baseline ran out of memory" in out


def test_nothing_feasible_has_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, best=None, front=[], baseline=None, status="failed", stop_reason="the first 5 failed alike")
    assert "No winner" in out
    assert "the first 5 failed alike" in out


def test_an_interrupted_study_says_that_everything_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the same command goes on" in shown(capsys, status="paused", best=None)
    out = shown(capsys, status="paused", stop_reason="stopped by a person; the same command goes on")
    assert out.count("the same command goes on") == 1


def test_missing_figures_are_a_dash_not_a_zero(capsys: pytest.CaptureFixture[str]) -> None:
    bare = {**BEST, "throughput_interval": None, "peak_memory_bytes": None}
    lines = shown(capsys, best=bare, front=[bare]).splitlines()
    assert any(line.startswith("95 % interval") and line.rstrip().endswith("-") for line in lines)


def test_lists_devices_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_list({"studies": [ANSWER, {"study": "new", "status": "running"}]})
    tables.print_list({"studies": []})
    tables.print_front({"study": "new", "trials": []})
    tables.print_devices(
        {"devices": [{"kind": "cpu", "name": "Xeon", "total_memory_bytes": 96636764160, "uuid": None}]}
    )
    tables.print_devices({"devices": []})
    tables.print_facts({"store": "sqlite", "current": True, "tables": ["a", "b"]})
    out = capsys.readouterr().out
    for said in ("2.84x", "tuner run SPEC", "no trial", "90.00 GiB", "no device", "true", "a, b"):
        assert said in out
