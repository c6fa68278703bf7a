"""The figures that the doctor's checks read from a run on a real GPU are there, and mean what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from objectives.contract import ObjectiveReference
from objectives.measure.memory import open_memory
from objectives.trial.protocol import RunRequest, WindowPlan
from objectives.trial.training_loop import run

pytestmark = pytest.mark.gpu

MIB = 2**20


class Listening:
    """A channel that keeps what is sent."""

    stop_requested = False
    stop_reason = None

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.failure_facts: Any = dict

    def send(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def phase(self, name: str) -> None:
        self.send("phase", phase=name)

    def last(self, name: str) -> dict[str, Any]:
        return [fields for event, fields in self.events if event == name][-1]


class WideWorkload:
    """Products large enough for tensor cores; evaluation keeps 256 MiB more than training does."""

    def __init__(self, device: torch.device) -> None:
        self.model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to(device)

    def dataset(self) -> list[int]:
        return list(range(256))

    def collate(self, samples: list[int]) -> dict[str, torch.Tensor]:
        ids = torch.zeros(len(samples), 64, dtype=torch.long)
        return {"input_ids": ids, "rows": torch.ones(len(samples), 64, 1024)}

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
        return model(batch["rows"]).float().square().sum(), 48 * len(batch["rows"])

    def longest(self, micro_batch_size: int) -> dict[str, torch.Tensor]:
        return self.collate([0] * micro_batch_size)

    def evaluate(self, model: nn.Module) -> None:
        with torch.no_grad():
            kept = torch.ones(256 * MIB, dtype=torch.uint8, device="cuda")
            model(torch.ones(1, 64, 1024, device="cuda"))
            del kept


class Wide:
    """The objective ``test_doctor_figures_gpu:Wide``."""

    unit = "tokens"

    def build(self, device: torch.device, seed: int) -> WideWorkload:
        torch.manual_seed(seed)
        return WideWorkload(device)


def measured(purpose: str = "search", **knobs: Any) -> Listening:
    channel = Listening()
    config = {"micro_batch_size": 8, "accumulation_steps": 2, **knobs}
    request = RunRequest(
        run="doctor", purpose=purpose, config=config, global_batch_size=16, device="cuda",  # type: ignore[arg-type]
        objective=ObjectiveReference(kind="test_doctor_figures_gpu:Wide", folder=str(Path(__file__).parent)),
        window=WindowPlan(min_seconds=0.5, max_seconds=1.0),
    )  # fmt: skip
    run(request, channel)  # type: ignore[arg-type]
    return channel


def test_batch_and_memory_reads_evaluation_beside_training() -> None:
    channel = measured("confirm")
    memory = channel.last("memory")
    assert memory["phase"] == "eval"
    assert memory["peak_memory_bytes"] >= channel.last("measurement")["memory"]["peak_memory_bytes"] + 100 * MIB


def test_fragmentation_reads_reserved_allocated_free_block_and_retries() -> None:
    memory = measured().last("measurement")["memory"]
    assert memory["peak_reserved_bytes"] >= memory["peak_allocated_bytes"] > 0
    assert memory["largest_free_block_bytes"] is not None
    assert memory["allocation_retries"] == 0


def test_fragmentation_sees_memory_in_pieces_by_its_share() -> None:
    memory = open_memory("cuda")
    memory.warm(1)
    memory.start()
    kept = [torch.ones(3 * MIB, dtype=torch.uint8, device="cuda") for _ in range(64)]
    whole = memory.reading()
    del kept[::2]
    torch.cuda.synchronize()
    pieces = memory.reading()
    assert pieces.fragmentation_share is not None
    assert whole.fragmentation_share is not None
    assert pieces.fragmentation_share > whole.fragmentation_share + 0.2
    assert (pieces.largest_free_block_bytes or 0) < 64 * 3 * MIB


def test_precision_reads_a_gain_that_tensor_cores_make() -> None:
    rates = {name: measured(precision=name).last("measurement")["throughput"] for name in ("fp32", "bf16-mixed")}
    assert rates["bf16-mixed"] > rates["fp32"]


def test_data_loading_reads_stall_padding_and_the_size_of_a_batch() -> None:
    said = measured(loader_workers=1).last("measurement")
    assert 0.0 <= said["data_stall_share"] <= 1.0
    assert said["padding_share"] == pytest.approx(0.25)  # 48 of 64 positions are real
    assert said["batch_bytes"] == 8 * 64 * (1024 * 4 + 8)
    assert said["workers_bytes_before"] > 0
