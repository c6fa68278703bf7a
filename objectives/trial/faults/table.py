"""All kinds of faults in the order in which they explain a failure: the first one that any exception shows decides."""

from __future__ import annotations

from objectives.trial.faults.kind import Kind, always
from objectives.trial.faults.machine import DEVICES, LIMITS, LOADERS
from objectives.trial.faults.memory import DEVICE_MEMORY, HOST_MEMORY, VAGUE
from objectives.trial.faults.model import Verdict
from objectives.trial.faults.ranks import RANKS
from objectives.trial.faults.records import is_a
from objectives.trial.faults.refusal import NUMERICAL, REFUSALS

INTERRUPTS: tuple[Kind, ...] = (
    Kind(name="interrupt", speakers=is_a("KeyboardInterrupt"), judge=always(Verdict(outcome="cancelled"))),
    Kind(
        name="asked to end",
        speakers=is_a("torch.distributed.elastic.multiprocessing.api.SignalException"),
        judge=always(Verdict(outcome="infra", cause="worker_lost", confidence="probable")),
    ),
)

KINDS: tuple[Kind, ...] = (
    *DEVICE_MEMORY,  # anywhere in the chain: whatever wraps it, or fails while cleaning up after it, is its consequence
    *HOST_MEMORY,
    *INTERRUPTS,
    *LOADERS,
    *DEVICES,
    *REFUSALS,
    *VAGUE,  # what memory and other things cause: after all that says more
    *NUMERICAL,
    *RANKS,
    *LIMITS,
)
