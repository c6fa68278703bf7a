"""What follows from a verdict: a second try, what the search learns, and whether two failures are alike."""

from __future__ import annotations

import re

from objectives.trial.faults.causes import OUTCOMES, Teaches
from objectives.trial.faults.model import Retry, Verdict

INFRA_ATTEMPTS = 3
"""Runs a trial gets when machines fail it."""
RAISED_CAP = 1.3
"""How far a cap is raised after a signal near it."""

_TEACHES = {row.outcome: row.teaches for row in OUTCOMES}

_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]+"  # addresses
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # UUIDs
    r"|(?:/[^\s/:'\"]{1,255}){2,64}"  # paths: temporary folders change
    r"|torch_\d[\d_]*"
    r"|[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?"
)


def should_retry(verdict: Verdict, attempt: int) -> Retry | None:
    """Whether and how a run that ended so is tried again; None for no.

    Args:
        verdict: Of the run that just ended.
        attempt: Its number, 1 for the first.
    """
    if verdict.outcome == "infra":
        return Retry(how="elsewhere") if attempt < INFRA_ATTEMPTS else None
    if attempt > 1:
        return None
    if verdict.numbers.get("near_cap"):
        return Retry(how="raised_cap", cap_factor=RAISED_CAP)
    if verdict.outcome == "device_oom" and verdict.confidence == "probable":
        return Retry(how="same")
    return Retry(how="fewer_workers") if verdict.outcome in ("host_oom", "shm") else None


def teaches(verdict: Verdict) -> Teaches:
    """What the search may learn from a verdict (see :data:`OUTCOMES`)."""
    if verdict.outcome == "device_oom" and (verdict.confidence == "probable" or verdict.phase == "eval"):
        return "itself"
    return _TEACHES[verdict.outcome]


def fingerprint(verdict: Verdict) -> str:
    """Outcome, cause and words without numbers, addresses and paths: equal for failures that have the same reason."""
    words = " ".join(_VOLATILE.sub("#", verdict.text).split())
    return f"{verdict.outcome}/{verdict.cause or ''}: {words}"


def same_failure(a: Verdict, b: Verdict) -> bool:
    """Whether two failures have the same reason: several such in a row are not the configurations' fault."""
    return fingerprint(a) == fingerprint(b)
