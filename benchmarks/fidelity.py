"""Is the confirmed number true? A confirmation's throughput against 300 optimizer steps of the same configuration.

    python -m benchmarks.fidelity [PAIRS]

Between runs a fixed reference kernel is timed. Only where it varies by less than 2 % does the machine count as quiet;
otherwise the differences are printed and nothing is claimed.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from benchmarks.bench import NO_DEADLINE, Bench, print_json, say, spread, throughput
from objectives.measure.reference_load import QUIET_VARIATION, ReferenceLoad, variation
from objectives.trial.protocol import Event, WindowPlan

CONFIG = {"micro_batch_size": 4, "precision": "bf16-mixed", "optimizer": "adamw-fused"}
STEPS = 300
CONFIRM_SECONDS = 8.0


def long_run(bench: Bench) -> float:
    """Throughput of 300 whole optimizer steps: units by the child's own account over its wall time between events."""
    seen: list[tuple[float, float]] = []
    measuring = [False]

    def watch(event: Event) -> str | None:
        if event.event == "phase":
            measuring[0] = event.fields["phase"] == "measure"
        elif event.event == "step" and measuring[0]:
            seen.append((event.monotonic_seconds, float(event.fields["units"])))
        return "300 steps" if len(seen) > STEPS else None

    window = WindowPlan(min_seconds=3600, max_seconds=3600, target_half_width=0)
    request = bench.request("search", CONFIG, window)
    end = bench.lane.run(request, NO_DEADLINE, environment={}, watch=watch)
    assert end.measurement["composed"] is False, end.verdict
    first, last = seen[0], seen[STEPS]
    return sum(units for _, units in seen[1 : STEPS + 1]) / (last[0] - first[0])


def main(pairs: int = 8) -> dict[str, Any]:
    """Runs the pairs and returns their relative differences and whether the machine was quiet."""
    bench = Bench()
    reference = ReferenceLoad("cuda" if bench.device.kind == "cuda" else "cpu", threads=bench.device.threads)
    differences, references = [], [reference.seconds()]
    for number in range(pairs):
        short = throughput(bench.measure(CONFIG, CONFIRM_SECONDS))
        references.append(reference.seconds())
        long = long_run(bench)
        references.append(reference.seconds())
        differences.append(short / long - 1)
        say(f"pair {number + 1}: confirmation {short:.0f}, {STEPS} steps {long:.0f}: {differences[-1]:+.1%}")
    bench.lane.close()
    varied = variation(references)
    quiet = varied < QUIET_VARIATION
    middle = median(map(abs, differences))
    return {
        "relative_differences": differences,
        "spread": spread(differences),
        "median_absolute_difference": middle,
        "reference_variation": varied,
        "quiet": quiet,
        "claim": f"median difference {middle:.1%}, target 3 %: {'met' if middle <= 0.03 else 'missed'}" if quiet
        else "not quiet: nothing is claimed",
    }  # fmt: skip


if __name__ == "__main__":
    print_json(main(*map(int, sys.argv[1:])))
