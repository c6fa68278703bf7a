"""How often the interval of one window covers the truth, by simulation: ``python -m benchmarks.window_coverage``.

Steps are a first-order process with the given variation and lag-1 correlation; the truth is its long-run throughput.
Nothing here says anything about drift that outlasts a window: that variance is between windows.
"""

import math
import random

from objectives.measure.window import Block, narrow_enough, summarise
from objectives.trial.protocol import WindowPlan

RUNS = 400
PROCESSES = ((0.03, 0.0), (0.03, 0.3), (0.03, 0.6), (0.2, 0.8))


def blocks(count: int, variation: float, correlation: float, rng: random.Random) -> list[Block]:
    """One window of steps around 0.1 s."""
    x, made = rng.gauss(0, 1), []
    for _ in range(count):
        seconds = 0.1 * math.exp(variation * x)
        made.append(Block(micro_seconds=(seconds,), micro_units=(100,), optimizer_seconds=0.0, accumulation_steps=1))
        x = correlation * x + math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
    return made


def until_narrow(window: list[Block], plan: WindowPlan) -> list[Block]:
    """The part of a window that ran before it was narrow enough."""
    elapsed = 0.0
    for count, block in enumerate(window, 1):
        elapsed += block.wall_seconds
        if narrow_enough(window[:count], plan, elapsed):
            return window[:count]
    return window


def main() -> None:
    """Prints coverage and mean half-width of fixed windows and of windows that stop when narrow."""
    rng = random.Random(0)
    plan = WindowPlan(min_seconds=4.0, max_seconds=40.0, target_half_width=0.01)
    print("blocks    variation  correlation  coverage  half-width")
    for count in (5, 10, 20, 80, 400, 0):
        for variation, correlation in PROCESSES:
            true, covered, width = 1000 / math.exp(variation**2 / 2), 0, 0.0
            for _ in range(RUNS):
                window = blocks(count or 400, variation, correlation, rng)
                summary = summarise(window if count else until_narrow(window, plan))
                assert summary.half_width_95 is not None
                covered += abs(summary.throughput / true - 1) <= summary.half_width_95
                width += summary.half_width_95 / RUNS
            name = str(count) if count else "stopping"
            print(f"{name:9} {variation:9} {correlation:12} {covered / RUNS:9.3f} {width:11.4f}")


if __name__ == "__main__":
    main()
