"""Hugging Face ``Trainer``: ``TrainingArguments`` as JSON and YAML."""

from __future__ import annotations

import re
from typing import Any

from tuner.export import in_code
from tuner.export.environment import environment
from tuner.export.handover import Export, ExportRefused, Handover, Ledger, refuse_half_on_cpu
from tuner.export.text import json_text, yaml_text

TITLE = "Hugging Face Trainer"
TARGET = "transformers 5 (read back with 5.24), HfArgumentParser.parse_json_file or parse_yaml_file"

PRECISIONS: dict[tuple[str, str], dict[str, bool]] = {
    ("fp32", "ddp"): {"fp16": False, "bf16": False, "tf32": False},
    ("tf32", "ddp"): {"fp16": False, "bf16": False, "tf32": True},
    ("fp16-mixed", "ddp"): {"fp16": True, "bf16": False, "tf32": False},
    ("bf16-mixed", "ddp"): {"fp16": False, "bf16": True, "tf32": False},
    ("bf16-true", "ddp"): {"fp16": False, "bf16": False, "tf32": False},
}
"""Arguments by (precision, strategy): one number format, the others switched off, TF32 always said."""

OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adamw-foreach": "adamw_torch",
    "adamw-fused": "adamw_torch_fused",
    "adamw-8bit": "adamw_bnb_8bit",
}
RENAMED_IN = (5, 24)
"""From this transformers on the argument is called ``activation_checkpointing``; the older name warns there."""


def write(handover: Handover) -> Export:
    """The arguments, twice; what they cannot hold as lines of code."""
    refuse_half_on_cpu(handover, TITLE)
    ledger = Ledger(handover.config)
    values = arguments(handover, ledger)
    remark = f"{TITLE} arguments of {handover.label}. Made for {TARGET}."
    files = {"training_args.json": json_text(values), "training_args.yaml": yaml_text(values, remark=remark)}
    notes = (
        "Give output_dir, number of steps and learning rate beside this file; an epoch's last optimizer step may be "
        "smaller than the global batch where the data does not divide evenly.",
        "per_device_eval_batch_size is the training micro-batch and eval_accumulation_steps 1, the least memory; "
        "neither was tested.",
    )
    return Export(
        files=files,
        values=values,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=environment(handover),
    )


def arguments(handover: Handover, ledger: Ledger) -> dict[str, Any]:
    """The arguments as plain data, each knob told to the ledger."""
    config = handover.config
    values: dict[str, Any] = {
        "per_device_train_batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": config.accumulation_steps,
        "auto_find_batch_size": False,
        "max_grad_norm": handover.max_grad_norm,
        "use_cpu": handover.device_kind == "cpu",
        **_precision(handover, ledger),
        **_checkpointing(handover, ledger),
        **_compile(handover, ledger),
        **_optimizer(handover, ledger),
        **_loader(handover, ledger),
        "per_device_eval_batch_size": config.micro_batch_size,
        "eval_accumulation_steps": 1,
    }
    ledger.put("per_device_train_batch_size", "micro_batch_size")
    _model_and_data(handover, ledger)
    return values


def _precision(handover: Handover, ledger: Ledger) -> dict[str, bool]:
    known = PRECISIONS.get((handover.config.precision, "ddp"))
    if known is None:
        raise ExportRefused(f"precision {handover.config.precision} has no arguments of the {TITLE}")
    if handover.config.precision == "bf16-true":
        ledger.must(
            "precision",
            "the arguments know mixed precision alone: load the model in bfloat16 (bf16 stays false)",
            ("model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)",),
        )
    else:
        ledger.put("fp16, bf16, tf32", "precision")
    return known


def _checkpointing(handover: Handover, ledger: Ledger) -> dict[str, Any]:
    name, mode = _checkpointing_name(handover.versions.get("transformers")), handover.config.activation_checkpointing
    if mode == "selective":
        ledger.must(
            "activation_checkpointing",
            "its policy is a function, which no JSON holds: leave the argument false and call this on the model",
            in_code.checkpointing(handover.config),
        )
        return {name: False}
    ledger.put(name, "activation_checkpointing")
    return {name: True, f"{name}_kwargs": {"use_reentrant": False}} if mode == "full" else {name: False}


def _checkpointing_name(version: str | None) -> str:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])
    return "activation_checkpointing" if numbers >= RENAMED_IN else "gradient_checkpointing"


def _compile(handover: Handover, ledger: Ledger) -> dict[str, Any]:
    mode = handover.config.compile
    ledger.put("torch_compile", "compile")
    if mode == "off":
        return {"torch_compile": False}
    return {"torch_compile": True, "torch_compile_backend": "inductor", "torch_compile_mode": mode}


def _optimizer(handover: Handover, ledger: Ledger) -> dict[str, str]:
    wanted = handover.config.optimizer
    if handover.own_optimizer:
        ledger.must("optimizer", "the objective brings its own optimizer: give the Trainer the same (`optimizers=`)")
        return {}
    default = "adamw" if handover.device_kind == "cpu" else "adamw-foreach"
    if OPTIMIZERS[wanted] == "adamw_torch" and wanted != default:
        ledger.must(
            "optimizer",
            f"adamw_torch takes PyTorch's own choice, which is {default} on this device",
            in_code.optimizer(handover.config),
        )
    else:
        ledger.put("optim", "optimizer")
    return {"optim": OPTIMIZERS[wanted]}


def _loader(handover: Handover, ledger: Ledger) -> dict[str, Any]:
    config, workers = handover.config, handover.config.loader_workers
    ledger.put("dataloader_num_workers", "loader_workers")
    ledger.put("dataloader_pin_memory", "pin_memory")
    ledger.put("dataloader_prefetch_factor" if workers else "does not act without workers", "prefetch_factor")
    values = {
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": config.pin_memory,
        "dataloader_persistent_workers": workers > 0,
    }
    return values | ({"dataloader_prefetch_factor": config.prefetch_factor} if workers else {})


def _model_and_data(handover: Handover, ledger: Ledger) -> None:
    config = handover.config
    ledger.put("environment", "allocator")
    ledger.leave("attention", "belongs to the model", in_code.attention(config))
    ledger.leave("loss", "belongs to the model: compute the cross-entropy in pieces (a fused linear cross-entropy)")
    ledger.leave("memory_format", "belongs to the model and its pictures", in_code.memory_format(config))
    ledger.leave("tokens", "belongs to the dataset: tokenize once, before training")
    rows = in_code.packing(config, handover.longest_tokens) if config.batching == "packed" else ()
    ledger.leave("batching", _why_batching(config.batching), rows)


def _why_batching(batching: str) -> str:
    if batching == "packed":
        return (
            "belongs to the data set: per_device_train_batch_size counts packed rows, so pack before training. "
            "DataCollatorWithFlattening would count documents instead (far fewer tokens a batch), and TRL's "
            "packing=True fills other rows"
        )
    return "the Trainer's group_by_length sorts across optimizer steps; this one sorts inside each global batch"
