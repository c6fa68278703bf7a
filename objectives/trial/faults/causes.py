"""The outcomes and their causes: the one list, as the reference prints it and as the search reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from objectives.trial.faults.model import Outcome

Told = Literal["COMPLETE", "FAIL"]
Teaches = Literal["all", "bound", "needs_more", "itself", "choice", "loader", "nothing"]


@dataclass(frozen=True, kw_only=True)
class OutcomeMeaning:
    """One row of the table of outcomes.

    Attributes:
        told: The state Optuna is told.
        teaches: What the search learns from it when it is certain: ``all`` (its numbers), ``bound`` (an upper bound of
            its throughput, its peak), ``needs_more`` (all that need more memory fail too), ``itself`` (this
            configuration alone), ``choice`` (this knob's value), ``loader`` (loader knobs only), ``nothing``.
        tried_again: When and how a run with it is repeated.
    """

    outcome: Outcome
    told: Told
    teaches: Teaches
    tried_again: str
    meaning: str


OUTCOMES: tuple[OutcomeMeaning, ...] = (
    OutcomeMeaning(
        outcome="completed",
        told="COMPLETE",
        teaches="all",
        tried_again="no",
        meaning="It ran and was measured.",
    ),
    OutcomeMeaning(
        outcome="pruned",
        told="COMPLETE",
        teaches="bound",
        tried_again="no",
        meaning="Stopped early: it could no longer reach the front.",
    ),
    OutcomeMeaning(
        outcome="device_oom",
        told="COMPLETE",
        teaches="needs_more",
        tried_again="once, when only probable",
        meaning="The device's memory, or the share of it this run may use, was not enough.",
    ),
    OutcomeMeaning(
        outcome="numerical",
        told="COMPLETE",
        teaches="choice",
        tried_again="no",
        meaning="The loss or the gradients stopped being finite numbers.",
    ),
    OutcomeMeaning(
        outcome="unsupported",
        told="COMPLETE",
        teaches="choice",
        tried_again="no",
        meaning="The library or the device refuses these values or their combination.",
    ),
    OutcomeMeaning(
        outcome="timeout",
        told="COMPLETE",
        teaches="itself",
        tried_again="no",
        meaning="It outlived its time.",
    ),
    OutcomeMeaning(
        outcome="host_oom",
        told="FAIL",
        teaches="loader",
        tried_again="once, as a new trial with fewer loader workers",
        meaning="The host's memory was not enough; the device's may be.",
    ),
    OutcomeMeaning(
        outcome="shm",
        told="FAIL",
        teaches="loader",
        tried_again="once, as a new trial with fewer loader workers",
        meaning="Shared memory (/dev/shm) was not enough for the loader workers.",
    ),
    OutcomeMeaning(
        outcome="crashed",
        told="FAIL",
        teaches="nothing",
        tried_again="no; once with a raised cap after a signal near it; several alike in a row stop the study",
        meaning="Any other failure: of the code, the data or a library.",
    ),
    OutcomeMeaning(
        outcome="infra",
        told="FAIL",
        teaches="nothing",
        tried_again="bounded, elsewhere where there is such a place",
        meaning="The machine, not the configuration: a busy or broken device, a lost worker, the database.",
    ),
    OutcomeMeaning(
        outcome="cancelled",
        told="FAIL",
        teaches="nothing",
        tried_again="when the study goes on",
        meaning="A person, a drain or the study's end stopped it.",
    ),
)

CAUSES: Mapping[str, tuple[Outcome, str]] = {
    "dominated": ("pruned", "a front member that needs no more memory is faster than this could still be"),
    "capacity": ("device_oom", "the device's memory was full"),
    "cap": ("device_oom", "the run's own cap was reached; the device may have had more"),
    "fragmentation": ("device_oom", "much memory was reserved but in pieces too small for the request"),
    "spill": (
        "device_oom",
        "more was allocated than the device has: the driver or the system swapped instead of failing",
    ),
    "suspicious": (
        "device_oom",
        "far more memory was free than the request needed: a driver fault or somebody's limit",
    ),
    "invalid_config": ("unsupported", "these values, or their combination, are refused"),
    "sram_limit": ("unsupported", "a kernel needs more on-chip memory or registers than this device has"),
    "not_applied": ("unsupported", "the configuration read back differs from the one asked for"),
    "collective": ("timeout", "a collective operation waited for a rank that never came"),
    "trial_time": ("timeout", "the run outlived its own time"),
    "compile_time": ("timeout", "compilation outlived its time"),
    "context_lost": ("crashed", "a kernel fault left the device's context unusable: often ids out of range"),
    "fd_limit": ("crashed", "the limit on open files was reached"),
    "thread_limit": ("crashed", "no further thread or process could be started"),
    "disk_full": ("crashed", "a disk was full"),
    "no_result": ("crashed", "the run exited as if all were well, without a result"),
    "no_step": ("crashed", "no optimizer step was applied"),
    "corrupt": ("crashed", "what the run sent cannot be a result"),
    "busy_device": ("infra", "somebody else holds the device or its memory"),
    "broken_device": ("infra", "the device, its driver or the connection to it is broken or missing"),
    "worker_lost": ("infra", "the worker, or the process that had started the run, was lost"),
    "database": ("infra", "the store could not be reached"),
}
"""Every cause by its slug: the outcome it belongs to and what it means. The list grows here and nowhere else."""
