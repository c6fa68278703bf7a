"""torchrun: a shell file with the environment and the ranks; the knobs in a JSON file for the script to read."""

from __future__ import annotations

from tuner.export.environment import environment
from tuner.export.handover import Export, Handover, Ledger
from tuner.export.rest import leave_to_code
from tuner.export.text import exports, json_text

TITLE = "torchrun"
TARGET = "torchrun of PyTorch 2 (2.11 and newer), one machine: `sh torchrun.sh train.py ...`"
CONFIG = "training_config.json"


def write(handover: Handover) -> Export:
    """The command; what torchrun itself cannot say is in the JSON and as code."""
    made = environment(handover, tf32=True)
    ledger = Ledger(handover.config)
    leave_to_code(handover, ledger)
    values = job(handover)
    lines = [
        "#!/bin/sh",
        f"# {handover.label}. Made for {TARGET}",
        "set -eu",
        *exports(made),
        command(handover),
    ]
    notes = (f"torchrun starts ranks and nothing else: your script has to read {CONFIG} (or take these values).",)
    return Export(
        files={"torchrun.sh": "\n".join(lines) + "\n", CONFIG: json_text(values)},
        values=values,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=made,
    )


def job(handover: Handover) -> dict[str, object]:
    """The knobs with what follows from them, as the script reads them."""
    return {
        **handover.config.to_mapping(),
        "world_size": handover.ranks,
        "global_batch_size": handover.global_batch_size,
        "max_grad_norm": handover.max_grad_norm,
    }


def command(handover: Handover) -> str:
    """The line that starts every rank; the script and its arguments follow."""
    return f'exec torchrun --standalone --nnodes 1 --nproc-per-node {handover.ranks} "$@"'
