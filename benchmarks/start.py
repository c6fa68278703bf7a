"""Run start to first optimizer step: a warm template's child against a cold process, same configuration, interleaved.

python -m benchmarks.start [PAIRS]
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

from benchmarks.bench import NO_DEADLINE, Bench, print_json, say, spread
from objectives.trial.protocol import Event, WindowPlan
from tuner.work.runner import execute

CONFIG = {"micro_batch_size": 1, "precision": "bf16-mixed"}
SHORT = WindowPlan(min_seconds=0.0, max_seconds=0.0, target_half_width=0)


def first_step_seconds(bench: Bench, *, cold: bool) -> float:
    """Seconds from the request to the end of the first optimizer step."""
    seen: list[float] = []

    def watch(event: Event) -> str | None:
        if event.event == "step" and not seen:
            seen.append(time.perf_counter())
        return None

    launcher = bench.lane._launcher(bench.spec.environment)
    begun = time.perf_counter()
    end = execute(
        launcher,
        bench.request("search", CONFIG, SHORT),
        bench.folder / "start.log",
        NO_DEADLINE,
        watch=watch,
        cold=cold,
    )
    assert end.verdict.outcome == "completed", end.evidence
    assert end.evidence["warm_start"] is not cold, end.evidence["cold_reason"]
    return seen[0] - begun


def main(pairs: int = 6) -> dict[str, Any]:
    """Runs the pairs and returns their seconds and ratio."""
    bench = Bench()
    warm, cold = [], []
    for number in range(pairs):
        warm.append(first_step_seconds(bench, cold=False))
        cold.append(first_step_seconds(bench, cold=True))
        say(f"pair {number + 1}: warm {warm[-1]:.2f} s, cold {cold[-1]:.2f} s")
    bench.lane.close()
    ratios = [w / c for w, c in zip(warm, cold, strict=True)]
    return {"warm_seconds": spread(warm), "cold_seconds": spread(cold), "ratio": spread(ratios), "target": 0.15,
            "met": median(ratios) <= 0.15}  # fmt: skip


if __name__ == "__main__":
    print_json(main(*map(int, sys.argv[1:])))
