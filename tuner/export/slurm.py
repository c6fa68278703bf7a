"""Slurm: a batch file for one node, with torchrun inside."""

from __future__ import annotations

import re

from tuner.export.environment import environment
from tuner.export.handover import Export, Handover, Ledger
from tuner.export.rest import leave_to_code
from tuner.export.text import exports, json_text
from tuner.export.torchrun import CONFIG, job

TITLE = "Slurm"
TARGET = "Slurm 21.08 and newer, one node: `sbatch job.sbatch train.py ...`"


def write(handover: Handover) -> Export:
    """One task that starts the ranks; cores for every rank and its loader workers."""
    made = environment(handover, tf32=True)
    ledger = Ledger(handover.config)
    leave_to_code(handover, ledger)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {each}" for each in _asked(handover)),
        f"# {handover.label}. Made for {TARGET}",
        "set -euo pipefail",
        *exports(made),
        f'srun torchrun --standalone --nnodes 1 --nproc-per-node {handover.ranks} "$@"',
    ]
    notes = (
        f"Your script has to read {CONFIG} (or take these values); partition, account and time are yours.",
        "All ranks on one node: for more nodes set --nodes, one task each, and torchrun's rendezvous.",
    )
    values = job(handover)
    return Export(
        files={"job.sbatch": "\n".join(lines) + "\n", CONFIG: json_text(values)},
        values=values,
        carried=ledger.carried,
        not_carried=tuple(ledger.left),
        notes=notes,
        environment=made,
    )


def _asked(handover: Handover) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", handover.study).strip("-") or "training"
    cores = handover.ranks * (1 + handover.config.loader_workers)
    if handover.device_kind == "cpu":
        cores = handover.ranks * ((handover.threads or 1) + handover.config.loader_workers)
    asked = [f"--job-name={name}", "--nodes=1", "--ntasks=1", f"--cpus-per-task={cores}"]
    return asked if handover.device_kind == "cpu" else [*asked, f"--gres=gpu:{handover.ranks}"]
