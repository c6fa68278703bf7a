"""DeepSpeed: its own file with numbers alone, and the flavour inside the Hugging Face Trainer, where ``auto`` is legal.

Mixed precision is torch's own autocast inside the engine, as in the trials. DeepSpeed's sections ``bf16`` and ``fp16``
mean another training (16-bit parameters over a 32-bit copy) and are switched off in words.
"""

from __future__ import annotations

from typing import Any

from tuner.export import hf_trainer
from tuner.export.environment import environment
from tuner.export.handover import Export, ExportRefused, Handover, Ledger
from tuner.export.rest import leave_to_code
from tuner.export.text import json_text

TITLE = "DeepSpeed"
TARGET = "deepspeed 0.18 to 0.19 (read back with 0.19.8); with transformers 5 for the Trainer's flavour"

PRECISIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("fp32", "deepspeed"): {"enabled": False},
    ("tf32", "deepspeed"): {"enabled": False},
    ("fp16-mixed", "deepspeed"): {"enabled": True, "dtype": "float16"},
    ("bf16-mixed", "deepspeed"): {"enabled": True, "dtype": "bfloat16"},
}
"""``torch_autocast`` by (precision, strategy). ``bf16-true`` has none: the engine keeps a 32-bit copy."""


def write(handover: Handover) -> Export:
    """Both flavours, and the Trainer's arguments that own what the second one calls ``auto``."""
    config = handover.config
    autocast = PRECISIONS.get((config.precision, "deepspeed"))
    if autocast is None:
        raise ExportRefused(
            f"precision {config.precision} cannot be had from DeepSpeed: its bf16 keeps 32-bit copies of the "
            "parameters, which is another training with another memory. Nothing was written; pick a trial with another "
            "precision, or use hf-trainer or lightning"
        )
    raw = _raw(handover, autocast)
    inside = _inside_trainer(autocast)
    trainer = _trainer_arguments(handover)
    ledger = Ledger(config)
    ledger.put("train_micro_batch_size_per_gpu (raw), training_args.json (Trainer)", "micro_batch_size")
    ledger.put("torch_autocast with bf16 and fp16 off; TF32 in the environment", "precision")
    leave_to_code(handover, ledger)
    files = {
        "ds_config.json": json_text(raw),
        "ds_config_hf.json": json_text(inside),
        "training_args.json": json_text(trainer),
    }
    notes = (
        "ds_config.json is for deepspeed.initialize, with numbers alone; it holds for this number of ranks only "
        "(another one stops at the start): export again with --world-size.",
        "ds_config_hf.json is for the Trainer together with training_args.json, which owns what is `auto` here: "
        "accumulation is set there and nowhere else. Knobs of the model and the optimizer are the Trainer's: "
        "see `--to hf-trainer`.",
        "ZeRO is off (stage 0), as measured. With stages 2 and 3 accumulation costs more memory: measure again.",
    )
    return Export(
        files=files,
        values=raw,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=environment(handover, tf32=True),
    )


def _raw(handover: Handover, autocast: dict[str, Any]) -> dict[str, Any]:
    config = handover.config
    return {
        "train_batch_size": handover.global_batch_size,
        "train_micro_batch_size_per_gpu": config.micro_batch_size,
        "gradient_accumulation_steps": config.accumulation_steps,
        "gradient_clipping": handover.max_grad_norm,
        **_common(autocast),
    }


def _inside_trainer(autocast: dict[str, Any]) -> dict[str, Any]:
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        **_common(autocast),
    }


def _common(autocast: dict[str, Any]) -> dict[str, Any]:
    return {
        "zero_optimization": {"stage": 0},
        "fp16": {"enabled": False},
        "bf16": {"enabled": False},
        "torch_autocast": dict(autocast),
    }


def _trainer_arguments(handover: Handover) -> dict[str, Any]:
    """The Trainer's arguments with precision handed to DeepSpeed: one owner per value."""
    values = hf_trainer.arguments(handover, Ledger(handover.config))
    return {**values, "fp16": False, "bf16": False, "deepspeed": "ds_config_hf.json"}
