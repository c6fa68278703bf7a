"""Five unmodified scripts: step time against each script's own clock, and the time spent inside our hooks.

    python -m benchmarks.script [NAME ...]

Both are counted, not differenced: the script writes when each optimizer step ends (``--clock``), and the hooks add up
their own time. The two clocks cover exactly the same optimizer steps.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.bench import print_json, say
from objectives.config import TrainingConfig
from objectives.trial.protocol import RunRequest, WindowPlan
from tuner import spec as specs
from tuner.search.batch import GlobalBatch
from tuner.spec.model import StudySpec
from tuner.work.launcher import Launcher
from tuner.work.runner import Deadlines, RunEnd, execute

EXAMPLES = Path(__file__).parents[1] / "examples" / "scripts"
NAMES = ("plain", "hf_trainer", "sft", "lightning_fit", "accelerated")
WINDOW = WindowPlan(min_seconds=8.0, max_seconds=8.0, target_half_width=0.0)
CLOCK_TARGET, HOOK_TARGET = 0.03, 0.01


def main(*names: str) -> dict[str, Any]:
    """Measures each script's baseline once."""
    rows = {name: measured(name) for name in names or NAMES}
    for name, row in rows.items():
        say(f"{name:14} {row['step_seconds'] * 1e3:8.1f} ms a step, {row['against_own_clock']:+.2%} against its own "
            f"clock, {row['hook_share']:.3%} in our hooks, {row['steps']} steps, {row['ranks']} ranks")  # fmt: skip
    return {
        "scripts": rows,
        "clock_target": CLOCK_TARGET,
        "hook_target": HOOK_TARGET,
        "met": all(
            abs(r["against_own_clock"]) <= CLOCK_TARGET and r["hook_share"] < HOOK_TARGET for r in rows.values()
        ),
    }


def measured(name: str) -> dict[str, Any]:
    """One run of a script's baseline; the figures of its window beside the script's own."""
    spec = specs.read(EXAMPLES / f"{name}.yaml")
    with tempfile.TemporaryDirectory(prefix="tightfit-bench-") as folder:
        clock = Path(folder, "clock")
        end = run_with_clock(spec, clock, Path(folder))
        ended = [float(line) for line in clock.read_text().split()]
    found = end.measurement
    first = found["first_step"]
    last = min(found["last_step"], len(ended))  # the very last step is where the script is stopped: it says no more
    own = (ended[last - 1] - ended[first - 2]) / (last - first + 1)
    ours = fmean(found["step_seconds"][: last - first + 1])
    return {
        "step_seconds": ours,
        "own_step_seconds": own,
        "against_own_clock": ours / own - 1,
        "hook_share": found["hook_share"],
        "steps": found["blocks"],
        "ranks": len(found["ranks"]),
        "throughput": found["throughput"],
    }


def run_with_clock(spec: StudySpec, clock: Path, folder: Path) -> RunEnd:
    """The spec's baseline, with the script told to write its own times.

    Raises:
        RuntimeError: The run did not end well; its log is in the message.
    """
    batch = GlobalBatch.of(samples=spec.global_batch_size, tokens=None, data={}, ranks=spec.ranks)
    asked = TrainingConfig.from_mapping(spec.baseline)
    steps = batch.accumulation(micro_batch_size=asked.micro_batch_size)
    request = RunRequest(
        run=str(uuid.uuid4()), purpose="search", objective=replace(spec.objective, settings=clocked(spec, clock)),
        config=asked.with_values(accumulation_steps=steps).to_mapping(), global_batch_size=spec.global_batch_size or 1,
        window=WINDOW, world_size=spec.ranks,
    )  # fmt: skip
    with Launcher() as launcher:
        end = execute(launcher, request, folder / "log", Deadlines(trial_seconds=180, compile_seconds=60))
    if end.verdict.outcome != "completed":
        raise RuntimeError(f"{spec.study}: {end.verdict}\n{(folder / 'log').read_text(errors='replace')[-2000:]}")
    return end


def clocked(spec: StudySpec, clock: Path) -> Mapping[str, Any]:
    """The settings with one more option: where the script writes its times."""
    settings = dict(spec.objective.settings)
    option = [str(clock)] if "patch" in settings else ["--clock", str(clock)]
    return {**settings, "command": [*settings["command"], *option]}


if __name__ == "__main__":
    print_json(main(*sys.argv[1:]))
