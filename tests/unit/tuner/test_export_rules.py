"""Each target's own rules, written down from its documentation; its own parser reads the files elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from typing import Any

import pytest
from handovers import handover_of, matrix

from objectives.knobs.allocator import VARIABLES
from tuner.export import export, format_named
from tuner.export.deepspeed import PRECISIONS as AUTOCAST
from tuner.export.environment import environment, left_out
from tuner.export.handover import Export, ExportRefused, Handover, for_ranks
from tuner.export.known_keys import known_keys

LIGHTNING_PRECISION = {"32-true", "16-mixed", "bf16-mixed", "bf16-true"}
DROPPED_BY_TRANSFORMERS_5 = {
    "evaluation_strategy", "warmup_ratio", "logging_dir", "half_precision_backend", "no_cuda", "group_by_length",
    "per_gpu_train_batch_size", "include_tokens_per_second", "save_safetensors", "overwrite_output_dir", "fsdp",
}  # fmt: skip


def made_of(handover: Handover, name: str) -> Export | None:
    try:
        return export(handover, format_named(name))
    except ExportRefused:
        return None


def files_of(name: str, kind: str = "cuda") -> list[tuple[Handover, Export, dict[str, Any]]]:
    """Every export of the matrix with its JSON files as plain data."""
    found = []
    for handover in matrix(kind):
        made = made_of(handover, name)
        if made is not None:
            loaded = {file: json.loads(text) for file, text in made.files.items() if file.endswith(".json")}
            found.append((handover, made, loaded))
    assert len(found) >= 24
    return found


def numbers_only(values: Any) -> bool:
    """Whether no number and no boolean hides in a text."""
    if isinstance(values, dict):
        return all(map(numbers_only, values.values()))
    return not (isinstance(values, str) and re.fullmatch(r"true|false|auto|[-+.\de]+", values, re.IGNORECASE))


@pytest.mark.case("I01", "I08")
def test_trainer_arguments_hold_one_precision_and_no_dropped_name() -> None:
    for handover, _, files in files_of("hf-trainer"):
        values = files["training_args.json"]
        assert not (values["fp16"] and values["bf16"])
        assert {"fp16", "bf16", "tf32"} <= set(values)
        assert not DROPPED_BY_TRANSFORMERS_5 & set(values)
        assert set(values) <= known_keys("hf-trainer")
        assert numbers_only(values)
        assert not {"gradient_checkpointing", "activation_checkpointing"} <= set(values)
        assert values["per_device_eval_batch_size"] == handover.config.micro_batch_size


@pytest.mark.case("I11")
@pytest.mark.parametrize("version", ["5.24.0", "6.1", "5.17.0", "4.57", None])
def test_checkpointing_is_never_reentrant_and_has_the_librarys_name(version: str | None) -> None:
    versions = {} if version is None else {"transformers": version}
    values = export(
        handover_of(config={"activation_checkpointing": "full"}, versions=versions), format_named("hf-trainer")
    ).values
    name = "activation_checkpointing" if version in ("5.24.0", "6.1") else "gradient_checkpointing"
    assert values[name] is True
    assert values[f"{name}_kwargs"] == {"use_reentrant": False}


def test_selective_checkpointing_goes_to_the_trainer_as_code_that_runs() -> None:
    made = export(handover_of(config={"activation_checkpointing": "selective"}), format_named("hf-trainer"))
    assert made.values["activation_checkpointing"] is False
    (left,) = [each for each in made.not_carried if each.knob == "activation_checkpointing"]
    compile("\n".join(left.code), "<code>", "exec")
    assert any("context_fn" in line for line in left.code)
    assert "context_fn" in made.files["NOTES.md"]


@pytest.mark.case("I02", "I04", "I05")
def test_raw_deepspeed_holds_numbers_alone_and_a_whole_triangle() -> None:
    for handover, _, files in files_of("deepspeed"):
        raw = files["ds_config.json"]
        micro, steps = raw["train_micro_batch_size_per_gpu"], raw["gradient_accumulation_steps"]
        assert raw["train_batch_size"] == micro * steps * handover.ranks == handover.global_batch_size
        assert numbers_only(raw)
        assert set(raw) <= known_keys("deepspeed")
        assert (raw["fp16"], raw["bf16"]) == ({"enabled": False}, {"enabled": False})
        assert raw["torch_autocast"] == AUTOCAST[handover.config.precision, "deepspeed"]
        assert raw["zero_optimization"] == {"stage": 0}


@pytest.mark.case("B13", "I04")
def test_inside_the_trainer_each_value_has_one_owner() -> None:
    for handover, _, files in files_of("deepspeed"):
        inside, arguments = files["ds_config_hf.json"], files["training_args.json"]
        for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
            assert inside[key] == "auto"
        micro, steps = arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]
        assert micro * steps * handover.ranks == handover.global_batch_size
        assert arguments["deepspeed"] in files
        assert (arguments["fp16"], arguments["bf16"]) == (False, False), "precision belongs to DeepSpeed's file"


@pytest.mark.case("I14")
def test_lightning_has_its_words_and_no_batch_in_the_trainer() -> None:
    for kind in ("cpu", "cuda"):
        for handover, _, files in files_of("lightning", kind):
            trainer, loader = files["lightning_trainer.json"], files["lightning_dataloader.json"]
            assert set(trainer) <= known_keys("lightning")
            assert trainer["precision"] in LIGHTNING_PRECISION
            steps = trainer["accumulate_grad_batches"]
            assert type(steps) is int
            assert steps >= 1
            assert loader["batch_size"] * steps * trainer["devices"] == handover.global_batch_size
            assert ("prefetch_factor" in loader) == (loader["num_workers"] > 0)


@pytest.mark.case("I15")
@pytest.mark.parametrize(("ranks", "steps"), [(1, 1), (1, 4), (4, 4)])
def test_torchtitan_says_accumulation_through_the_global_batch(ranks: int, steps: int) -> None:
    config = {"accumulation_steps": steps, "activation_checkpointing": "full", "compile": "default"}
    made = export(handover_of(ranks=ranks, config=config), format_named("torchtitan"))
    words = shlex.split(made.files["torchtitan_overrides.txt"].replace("\n", " "))
    said = dict(pairwise(words))
    assert int(said["--training.global_batch_size"]) == 4 * ranks * steps
    assert said["--training.local_batch_size"] == "4"
    assert said["--parallelism.data_parallel_replicate_degree"] == str(ranks)
    assert "--compile.enable" in words
    assert words[-1] == "activation-checkpoint:full"
    assert not any("gradient_accumulation" in word for word in words)


@pytest.mark.case("I15")
def test_torchtitan_refuses_float16_with_the_reason() -> None:
    with pytest.raises(ExportRefused, match="no float16"):
        export(handover_of(config={"precision": "fp16-mixed"}), format_named("torchtitan"))


@pytest.mark.case("F07")
@pytest.mark.parametrize("name", ["hf-trainer", "accelerate", "deepspeed", "torchtitan"])
def test_activation_checkpointing_is_on_in_one_place_at_most(name: str) -> None:
    made = export(handover_of(config={"activation_checkpointing": "full"}), format_named(name))
    text = " ".join(text for file, text in made.files.items() if file.endswith(("s.json", "ds_config.json", ".txt")))
    assert text.count('checkpointing": true') + text.count("activation-checkpoint:full") <= 1
    assert "fsdp_activation_checkpointing" not in text


@pytest.mark.case("B06", "B14", "D09")
@pytest.mark.parametrize("name", ["hf-trainer", "accelerate", "deepspeed", "lightning", "torchtitan"])
def test_notes_on_schedule_resume_and_evaluation(name: str) -> None:
    told = export(for_ranks(handover_of(), 4), format_named(name)).files["NOTES.md"]
    assert "count optimizer steps of 16 samples" in told
    assert "start fresh, or convert" in told
    assert "Evaluation was not tested" in told
    assert "Measured on 1 rank, not on 4" in told


def test_shell_files_start_the_ranks_and_are_quoted() -> None:
    handover = handover_of(ranks=4, environment={"MINE": "a b; rm -rf $HOME"}, study="two\nlines $(x)")
    for name, file in (("torchrun", "torchrun.sh"), ("slurm", "job.sbatch")):
        text = export(handover, format_named(name)).files[file]
        assert "export MINE='a b; rm -rf $HOME'\n" in text
        assert '--nproc-per-node 4 "$@"' in text
        assert not any(line.startswith("lines") for line in text.splitlines())
    assert "#SBATCH --gres=gpu:4" in text
    assert "#SBATCH --job-name=two-lines-x" in text


def test_allocator_options_that_acted_under_the_cap_alone_are_left_out() -> None:
    given = {VARIABLES[1]: "garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,>:8],max_split_size_mb:64"}
    handover = handover_of(environment={**given, "NCCL_DEBUG": "WARN"})
    kept = "roundup_power2_divisions:[256:1,>:8],max_split_size_mb:64"
    assert environment(handover) == {
        "OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false", "NCCL_DEBUG": "WARN",
        **dict.fromkeys(VARIABLES, kept),
    }  # fmt: skip
    assert "garbage_collection_threshold" in left_out(handover)[0]
    assert left_out(handover_of()) == ()


def test_a_cap_on_a_larger_card_is_said_and_a_headroom_is_not() -> None:
    capped = handover_of(memory_limit_bytes=20 * 2**30, peak_memory_bytes=19 * 2**30)
    over = handover_of(peak_memory_bytes=75 * 2**30)
    told = [" ".join(export(each, format_named("json")).notes) for each in (capped, handover_of(), over)]
    assert "2.00 GiB more than the study's memory limit" in told[2]
    assert "memory cap of 20.00 GiB on a device of 80.00 GiB" in told[0]
    assert "cap" not in told[1]
