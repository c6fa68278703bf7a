"""torchtitan 0.3: overrides for its command line. It reads no TOML there; its configurations are Python functions."""

from __future__ import annotations

import shlex
from typing import Any

from tuner.export.environment import environment
from tuner.export.handover import Export, ExportRefused, Handover, Ledger
from tuner.export.rest import leave_to_code

TITLE = "torchtitan"
TARGET = "torchtitan 0.3 (read back with 0.3.0): `--module M --config C` and these overrides"

PRECISIONS: dict[tuple[str, str], tuple[str, str]] = {
    ("fp32", "ddp"): ("float32", "float32"),
    ("tf32", "ddp"): ("float32", "float32"),
    ("bf16-mixed", "ddp"): ("float32", "bfloat16"),
    ("bf16-true", "ddp"): ("bfloat16", "bfloat16"),
}
"""``training.dtype`` and ``training.mixed_precision_param`` by (precision, strategy). There is no float16."""

OPTIMIZERS = {"adamw": "for-loop", "adamw-foreach": "foreach", "adamw-fused": "fused"}


def write(handover: Handover) -> Export:
    """One shell file whose arguments follow your ``--module`` and ``--config``."""
    ledger = Ledger(handover.config)
    values = _values(handover, ledger)
    policy = _checkpointing(handover, ledger)
    leave_to_code(handover, ledger)
    words = [*(_flag(name, value) for name, value in values.items()), policy]
    notes = (
        "Put the overrides after --module and --config. The last word chooses the policy of activation checkpointing "
        "and has to stay last.",
        "Accumulation is expressed through global_batch_size = local_batch_size x data-parallel ranks x accumulation.",
        "data_parallel_shard_degree is 1, so that parameters are replicated as in the trials; torchtitan shards by "
        "default. Its own CUDA graphs are off, as measured.",
    )
    return Export(
        files={"torchtitan_overrides.txt": "\n".join(words) + "\n"},
        values=values,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=environment(handover, tf32=True),
    )


def _values(handover: Handover, ledger: Ledger) -> dict[str, Any]:
    config = handover.config
    dtype, mixed = _precision(handover, ledger)
    values: dict[str, Any] = {
        "training.local_batch_size": config.micro_batch_size,
        "training.global_batch_size": handover.global_batch_size,
        "training.max_norm": handover.max_grad_norm,
        "training.dtype": dtype,
        "training.mixed_precision_param": mixed,
        "training.disable_cuda_graphs": True,
        "parallelism.data_parallel_replicate_degree": handover.ranks,
        "parallelism.data_parallel_shard_degree": 1,
        "compile.enable": config.compile != "off",
        "dataloader.num_workers": config.loader_workers,
        "dataloader.pin_memory": config.pin_memory,
    }
    if config.loader_workers:
        values |= {"dataloader.persistent_workers": True, "dataloader.prefetch_factor": config.prefetch_factor}
        ledger.put("dataloader.prefetch_factor", "prefetch_factor")
    if config.optimizer in OPTIMIZERS and not handover.own_optimizer:
        values["optimizer.implementation"] = OPTIMIZERS[config.optimizer]
        ledger.put("optimizer.implementation", "optimizer")
    _told(handover, ledger)
    return values


def _precision(handover: Handover, ledger: Ledger) -> tuple[str, str]:
    wanted = handover.config.precision
    known = PRECISIONS.get((wanted, "ddp"))
    if known is None:
        raise ExportRefused(
            f"precision {wanted} cannot be had from torchtitan: it has no float16 and no loss scaling. Nothing was "
            "written; pick a trial with bf16-mixed, or another target"
        )
    ledger.put("training.dtype, training.mixed_precision_param; TF32 in the environment", "precision")
    return known


def _told(handover: Handover, ledger: Ledger) -> None:
    ledger.put("training.local_batch_size", "micro_batch_size")
    ledger.put("dataloader.num_workers", "loader_workers")
    ledger.put("dataloader.pin_memory", "pin_memory")
    if handover.config.compile in ("off", "default"):
        ledger.put("compile.enable", "compile")
    else:
        ledger.must("compile", "torchtitan compiles each block in the default mode and knows no other; measure it")


def _checkpointing(handover: Handover, ledger: Ledger) -> str:
    mode = handover.config.activation_checkpointing
    if mode == "selective":
        ledger.must(
            "activation_checkpointing",
            "torchtitan's selective policy also computes every second matrix product again: less memory, slower; "
            "the overrides name it as the nearest",
        )
    else:
        ledger.put(f"activation-checkpoint:{mode}", "activation_checkpointing")
    return f"activation-checkpoint:{mode}"


def _flag(name: str, value: Any) -> str:
    """A boolean is a flag or its negation; anything else a word after it."""
    if isinstance(value, bool):
        section, _, key = name.rpartition(".")
        return f"--{name}" if value else f"--{section}.no-{key}"
    return f"--{name} {shlex.quote(str(value))}"
