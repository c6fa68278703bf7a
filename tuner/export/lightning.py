"""Lightning: keyword arguments of ``Trainer`` and of the ``DataLoader`` in the DataModule."""

from __future__ import annotations

from typing import Any

from tuner.export import in_code
from tuner.export.environment import environment
from tuner.export.handover import Export, ExportRefused, Handover, Ledger, refuse_half_on_cpu
from tuner.export.rest import leave_to_code
from tuner.export.text import json_text

TITLE = "Lightning"
TARGET = "lightning 2.4 to 2.6 (read back with 2.6.6), Trainer(**json.load(open('lightning_trainer.json')))"

PRECISIONS: dict[tuple[str, str], str] = {
    ("fp32", "ddp"): "32-true",
    ("tf32", "ddp"): "32-true",
    ("fp16-mixed", "ddp"): "16-mixed",
    ("bf16-mixed", "ddp"): "bf16-mixed",
    ("bf16-true", "ddp"): "bf16-true",
}
"""``precision`` by (precision, strategy). Under DeepSpeed the same words mean other trainings: not mapped."""


def write(handover: Handover) -> Export:
    """Trainer and loader apart: the batch is no argument of the Trainer."""
    refuse_half_on_cpu(handover, TITLE)
    config, ledger = handover.config, Ledger(handover.config)
    precision = PRECISIONS.get((config.precision, "ddp"))
    if precision is None:
        raise ExportRefused(f"precision {config.precision} has no word in Lightning")
    values: dict[str, Any] = {
        "accelerator": "cpu" if handover.device_kind == "cpu" else "gpu",
        "devices": handover.ranks,
        "num_nodes": 1,
        "strategy": "auto" if handover.ranks == 1 else "ddp",
        "precision": precision,
        "accumulate_grad_batches": config.accumulation_steps,
        "gradient_clip_val": handover.max_grad_norm,
        "gradient_clip_algorithm": "norm",
    }
    ledger.put("precision; TF32 in the environment", "precision")
    where = "lightning_dataloader.json"
    ledger.put(where, "micro_batch_size", "loader_workers", "pin_memory")
    ledger.put(where if config.loader_workers else "does not act without workers", "prefetch_factor")
    leave_to_code(handover, ledger)
    notes = (
        "batch_size is no argument of the Trainer: give lightning_dataloader.json to the DataLoader of your DataModule "
        "(train_dataloader); validation loaders are yours.",
        "accumulate_grad_batches is set in the Trainer and nowhere else; Lightning's max_steps counts optimizer steps.",
    )
    return Export(
        files={"lightning_trainer.json": json_text(values), where: json_text(in_code.loader_options(config))},
        values=values,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=environment(handover, tf32=True),
    )
