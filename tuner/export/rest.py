"""Knobs that belong to the model, the data and the optimizer in every trainer whose files hold none of them."""

from __future__ import annotations

from tuner.export import in_code
from tuner.export.handover import Handover, Ledger


def leave_to_code(handover: Handover, ledger: Ledger) -> None:
    """Tells the ledger of every knob nobody told it about yet: the lines of code that do it."""
    config = handover.config
    reasons = {
        "precision": ("belongs to the script", in_code.precision(config)),
        "activation_checkpointing": ("belongs to the model", in_code.checkpointing(config)),
        "attention": ("belongs to the model", in_code.attention(config)),
        "loss": ("belongs to the model: compute the cross-entropy in pieces (a fused linear cross-entropy)", ()),
        "compile": ("belongs to the script", in_code.compiling(config)),
        "memory_format": ("belongs to the model and its pictures", in_code.memory_format(config)),
        "tokens": ("belongs to the dataset: tokenize once, before training", ()),
        "batching": (f"belongs to the sampler and the collator: {_WORDS[config.batching]}", ()),
        "micro_batch_size": ("belongs to the loader", in_code.loader(config)),
        "loader_workers": ("belongs to the loader", in_code.loader(config)),
        "prefetch_factor": ("belongs to the loader", in_code.loader(config)),
        "pin_memory": ("belongs to the loader", in_code.loader(config)),
    }
    untold = ledger.untold()
    if "allocator" in untold:
        ledger.put("environment", "allocator")
    if "precision" in untold and config.precision in ("fp32", "tf32"):
        ledger.put("TF32 in the environment, everything else PyTorch's default", "precision")
    if "optimizer" in untold:
        _optimizer(handover, ledger)
    for name in (name for name in ledger.untold() if name in reasons):
        ledger.leave(name, *reasons[name])


def _optimizer(handover: Handover, ledger: Ledger) -> None:
    """Always told: what PyTorch takes when nobody says differs between devices."""
    if handover.own_optimizer:
        ledger.must("optimizer", "the objective brings its own optimizer: make the same")
    else:
        ledger.must("optimizer", "belongs to the script", in_code.optimizer(handover.config))


_WORDS = {
    "padded": "each micro-batch padded to its longest row",
    "length-grouped": "the rows of one global batch sorted by length before they are split",
    "packed": "documents joined to full rows, kept apart by position and mask",
}
