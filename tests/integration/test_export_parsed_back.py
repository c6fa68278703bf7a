"""The files read back by the target's own parser: transformers and accelerate, as installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from handovers import handover_of, matrix

from objectives.data import packing
from objectives.data.collate import collate_packed
from objectives.data.packing import first_fit
from tuner.export import export, format_named
from tuner.export.handover import ExportRefused, Handover
from tuner.export.in_code import OPEN_ROWS

transformers = pytest.importorskip("transformers")
accelerate_config = pytest.importorskip("accelerate.commands.config")


@dataclass
class Unchecked(transformers.TrainingArguments):
    """The same fields and parser without the look at this machine, for files made for another."""

    def __post_init__(self) -> None:
        """Nothing: a CUDA export cannot be constructed in full where there is no CUDA device."""


def written(folder: Path, handover: Handover, name: str) -> Path:
    made = export(handover, format_named(name))
    for file, text in made.files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def packed_code(attention: str, longest: int) -> str:
    config = {"batching": "packed", "attention": attention}
    made = export(handover_of(config=config, longest_tokens=longest, global_batch_tokens=10_000), format_named(NAME))
    return "\n".join(next(each for each in made.not_carried if each.knob == "batching").code)


NAME = "hf-trainer"


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_the_packed_data_set_of_the_trainer_is_the_one_that_was_measured(attention: str) -> None:
    """Run as written: the same rows, positions and targets as the trials', so the same tokens per batch."""
    numbers = np.random.default_rng(0)
    documents = [numbers.integers(1, 99, size).astype(np.int64) for size in numbers.integers(2, 17, 200)]
    names: dict[str, Any] = {
        "documents": [each.tolist() for each in documents],
        "default_data_collator": transformers.default_data_collator,
        "tokenizer": SimpleNamespace(pad_token_id=0, eos_token_id=7),
    }
    exec(packed_code(attention, 16), names)
    rows = [[documents[index] for index in row] for row in first_fit(map(len, documents), 16)]
    assert len(names["dataset"]) == len(rows)
    for start in range(0, len(rows) - 4, 4):
        batch = names["data_collator"](names["dataset"][start : start + 4])
        wanted = collate_packed(rows[start : start + 4], fill=7, sequence_length=16)
        shape = (1, 64) if attention.startswith("flash") else (4, 16)
        assert set(batch) == {"input_ids", "position_ids", "labels"}
        assert batch["input_ids"].shape == shape
        flat = {name: tensor.reshape(4, 16) for name, tensor in batch.items()}
        assert flat["input_ids"].equal(wanted["input_ids"])
        assert flat["position_ids"].equal(wanted["position_ids"])
        assert flat["labels"][:, 1:].equal(wanted["targets"][:, :-1])  # the model's loss shifts by itself
    assert OPEN_ROWS == packing.OPEN_ROWS


def parse(folder: Path, kind: type = transformers.TrainingArguments) -> tuple[Any, Any]:
    parser = transformers.HfArgumentParser(kind)
    (from_json,) = parser.parse_json_file(str(folder / "training_args.json"))
    (from_yaml,) = parser.parse_yaml_file(str(folder / "training_args.yaml"))
    return from_json, from_yaml


def check(arguments: Any, handover: Handover) -> None:
    """Every value of the matrix, with the type it has to have."""
    config = handover.config
    micro, steps = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    assert micro * steps * handover.ranks == handover.global_batch_size
    assert (arguments.fp16, arguments.bf16) == (config.precision == "fp16-mixed", config.precision == "bf16-mixed")
    assert arguments.tf32 is (config.precision == "tf32")
    assert arguments.activation_checkpointing is (config.activation_checkpointing == "full")
    if config.activation_checkpointing == "full":
        assert arguments.activation_checkpointing_kwargs == {"use_reentrant": False}
    assert arguments.torch_compile is (config.compile != "off")
    assert arguments.torch_compile_mode == (None if config.compile == "off" else config.compile)
    assert arguments.dataloader_num_workers == config.loader_workers
    assert arguments.dataloader_persistent_workers is (config.loader_workers > 0)
    assert arguments.dataloader_prefetch_factor == (config.prefetch_factor if config.loader_workers else None)
    assert arguments.dataloader_pin_memory is config.pin_memory
    assert arguments.auto_find_batch_size is False
    assert all(type(value) is int for value in (micro, steps, arguments.dataloader_num_workers))
    assert type(arguments.max_grad_norm) is float


