"""The whole life of a run on a real GPU, in this process: what it measures, and what its cap refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from objectives.contract import ObjectiveReference, load_objective
from objectives.trial.protocol import RunRequest, WindowPlan
from objectives.trial.training_loop import run

pytestmark = pytest.mark.gpu

DEVICE: Any = "cuda"
MODEL = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}


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


@pytest.fixture(scope="module")
def objective(tmp_path_factory: pytest.TempPathFactory) -> ObjectiveReference:
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(40):
        (folder / f"{number}.txt").write_text("the quick brown fox jumps over the lazy dog\n" * (20 + number))
    reference = ObjectiveReference(
        kind="causal_lm",
        settings={
            "model": {"config": MODEL},
            "data": {"path": "*.txt", "tokenizer": {"train": {"vocab_size": 512}}, "sequence_length": 128},
        },
        folder=str(folder),
        cache=str(folder / "cache"),
    )
    load_objective(reference).prepare(Path(reference.cache))  # type: ignore[attr-defined]
    return reference


def measured(objective: ObjectiveReference, *, limit_bytes: int | None = None, **config: Any) -> Listening:
    channel = Listening()
    made = {"micro_batch_size": 4, "accumulation_steps": 2} | config
    window = WindowPlan(min_seconds=1.0, max_seconds=2.0, target_half_width=0)
    request = RunRequest(
        run="gpu", purpose="search", objective=objective, config=made, global_batch_size=8, device=DEVICE,
        memory_limit_bytes=limit_bytes, threads=2, window=window,
    )  # fmt: skip
    try:
        run(request, channel)  # type: ignore[arg-type]
    except torch.OutOfMemoryError as error:
        channel.send("failure", error=error, **channel.failure_facts())
    return channel


@pytest.mark.parametrize("precision", ["fp32", "fp16-mixed", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_a_run_reads_back_what_was_asked_and_measures_it(
    objective: ObjectiveReference, precision: str, checkpointing: str
) -> None:
    channel = measured(objective, precision=precision, activation_checkpointing=checkpointing)
    assert channel.last("applied")["differences"] == []
    measurement = channel.last("measurement")
    assert measurement["throughput"] > 0
    assert measurement["relative_standard_error"] is not None
    assert measurement["flops_per_unit"] > 6e6  # six FLOPs a parameter and token, and attention
    memory = measurement["memory"]
    assert memory["peak_memory_bytes"] >= memory["peak_reserved_bytes"] + memory["outside_bytes"] > 0


def test_the_cap_refuses_what_does_not_fit_and_says_so(objective: ObjectiveReference) -> None:
    failure = measured(objective, limit_bytes=2**29, micro_batch_size=64, accumulation_steps=1).last("failure")
    assert isinstance(failure["error"], torch.OutOfMemoryError)
    assert failure["cap_set"] is True
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_loader_workers_and_pinned_memory(objective: ObjectiveReference) -> None:
    channel = measured(objective, precision="bf16-mixed", loader_workers=2, pin_memory=True)
    applied = channel.last("applied")
    assert (applied["differences"], applied["config"]["pin_memory"]) == ([], True)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_run_shows_its_compilation_apart(objective: ObjectiveReference, mode: str) -> None:
    compiled = measured(objective, precision="bf16-mixed", compile=mode).last("measurement")["compile"]
    assert compiled["seconds"] > 0
    assert compiled["graphs"] >= 1
    assert compiled["limit_reached"] is False
