"""`python -m benchmarks.search` as a person or a script types it, every strategy on a small made-up table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.replay.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.search", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two cuts of one made-up grid of 24 configurations, one of them with a knob nobody knows, without predictions."""
    folder = tmp_path_factory.mktemp("tables")
    files = []
    for limit, extra in ((300, {}), (150, {"frobnicate": "yes"})):
        lines: list[dict] = [
            {
                "table": f"made@{limit}", "grid": "made", "device": "cpu", "throughput_unit": "tokens_per_second",
                "global_batch_size": 16, "memory_limit_bytes": limit, "baseline": None, "versions": {},
            }
        ]  # fmt: skip
        for size in (1, 2, 4, 8):
            for precision, faster in (("fp32", 1.0), ("bf16-mixed", 1.7)):
                for checkpointing, speed, act in (("none", 1.0, 40), ("selective", 0.9, 25), ("full", 0.7, 9)):
                    peak = 40 + act * size
                    lines.append(
                        {
                            "config": {"micro_batch_size": size, "precision": precision,
                                       "activation_checkpointing": checkpointing, **extra},
                            "outcome": "completed" if peak < 330 else "device_oom",
                            "throughput": 100 * faster * speed * size / (size + 1) if peak < 330 else None,
                            "peak_memory_bytes": peak if peak < 330 else None,
                            "seconds": 10.0 if peak < 330 else 3.0, "outcome_source": "measured",
                            **({} if extra else {"predicted_peak_memory_bytes": peak}),
                        }
                    )  # fmt: skip
        file = folder / f"{limit}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        files += ["--table", str(file)]
    return files


def test_every_strategy_is_replayed_into_one_document(tables: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "regret.svg"
    ended = command(*tables, "--seeds", "1", "--json", "--jobs", "2", "--plot", str(picture))
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert set(told["strategies"]) == {each.name for each in STRATEGIES}
    assert [table["table"] for table in told["tables"]] == ["made@300", "made@150"]
    for name, mine in told["strategies"].items():
        assert len(mine["seconds_to_1pct"]["values"]) == 2, name
        assert all(value >= 10 for value in mine["seconds_to_stop"]["values"]), name  # the baseline is charged to all
        assert all(0 <= value <= 1 for value in mine["regret_at_stop"]["values"]), name
        assert all(0 <= value <= 1.0001 for value in mine["hypervolume"]["values"]), name
    assert told["strategies"]["auto"]["answers_over_limit"] == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_unusable_arguments_end_with_2_and_a_reason(tables: list[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"table": "t"}\nnonsense\n', encoding="utf-8")
    for arguments, words in (
        (["--table", str(broken)], f"{broken}, line 2: not JSON"),
        ([*tables, "--only", "nobody"], "no strategy 'nobody'"),
        ([tables[0], tables[1], tables[0], tables[1]], "two files hold a table named"),
    ):
        ended = command(*arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert words in ended.stderr
