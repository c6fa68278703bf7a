"""Why a trial or run ended as it did, in one line for people. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, cast

from objectives.trial.outcome import Outcome, Verdict
from storage.records import RunRecord, TrialRecord

LONGEST_REASON = 300


def reason_of(ended: TrialRecord | RunRecord) -> str:
    """The evidence in one line: the exception, else the signal, else the exit status, else the outcome alone."""
    name = str(ended.outcome) if ended.cause is None else f"{ended.outcome}/{ended.cause}"
    words = _words(ended.evidence)
    return f"{name}: {words}" if words else name


def verdict_of(ended: TrialRecord | RunRecord) -> Verdict:
    """The verdict, rebuilt from its row, for comparison with another's."""
    return Verdict(outcome=cast("Outcome", ended.outcome), cause=ended.cause, text=_words(ended.evidence))


def _words(evidence: Mapping[str, Any]) -> str:
    said = evidence.get("text") or evidence.get("reason") or _exception(evidence) or _ending(evidence)
    return " ".join(str(said).split())[:LONGEST_REASON]


def _exception(evidence: Mapping[str, Any]) -> str:
    chain = evidence.get("chain") or ()
    first = chain[0] if isinstance(chain, (list, tuple)) and chain else None
    if not isinstance(first, Mapping):
        return ""
    name = str(first.get("cls", "")).rpartition(".")[2]
    return f"{name}: {first.get('text', '')}".rstrip(": ")


def _ending(evidence: Mapping[str, Any]) -> str:
    number, status = evidence.get("signal"), evidence.get("exit_code")
    if isinstance(number, int):
        return f"signal {number} ({_signal_name(number)})"
    return f"exit status {status}" if isinstance(status, int) and status != 0 else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
