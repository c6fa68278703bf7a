"""Do the intervals cover? 8 configurations, 20 runs each, interleaved; every interval is made as a study makes it.

    python -m benchmarks.coverage [RUNS]

An interval, widened by the standard error of the mean of the configuration's other runs, should cover that mean. The
share that does, with its Wilson interval, stands beside the median half-width.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import UTC, datetime
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.bench import Bench, print_json, say, throughput, wilson_lower
from tuner.search.noise import interval_of, pooled_spread
from tuner.search.windows import Window
from tuner.work.runner import RunEnd

CONFIGS: tuple[dict[str, Any], ...] = (
    {"micro_batch_size": 1, "precision": "fp32", "activation_checkpointing": "full"},
    {"micro_batch_size": 4, "precision": "fp32"},
    {"micro_batch_size": 2, "precision": "bf16-mixed"},
    {"micro_batch_size": 4, "precision": "bf16-mixed", "activation_checkpointing": "full"},
    {"micro_batch_size": 8, "precision": "bf16-mixed", "optimizer": "adamw-fused"},
    {"micro_batch_size": 4, "precision": "bf16-true", "optimizer": "adamw-fused"},
    {"micro_batch_size": 8, "precision": "bf16-true", "loss": "chunked"},
    {"micro_batch_size": 8, "precision": "bf16-true", "optimizer": "adamw-fused", "loader_workers": 1},
)
SECONDS = 3.0


def main(runs: int = 20) -> dict[str, Any]:
    """Runs everything and returns the coverage."""
    bench = Bench()
    windows: list[list[Window]] = [[] for _ in CONFIGS]
    for turn in range(runs):
        for number, config in enumerate(CONFIGS):
            measured = bench.measure(config, SECONDS)
            windows[number].append(window_of(number, measured))
        say(f"round {turn + 1} of {runs}: " + " ".join(f"{math.exp(each[-1].log_throughput):.0f}" for each in windows))
    bench.lane.close()
    return coverage(windows, bench.device.kind)


def window_of(configuration: int, end: RunEnd) -> Window:
    """The window of a run as the search sees it."""
    return Window(
        run_id=str(time.monotonic()),
        trial_id=configuration,
        log_throughput=math.log(throughput(end)),
        relative_error=float(end.measurement["relative_standard_error"] or 0.0),
        at=datetime.now(UTC),
    )


def coverage(windows: list[list[Window]], device_kind: str) -> dict[str, Any]:
    """How many single-window intervals cover the mean of the configuration's other windows."""
    spread = pooled_spread([window for each in windows for window in each], device_kind)
    hits, halves = [], []
    for each in windows:
        for index, window in enumerate(each):
            others = [other.log_throughput for place, other in enumerate(each) if place != index]
            interval = interval_of([window], spread)
            extra = stdev(others) / math.sqrt(len(others))
            low, high = math.log(interval.low) - extra, math.log(interval.high) + extra
            hits.append(low <= fmean(others) <= high)
            halves.append((interval.high / interval.low) ** 0.5 - 1)
    share = sum(hits) / len(hits)
    lower = wilson_lower(sum(hits), len(hits))
    return {"intervals": len(hits), "coverage": share, "wilson_lower": lower, "target": 0.85, "met": lower >= 0.85,
            "median_half_width": median(halves), "between_run_spread": spread.relative}  # fmt: skip


if __name__ == "__main__":
    print_json(main(*map(int, sys.argv[1:])))
