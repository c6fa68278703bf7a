"""Faults of runs with several processes: collectives that wait, peers that vanish, launchers that hide the cause."""

from __future__ import annotations

import re

from objectives.trial.faults.kind import Fault, Kind, always, any_of
from objectives.trial.faults.memory import HOST
from objectives.trial.faults.model import Confidence, ExceptionRecord, Verdict
from objectives.trial.faults.records import either, from_a_library, is_a

COLLECTIVE_WORDS = any_of(
    r"\bcollective operation timeout\b",
    r"\b(?:NCCL|RCCL|XCCL|HCCL|[Gg]loo|collective|allreduce|broadcast|barrier)\b[^\n]{0,200}\btim(?:ed|e) ?out\b",
    r"\bTimed out waiting \d{1,12} ?ms\b|\b[Ww]ait timeout after \d{1,12} ?ms\b|\bWait timeout\b",
    r"\bTimed out after \d{1,9} seconds waiting for clients\b|\bclient socket has timed out\b",
    r"\bfailed to pass monitoredBarrier\b|\btimed out in monitoredBarrier\b",
)
PEER_WORDS = any_of(
    r"\bConnection (?:closed|reset) by (?:remote )?peer\b|\bremote process exited or there was a network error\b",
    r"\bcommunicator was aborted\b|\bncclRemoteError\b|\bBroken pipe\b[^\n]{0,80}\b(?:gloo|store|TCPStore)\b",
)
NCCL_WORDS = any_of(r"\bncclUnhandledCudaError\b|\bncclSystemError\b|\bncclInternalError\b|\bNCCL error\b")
KILLED_WORDS = any_of(
    r"\bexit ?code {0,4}: ?(?:-9|137)\b|\bterminated with signal SIGKILL\b|\bSignal 9 \(SIGKILL\)",
)
LOADER_TIME_WORDS = any_of(r"\bDataLoader timed out after \d")

WAITED = "A rank waited for one that never came: look at the other ranks' own errors first."
STARVED = "The data loader delivered nothing in its time: look at its workers and at the storage."


def judge_killed(fault: Fault) -> Verdict:
    """A launcher says that one of its processes was killed: by the kernel, for want of host memory."""
    confidence: Confidence = "certain" if fault.ending.kernel_kills_rose else "probable"
    return Verdict(outcome="host_oom", confidence=confidence, advice=HOST)


def judge_pool(fault: Fault) -> Verdict:
    """A pool's process vanished: host memory where the kernel has killed, else not known."""
    if fault.ending.kernel_kills_rose:
        return Verdict(outcome="host_oom", confidence="probable", advice=HOST)
    return Verdict(outcome="crashed", confidence="probable")


def is_an_echo(record: ExceptionRecord) -> bool:
    """Whether this is what a rank says because another one failed: a wait that ended, a peer that vanished."""
    return from_a_library(record) and any(
        words.search(record.text[:32_768]) is not None for words in (COLLECTIVE_WORDS, PEER_WORDS)
    )


_LAUNCHING = either(
    from_a_library,
    lambda record: (
        re.search(r"(?:ChildFailedError|ProcessExitedException|CalledProcessError)$", record.cls) is not None
    ),
)

RANKS: tuple[Kind, ...] = (
    Kind(name="killed rank", speakers=_LAUNCHING, words=KILLED_WORDS, judge=judge_killed),
    Kind(
        name="broken pool",
        speakers=is_a("concurrent.futures.process.BrokenProcessPool", "BrokenProcessPool"),
        judge=judge_pool,
    ),
    Kind(
        name="collective",
        speakers=from_a_library,
        words=COLLECTIVE_WORDS,
        judge=always(Verdict(outcome="timeout", cause="collective", confidence="probable", advice=WAITED)),
    ),
    Kind(
        name="loader time",
        speakers=from_a_library,
        words=LOADER_TIME_WORDS,
        judge=always(Verdict(outcome="timeout", confidence="probable", advice=STARVED)),
    ),
    Kind(
        name="peer",
        speakers=either(from_a_library, is_a("ConnectionError")),
        words=PEER_WORDS,
        judge=always(Verdict(outcome="crashed", confidence="probable", advice=WAITED)),
    ),
    Kind(
        name="nccl",
        speakers=from_a_library,
        words=NCCL_WORDS,
        judge=always(Verdict(outcome="crashed", confidence="probable")),
    ),
)