def supported(handover: Handover, name: str) -> bool:
    try:
        export(handover, format_named(name))
    except ExportRefused:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_arguments_of_a_cpu_study_construct_over_the_whole_matrix(tmp_path: Path) -> None:
    handovers = [each for each in matrix("cpu") if supported(each, "hf-trainer")]
    assert len(handovers) == 36
    for handover in handovers:
        for arguments in parse(written(tmp_path, handover, "hf-trainer")):
            check(arguments, handover)
            assert arguments.use_cpu


def test_arguments_of_a_cuda_study_parse_over_the_whole_matrix(tmp_path: Path) -> None:
    for handover in matrix("cuda"):
        for arguments in parse(written(tmp_path, handover, "hf-trainer"), Unchecked):
            check(arguments, handover)
            assert arguments.use_cpu is False


@pytest.mark.filterwarnings("ignore")
def test_the_older_name_of_checkpointing_for_an_older_library(tmp_path: Path) -> None:
    handover = handover_of("cpu", config={"activation_checkpointing": "full"}, versions={"transformers": "5.17.2"})
    for arguments in parse(written(tmp_path, handover, "hf-trainer")):
        assert arguments.activation_checkpointing is True
        assert arguments.activation_checkpointing_kwargs == {"use_reentrant": False}


def test_an_awkward_number_survives_yaml(tmp_path: Path) -> None:
    for arguments in parse(written(tmp_path, handover_of(max_grad_norm=1e-05), "hf-trainer"), Unchecked):
        assert arguments.max_grad_norm == 1e-05


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("ranks", [1, 4])
def test_accelerate_loads_its_file_over_the_whole_matrix(kind: str, ranks: int, tmp_path: Path) -> None:
    for each in matrix(kind):
        config = each.config.knobs() | {"accumulation_steps": each.config.accumulation_steps}
        handover = handover_of(kind, ranks=ranks, config=config)
        if not supported(handover, "accelerate"):
            assert (kind, handover.config.precision) == ("cpu", "fp16-mixed")
            continue
        path = written(tmp_path, handover, "accelerate") / "accelerate.yaml"
        loaded = accelerate_config.load_config_from_file(str(path))
        wanted = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}.get(handover.config.precision, "no")
        assert loaded.mixed_precision == wanted, "`no` must not be read as false"
        assert loaded.num_processes == ranks
        assert loaded.use_cpu is (kind == "cpu")
        assert loaded.distributed_type.value == ("NO" if ranks == 1 else f"MULTI_{'CPU' if kind == 'cpu' else 'GPU'}")
        assert bool(loaded.dynamo_config) is (handover.config.compile != "off")


def test_the_code_for_selective_checkpointing_keeps_what_the_trials_kept() -> None:
    """The lines are run as they stand, and the policy they make is asked beside the knob's own."""
    from torch.utils.checkpoint import CheckpointPolicy

    from objectives.knobs.checkpointing import _KEPT

    class Model:
        """Takes what the code gives a transformers model."""

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
            self.options = gradient_checkpointing_kwargs

    made = export(handover_of(config={"activation_checkpointing": "selective"}), format_named("hf-trainer"))
    (left,) = [each for each in made.not_carried if each.knob == "activation_checkpointing"]
    names: dict[str, Any] = {"model": Model()}
    exec("\n".join(left.code), names)
    assert names["model"].options["use_reentrant"] is False
    for operator in (*_KEPT, "aten.gelu.default", "aten.native_layer_norm.default", "aten.mul.Tensor"):
        kept = names["policy"](None, operator) == CheckpointPolicy.MUST_SAVE
        assert kept is (operator in _KEPT), operator
