"""Planted workloads: each of the mistakes 1, 2 and 5 in three real workloads, and a clean twin of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import PRELOAD
from planted_studies import PLANTED, planted, two_ranks

from objectives.trial.protocol import WindowPlan
from tuner.doctor import diagnose
from tuner.work.launcher import Launcher

SMALL, LARGE = {"micro_batch_size": 4}, {"micro_batch_size": 16}
LONGER = WindowPlan(min_seconds=1.5, max_seconds=1.5, target_half_width=0.0)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(preload=PRELOAD, path=str(PLANTED)) as made:
        yield made


def with_precision(*names: str) -> list[dict[str, Any]]:
    return [{"micro_batch_size": 8, "precision": name} for name in names]


FORMATS = [{"micro_batch_size": 8}, {"micro_batch_size": 8, "memory_format": "channels_last"}]
CONVOLUTIONS = {"machine": {"has_convolutions": True}}
ONCE = {"repeats": 1}

PRECISION = "precision_and_memory_format"
PLANTS = [
    # check, question, fault, its clean twin, configurations (the baseline first), how it is run (`clean`: other
    # configurations of the twin, where the fault is the baseline's own)
    ("batch_and_memory", "largest_that_fits", "SlowerAtTheEdge", "Paced", [LARGE, SMALL], {}),
    (
        "batch_and_memory",
        "largest_that_fits",
        "DearMicroBatches",
        "DearMicroBatches",
        [SMALL, LARGE],
        {"clean": [LARGE, SMALL]},
    ),
    ("batch_and_memory", "evaluation", "LargeEvaluation", "SmallEvaluation", [SMALL], {**ONCE, "purpose": "confirm"}),
    (PRECISION, "precision_gain", "FastInBf16", "Paced", with_precision("fp32", "bf16-mixed"), {}),
    (PRECISION, "loss_scale_skips", "Overflowing", "SmallNumbers", with_precision("fp16-mixed"), ONCE),
    (PRECISION, "memory_format_gain", "FastChannelsLast", "Pictures", FORMATS, CONVOLUTIONS),
    ("data_loading", "stall", "SlowCollate", "Paced", [SMALL], ONCE),
    ("data_loading", "first_pass", "SlowFirstPass", "EvenPasses", [SMALL], {**ONCE, "window": LONGER}),
    ("data_loading", "padding", "Padded", "EvenLengths", [SMALL], ONCE),
]
QUICK = ("SlowerAtTheEdge", "FastInBf16", "Overflowing", "SlowCollate", "Padded")
"""One or two of each mistake run always, the others with the slow tests."""


@pytest.mark.parametrize(
    ("check", "question", "fault", "clean", "configs", "how"),
    [pytest.param(*each, id=each[2], marks=() if each[2] in QUICK else (pytest.mark.slow,)) for each in PLANTS],
)
def test_the_fault_is_found_and_its_clean_twin_is_not_accused(
    launcher: Launcher, tmp_path: Path, check: str, question: str, fault: str, clean: str, configs: Any, how: Any
) -> None:
    asked = {"launcher": launcher, "folder": tmp_path, **how}
    right = asked.pop("clean", configs)
    bad = diagnose(planted(objective=f"planted_pace:{fault}", configs=configs, **asked))
    result = next(each for each in bad.checks if each.name == check)
    found = next(each for each in result.findings if each.name == question)
    assert found.verdict in ("improve", "broken"), found
    assert found.runs
    assert found.advice
    good = diagnose(planted(objective=f"planted_pace:{clean}", configs=right, **asked))
    accused = [each.statement for one in good.checks for each in one.findings if each.verdict in ("improve", "broken")]
    assert not accused


SPLIT = ["--tensor-model-parallel-size", "2", "--num-attention-heads"]
RANKS = [
    pytest.param("rank_balance", ["--fault", "slow-rank"], "waits", id="slow rank"),
    pytest.param("rank_balance", ["--fault", "long-sentences"], "real tokens", id="long sentences"),
    pytest.param("division", [*SPLIT, "7"], "heads do not divide", id="heads"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("question", "words", "told"), RANKS)
def test_ranks_that_do_not_do_the_same_are_found(tmp_path: Path, question: str, words: list[str], told: str) -> None:
    view = two_ranks(tmp_path, *words)
    result = next(each for each in diagnose(view).checks if each.name == "parallelism")
    found = next(each for each in result.findings if each.name == question)
    assert found.verdict in ("improve", "broken"), found
    assert told in found.statement
    assert found.advice


@pytest.mark.slow
def test_ranks_that_do_the_same_are_not_accused(tmp_path: Path) -> None:
    result = next(each for each in diagnose(two_ranks(tmp_path)).checks if each.name == "parallelism")
    assert result.verdict == "fine", result
    assert {each.name for each in result.findings} == {"division", "rank_balance"}
