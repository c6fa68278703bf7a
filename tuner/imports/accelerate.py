"""The YAML of ``accelerate config``: ranks, precision and compilation; the batch is the script's."""

from __future__ import annotations

from tuner.export.problems import unknown
from tuner.imports.imported import Imported, Reading
from tuner.imports.source import Source

NAME = "accelerate"
MARKS = frozenset({
    "compute_environment", "distributed_type", "num_machines", "machine_rank", "main_training_function",
    "dynamo_config", "num_processes", "mixed_precision", "downcast_bf16", "rdzv_backend", "same_network",
})  # fmt: skip
"""Keys by which the format is known."""
PRECISIONS = {"no": "fp32", "false": "fp32", "fp16": "fp16-mixed", "bf16": "bf16-mixed"}


def read(source: Source) -> Imported:
    """The launch file in our words."""
    reading = Reading(source, NAME)
    reading.problems(unknown(source.values, NAME))
    _precision(reading)
    _compile(reading)
    machines = reading.count("num_machines") or 1
    ranks = reading.count("num_processes")
    reading.put(
        ranks=ranks,
        device="cpu" if reading.flag("use_cpu") else None,
        accumulation_steps=reading.count("deepspeed_config.gradient_accumulation_steps"),
        max_grad_norm=reading.number("deepspeed_config.gradient_clipping"),
    )
    if machines > 1:
        reading.note(f"num_machines {machines}: trials run on one device of one machine")
    _shards(reading)
    return reading.done()


def _precision(reading: Reading) -> None:
    given = str(reading.value("mixed_precision")).lower()
    if given == "none":
        return
    if given not in PRECISIONS:
        reading.note(f"mixed_precision: {given} has no value of the knob precision; it is not in the baseline")
        return
    why = "the file says neither TF32 nor how the model is loaded: in bfloat16 this is bf16-true"
    reading.knob("precision", PRECISIONS[given], unless_sure=why if PRECISIONS[given] == "fp32" else None)


def _compile(reading: Reading) -> None:
    section = reading.value("dynamo_config")
    if section is None and reading.value("dynamo_backend") is None:
        return
    backend = reading.word("dynamo_config.dynamo_backend", "dynamo_backend")
    on = backend is not None and backend.lower() != "no"
    mode = reading.word("dynamo_config.dynamo_mode", "dynamo_mode") or "default"
    reading.knob("compile", mode if on and mode in ("default", "reduce-overhead", "max-autotune") else "off")


def _shards(reading: Reading) -> None:
    kind = (reading.word("distributed_type") or "").upper()
    if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"):
        reading.note(f"distributed_type {kind}: sharding is no knob; trials run on one device with whole parameters")
    if reading.flag("fsdp_config.fsdp_activation_checkpointing"):
        reading.knob("activation_checkpointing", "full")
    stage = reading.count("deepspeed_config.zero_stage", least=0)
    if stage:
        reading.note(f"deepspeed_config.zero_stage {stage}: nothing is sharded or offloaded in trials")
