"""Hugging Face accelerate: the YAML of ``accelerate launch --config_file``. It starts ranks and sets precision."""

from __future__ import annotations

from typing import Any

from tuner.export import in_code
from tuner.export.environment import environment
from tuner.export.handover import Export, ExportRefused, Handover, Ledger, refuse_half_on_cpu
from tuner.export.rest import leave_to_code
from tuner.export.text import yaml_text

TITLE = "accelerate"
TARGET = "accelerate 1 (read back with 1.15), `accelerate launch --config_file accelerate.yaml`"

PRECISIONS: dict[tuple[str, str], str] = {
    ("fp32", "ddp"): "no",
    ("tf32", "ddp"): "no",
    ("fp16-mixed", "ddp"): "fp16",
    ("bf16-mixed", "ddp"): "bf16",
    ("bf16-true", "ddp"): "no",
}
"""``mixed_precision`` by (precision, strategy)."""

BACKENDS = {"default": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}


def write(handover: Handover) -> Export:
    """The launch file. Accumulation has one owner, the script: the file has no key for it outside DeepSpeed."""
    refuse_half_on_cpu(handover, TITLE)
    config, ledger = handover.config, Ledger(handover.config)
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _kind(handover),
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": handover.ranks,
        "use_cpu": handover.device_kind == "cpu",
        "mixed_precision": _precision(handover, ledger),
        "debug": False,
        "dynamo_config": _compile(handover, ledger),
        "main_training_function": "main",
    }
    remark = f"accelerate of {handover.label}. Made for {TARGET}."
    ledger.must(
        "micro_batch_size",
        "belongs to the script's loader; accumulation belongs to the script too (the file has no key for it)",
        (
            *in_code.loader(config),
            f"accelerator = Accelerator(gradient_accumulation_steps={config.accumulation_steps})",
        ),
    )
    leave_to_code(handover, ledger)
    notes = (
        "Gradient accumulation is set in one place, Accelerator(gradient_accumulation_steps=...), and nowhere else.",
        "Accelerate steps a prepared scheduler once per process: give its warm-up and total in optimizer steps "
        "x number of processes, or do not prepare the scheduler.",
    )
    return Export(
        files={"accelerate.yaml": yaml_text(values, remark=remark)},
        values=values,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=environment(handover, tf32=True),
    )


def _kind(handover: Handover) -> str:
    if handover.ranks == 1:
        return "NO"
    return "MULTI_CPU" if handover.device_kind == "cpu" else "MULTI_GPU"


def _precision(handover: Handover, ledger: Ledger) -> str:
    wanted = handover.config.precision
    known = PRECISIONS.get((wanted, "ddp"))
    if known is None:
        raise ExportRefused(f"precision {wanted} has no word in accelerate")
    if wanted == "bf16-true":
        ledger.must("precision", "mixed_precision is `no`: cast the model itself", in_code.precision(handover.config))
    else:
        ledger.put("mixed_precision, TF32 in the environment", "precision")
    return known


def _compile(handover: Handover, ledger: Ledger) -> dict[str, Any]:
    mode = handover.config.compile
    ledger.put("dynamo_config", "compile")
    if mode == "off":
        return {}
    return {"dynamo_backend": "INDUCTOR", "dynamo_mode": BACKENDS[mode], "dynamo_use_fullgraph": False}
