"""What the watch reads from running objects, and how it waits for torch. The hooks themselves run in real scripts."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from objectives.script.inside._tightfit_watch import arrival, failures, readings, spoken
from objectives.script.inside._tightfit_watch.readings import Reading, real_tokens, size_of

IDS = torch.ones(4, 7, dtype=torch.long)


@pytest.mark.parametrize(
    ("arguments", "named", "samples"),
    [
        ((IDS,), {}, 4),
        ((), {"input_ids": IDS, "num_items_in_batch": torch.tensor(9.0)}, 4),
        ((torch.randn(3, 5),), {}, 3),
        (({"pixels": torch.randn(2, 3, 8, 8), "label": torch.tensor([1, 0])},), {}, 2),
        ((torch.randn(6, 2), IDS), {}, 4),  # token ids tell better than what stands before them
        (([torch.tensor(1.0)],), {}, None),
        (("text",), {"a": None}, None),
        ((), {"input_ids": IDS.reshape(1, -1), "position_ids": IDS.reshape(1, -1)}, None),  # joined into one row
        ((), {"input_ids": IDS[:1]}, 1),
    ],
)
def test_samples_of_a_micro_batch(arguments: Any, named: dict[str, Any], samples: int | None) -> None:
    assert size_of(arguments, named)[0] == samples


@pytest.mark.case("B02")
def test_padding_is_no_token() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert real_tokens({"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": mask}) == 3
    assert real_tokens({"input_ids": torch.ones(2, 3, dtype=torch.long)}) == 6
    assert real_tokens([torch.ones(2, 3)]) is None
    assert real_tokens({"pixels": torch.ones(2, 3)}) is None


@pytest.mark.case("C10", "C12")
@pytest.mark.parametrize(
    ("kept", "autocast", "word"),
    [
        (torch.float32, None, "fp32"),
        (torch.float32, torch.bfloat16, "bf16-mixed"),
        (torch.float32, torch.float16, "fp16-mixed"),
        (torch.bfloat16, None, "bf16-true"),
    ],
)
def test_precision_is_read_inside_a_layer(kept: torch.dtype, autocast: torch.dtype | None, word: str) -> None:
    layer = nn.Linear(2, 2).to(kept)
    reading = Reading(torch)
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        reading.see_leaf(layer)
    found = reading.applied(torch.optim.AdamW(layer.parameters(), fused=True))
    assert found["precision"] == word
    assert found["optimizer"] == "adamw-fused"


def test_a_layer_gathered_in_16_bits_over_32_bit_parameters_is_mixed() -> None:
    """How a sharded model computes: the optimizer keeps 32 bits, the layer sees 16."""
    reading = Reading(torch)
    reading.see_leaf(nn.Linear(2, 2).to(torch.bfloat16))
    assert reading.applied(torch.optim.SGD(nn.Linear(2, 2).parameters()))["precision"] == "bf16-mixed"


def test_a_loader_says_its_workers_and_batch() -> None:
    loader = DataLoader(TensorDataset(torch.randn(8, 2)), batch_size=4)
    iterator = iter(loader)
    reading = Reading(torch)
    reading.see_batch(iterator, next(iterator), count=True)
    assert reading.loader_samples == 4
    assert reading.loader == {"loader_workers": 0, "prefetch_factor": None, "pin_memory": False, "batch_size": 4}


def test_attention_is_found_below_wrappers() -> None:
    inner = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"))
    reading = Reading(torch)
    reading._root = lambda: SimpleNamespace(module=SimpleNamespace(_orig_mod=inner))
    assert reading._attention() == "sdpa"


def test_an_import_is_awaited_also_when_somebody_only_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``find_spec`` finds without executing: a finder that left then would never see the module."""
    (tmp_path / "awaited_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []
    before = list(sys.meta_path)
    arrival.when_imported("awaited_module", seen.append)
    try:
        assert importlib.util.find_spec("awaited_module") is not None
        assert importlib.util.find_spec("awaited_module") is not None
        assert seen == []
        module = importlib.import_module("awaited_module")
        assert seen == [module]
        assert type(module.__loader__).__name__ == "SourceFileLoader"
        assert sys.meta_path == before
    finally:
        sys.modules.pop("awaited_module", None)


def test_a_module_that_is_there_already_is_not_awaited() -> None:
    seen: list[Any] = []
    arrival.when_imported("json", seen.append)
    assert seen == [json]


def test_a_failure_is_told_with_its_whole_chain() -> None:
    try:
        try:
            raise torch.OutOfMemoryError("no room")
        except RuntimeError as error:
            raise ValueError("while building") from error
    except ValueError as error:
        found = failures.describe(error)
    assert [record["cls"] for record in found["chain"]] == ["ValueError", "torch.OutOfMemoryError"]
    assert "RuntimeError" in found["chain"][1]["bases"]
    assert found["traceback"].endswith("ValueError: while building\n")
    json.dumps(found)


class Line:
    def __init__(self) -> None:
        self.stop_at: int | None = None
        self.said: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.said.append(message)

    def listen(self) -> None:
        return


def test_reported_steps_are_sent_and_the_last_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    monkeypatch.setattr(spoken, "_SPOKEN", [])
    monkeypatch.setattr(spoken.threading, "Timer", lambda *_a, **_k: SimpleNamespace(daemon=False, start=lambda: None))
    said = {"samples": 8, "tokens": None, "accumulation_steps": 2, "precision": "fp32", "loader_workers": None}
    for _ in range(3):
        spoken.step(line, said)
    (applied,) = [message["applied"] for message in line.said if "applied" in message]
    assert applied == {"accumulation_steps": 2, "micro_batch_size": 4.0, "precision": "fp32"}
    line.stop_at = 1
    with pytest.raises(SystemExit) as left:
        spoken.step(line, said)
    assert left.value.code == 0
    rows = [row for message in line.said for row in message.get("steps", ())]
    assert [row[0] for row in rows] == [1, 2, 3, 4]
    assert "bye" in line.said[-1]


def test_the_readings_know_no_more_words_than_the_knobs() -> None:
    from objectives.knobs import knob

    assert set(readings.Reading(torch).applied(torch.optim.AdamW(nn.Linear(1, 1).parameters()))) <= {
        *(knob(name).name for name in ("optimizer", "compile")),
    }
