"""What the benchmarks share: runs of the quickstart's model outside any study, and the statistics they print."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from objectives.config import TrainingConfig, accumulation_steps
from objectives.preload import preload_modules
from objectives.trial.protocol import Purpose, RunRequest, WindowPlan
from tuner import spec as specs
from tuner.work.lane import Lane, choose_devices, new_run_id
from tuner.work.runner import Deadlines, RunEnd

QUICKSTART = Path(__file__).parent.parent / "examples" / "quickstart.yaml"
NO_DEADLINE = Deadlines(trial_seconds=3600, compile_seconds=3600)


class Bench:
    """One lane on this machine's first device, with the quickstart's data prepared."""

    def __init__(self, spec_file: Path = QUICKSTART) -> None:
        self.spec = specs.read(spec_file)
        self.device = choose_devices("auto")[0]
        self.folder = Path(tempfile.mkdtemp(prefix="tightfit-bench-"))
        self.lane = Lane(
            self.device,
            preload=preload_modules(self.spec.objective),
            path=self.spec.objective.folder,
            folder=self.folder,
        )
        end = self._run(self.request("capability", {}, WindowPlan(), answer={"prepare": True}))
        assert end.verdict.outcome == "completed", end.evidence

    def request(
        self,
        purpose: Purpose,
        config: Mapping[str, Any],
        window: WindowPlan,
        *,
        answer: Mapping[str, Any] | None = None,
    ) -> RunRequest:
        """A request for a configuration (knobs left out: the defaults)."""
        made = TrainingConfig.from_mapping(config)
        batch = self.spec.global_batch_size or 1
        steps = accumulation_steps(global_batch_size=batch, micro_batch_size=made.micro_batch_size)
        return RunRequest(
            run=new_run_id(),
            purpose=purpose,
            objective=self.spec.objective,
            config=made.with_values(accumulation_steps=steps).to_mapping() if purpose != "capability" else {},
            global_batch_size=batch,
            device=self.device.kind,
            device_uuid=self.device.uuid,
            memory_limit_bytes=self.spec.limits.memory.bytes_of(self.device.total_memory_bytes),
            threads=self.device.threads,
            environment={"CUDA_VISIBLE_DEVICES": self.device.uuid} if self.device.uuid else {},
            window=window,
            answer=answer or {},
        )

    def measure(self, config: Mapping[str, Any], seconds: float) -> RunEnd:
        """One run with a fixed window of so many seconds. Its failure is the benchmark's."""
        window = WindowPlan(min_seconds=seconds, max_seconds=seconds, target_half_width=0)
        end = self._run(self.request("search", config, window))
        assert end.verdict.outcome == "completed", (config, end.verdict, end.evidence)
        return end

    def _run(self, request: RunRequest) -> RunEnd:
        return self.lane.run(request, NO_DEADLINE, environment=self.spec.environment)


def throughput(end: RunEnd) -> float:
    """Units per second of a completed run."""
    return float(end.measurement["throughput"])


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Count, minimum, median, maximum and standard deviation."""
    return {
        "n": len(values),
        "min": min(values),
        "median": median(values),
        "mean": fmean(values),
        "max": max(values),
        "standard_deviation": stdev(values) if len(values) > 1 else math.nan,
    }


def wilson_lower(hits: int, tries: int, z: float = 1.96) -> float:
    """Lower end of the 95 % Wilson interval of a share."""
    share = hits / tries
    middle = share + z * z / (2 * tries)
    half = z * math.sqrt(share * (1 - share) / tries + z * z / (4 * tries * tries))
    return (middle - half) / (1 + z * z / tries)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Mapping[str, Any]) -> None:
    """The result, on stdout."""
    print(json.dumps(document, indent=2, default=str))
