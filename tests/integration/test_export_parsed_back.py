"""The files read back by the target's own parser: transformers and accelerate, as installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from handovers import handover_of, matrix

from tuner.export import export, format_named
from tuner.export.handover import ExportRefused, Handover

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
