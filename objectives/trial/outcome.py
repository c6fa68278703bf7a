"""How a run ended: the one door to all that knows what an out-of-memory looks like. Pure and torch-free.

A verdict follows from who ended the run, then from the final exception with its whole chain, then from the signal or
exit status (with the log's fatal lines, where no exception was recorded), then from what the run's protocol lacks. It
never follows from a warning's words. The kinds of faults are in :mod:`objectives.trial.faults`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace

from objectives.trial.faults.causes import CAUSES, OUTCOMES, OutcomeMeaning, Teaches
from objectives.trial.faults.consequences import INFRA_ATTEMPTS, fingerprint, same_failure, should_retry, teaches
from objectives.trial.faults.kind import NEAR_FULL_SHARE, Fault
from objectives.trial.faults.log import ended_itself, fatal_records
from objectives.trial.faults.machine import SHM
from objectives.trial.faults.memory import CAPPED, HOST, SMALLER
from objectives.trial.faults.model import Confidence, Ending, ExceptionRecord, Outcome, Retry, Verdict
from objectives.trial.faults.ranks import is_an_echo
from objectives.trial.faults.records import unfolded
from objectives.trial.faults.refusal import UNSTABLE
from objectives.trial.faults.sizes import extract_numbers
from objectives.trial.faults.table import KINDS

__all__ = [
    "CAUSES", "INFRA_ATTEMPTS", "OUTCOMES", "Confidence", "Ending", "ExceptionRecord", "Outcome", "OutcomeMeaning",
    "Retry", "Teaches", "Verdict", "blame", "classify", "extract_numbers", "fingerprint", "judge_measurement",
    "same_failure", "should_retry", "teaches",
]  # fmt: skip

SKIPPED_SHARE_LIMIT = 0.2
"""Steps a gradient scaler may skip after warm-up; a healthy one skips a step in thousands."""
SPILLED_SHARE_LIMIT = 0.01
"""Swapped memory, as a share of the peak, from which a run is said to have spilled."""
TEXT_CHARACTERS = 500


def classify(ending: Ending) -> Verdict:
    """The one outcome of a run. Never raises; the same ending always gets the same verdict."""
    verdict = _ended_by_somebody(ending) or _failed(ending) or _signalled(ending) or _exited(ending)
    return replace(verdict, phase=ending.phase)


# Who ended it


def _ended_by_somebody(ending: Ending) -> Verdict | None:
    if ending.killed_by_us:
        return _ended_by_us(ending)
    if ending.launcher_lost and not ending.finished:
        return Verdict(outcome="infra", cause="worker_lost", text="the process that had started the run was lost")
    return None


def _ended_by_us(ending: Ending) -> Verdict | None:
    """What our own reason says, unless the run had ended on its own before: with an error, or with its result."""
    verdict = _by_reason(ending.kill_reason or "")
    if verdict.outcome == "cancelled":
        return verdict
    if ending.finished:
        return None if verdict.outcome == "timeout" else verdict
    own = _failed(ending)
    return verdict if own is None or own.outcome == "cancelled" else own


def _by_reason(reason: str) -> Verdict:
    text = f"ended by the worker: {reason or 'no reason given'}"
    if reason in CAUSES:
        return Verdict(outcome=CAUSES[reason][0], cause=reason, text=text)
    if re.search(r"prun|dominat", reason):
        return Verdict(outcome="pruned", text=text)
    if re.search(r"cancel|drain|study|user|interrupt|shutdown", reason):
        return Verdict(outcome="cancelled", text=text)
    if re.search(r"compil\w*_?(?:time|deadline)", reason):
        return Verdict(outcome="timeout", cause="compile_time", text=text)
    if re.search(r"time|deadline|progress|first_step|hang|hung|stall", reason):
        return Verdict(outcome="timeout", cause="trial_time", text=text)
    return Verdict(outcome="cancelled", text=text)


# What failed


def _failed(ending: Ending) -> Verdict | None:
    """The verdict of the exception chain; None without one, or when the result had been complete before."""
    if not ending.chain or ending.finished:
        return None
    return _explained(ending, unfolded(ending.chain)) or _unexplained(ending.chain[0])


def _explained(ending: Ending, records: Iterable[ExceptionRecord]) -> Verdict | None:
    known = tuple(records)
    for kind in KINDS:
        for record in known:
            if kind.recognises(record):
                verdict = kind.judge(Fault(ending=ending, record=record))
                return replace(verdict, text=_text(record))
    return None


def _unexplained(record: ExceptionRecord) -> Verdict:
    return Verdict(outcome="crashed", text=_text(record))


def _text(record: ExceptionRecord) -> str:
    return f"{record.cls}: {record.text}"[:TEXT_CHARACTERS] if record.text else record.cls[:TEXT_CHARACTERS]


# Which signal


def _signalled(ending: Ending) -> Verdict | None:
    number = _signal_of(ending)
    if number is None or ending.finished:
        return None
    if ended_itself(ending.log_tail):
        return Verdict(outcome="infra", cause="worker_lost", text="the run ended itself: its worker was gone")
    text = f"signal {number} ({_signal_name(number)})"
    if number == signal.SIGKILL:
        return Verdict(outcome="host_oom", confidence=_kernel(ending), advice=HOST, text=text)
    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        return _asked_to_end(number, text)
    if explained := _explained(ending, fatal_records(ending.log_tail)):
        return explained
    if number == signal.SIGBUS and ending.loader_workers:
        return Verdict(outcome="shm", confidence="probable", advice=SHM, text=text)
    return _crashed(ending, text)


def _asked_to_end(number: int, text: str) -> Verdict:
    if number == signal.SIGINT:
        return Verdict(outcome="cancelled", text=text)
    return Verdict(outcome="infra", cause="worker_lost", confidence="probable", text=text)


def _crashed(ending: Ending, text: str) -> Verdict:
    """A crash in native code. Near the child's own cap it may be an allocation nobody checked: the flag says so."""
    if _near_own_cap(ending):
        return Verdict(outcome="crashed", confidence="probable", numbers={"near_cap": True}, text=text)
    return Verdict(outcome="crashed", text=text)


def _near_own_cap(ending: Ending) -> bool:
    if ending.device == "cuda" or ending.cap_set is False:
        return False
    near = ending.memory_used_share is not None and ending.memory_used_share >= NEAR_FULL_SHARE
    return bool(ending.cap_reached) or (bool(ending.cap_set) and near)


def _kernel(ending: Ending) -> Confidence:
    return "certain" if ending.kernel_kills_rose else "probable"


def _signal_of(ending: Ending) -> int | None:
    """The signal, also where a shell turned it into an exit status above 128 or a launcher into a negative one."""
    if ending.signal is not None:
        return ending.signal
    code = ending.exit_code or 0
    number = -code if code < 0 else code - 128
    known = (signal.SIGHUP, signal.SIGINT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL,
             signal.SIGSEGV, signal.SIGTERM)  # fmt: skip
    return number if number in known else None


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else "unknown"


# What the protocol lacks


def _exited(ending: Ending) -> Verdict:
    if ending.finished:
        if ending.applied_steps == 0:
            return Verdict(outcome="crashed", cause="no_step", text="no optimizer step was applied")
        return Verdict(outcome="completed")
    if ending.exit_code:
        text = f"exit status {ending.exit_code}"
        found = _explained(ending, fatal_records(ending.log_tail)) or _crashed(ending, text)
        return _flagged(ending, found)
    if ending.exit_code is None:
        return Verdict(outcome="crashed", cause="no_result", confidence="probable", text="its end is not known")
    return Verdict(outcome="crashed", cause="no_result", text="it exited without a result")


def _flagged(ending: Ending, verdict: Verdict) -> Verdict:
    """A library that gave up near the cap (libgomp exits) gets the same second look as a signal."""
    if verdict.confidence == "certain" or not _near_own_cap(ending):
        return verdict
    return replace(verdict, numbers={**verdict.numbers, "near_cap": True})


# What a measurement says


def judge_measurement(
    *,
    peak_bytes: int | None,
    capacity_bytes: int | None,
    cap_bytes: int | None = None,
    swapped_bytes: int = 0,
    applied_steps: int | None = None,
    skipped_share: float = 0.0,
    losses_finite: bool = True,
) -> Verdict:
    """The verdict on a run that ended well: memory that only seemed to fit, and steps that only seemed to train.

    Args:
        peak_bytes: Peak memory of the run; None when it was not measured.
        capacity_bytes: What the device has; None when it is not known.
        cap_bytes: The cap the run was asked to keep, when it ran with a raised one (after a signal near it).
        swapped_bytes: What the system moved to disk, or the driver to host memory, while the run was measured.
        applied_steps: Optimizer steps applied in the whole run.
        skipped_share: Share of the steps after warm-up that a gradient scaler skipped, 0 to 1.
        losses_finite: Whether every loss after warm-up was a finite number.
    """
    if applied_steps == 0 and skipped_share == 0.0 and losses_finite:
        return Verdict(outcome="crashed", cause="no_step", text="no optimizer step was applied")
    if not losses_finite or skipped_share > SKIPPED_SHARE_LIMIT or applied_steps == 0:
        text = f"{skipped_share:.0%} of the steps were skipped" if losses_finite else "the loss was not finite"
        return Verdict(outcome="numerical", advice=UNSTABLE, text=text)
    return _fitted(peak_bytes or 0, capacity_bytes, cap_bytes, swapped_bytes)


def _fitted(peak: int, capacity: int | None, cap: int | None, swapped: int) -> Verdict:
    if capacity is not None and peak > capacity:
        text = f"{peak} bytes were used of {capacity}"
        return Verdict(outcome="device_oom", cause="spill", advice=SMALLER, text=text)
    if swapped > SPILLED_SHARE_LIMIT * peak and swapped > 0:
        return Verdict(outcome="device_oom", cause="spill", advice=SMALLER, text=f"{swapped} bytes were swapped out")
    if cap is not None and peak > cap:
        return Verdict(outcome="device_oom", cause="cap", advice=CAPPED, text=f"{peak} bytes were needed of {cap}")
    return Verdict(outcome="completed")


# Which rank's fault it was


def blame(endings: Mapping[int, Ending]) -> Ending:
    """The ending that names a run of several ranks: the earliest failure of a rank's own.

    A rank that only waited in vain, lost its peer or was ended by us with the others is an echo, and names the run only
    when nothing else is known. Where the times are not known, a rank's own words come before a bare signal, and a kill
    from outside (the kernel's) before a failure without words.

    Args:
        endings: By rank; at least one.
    """
    return min(endings.values(), key=_guilt)


def _guilt(ending: Ending) -> tuple[int, float, int]:
    verdict = classify(ending)
    if verdict.outcome == "completed":
        order = 3
    elif ending.killed_by_us and not ending.chain:
        order = 2
    else:
        order = int(_is_an_echo(ending))
    ended = float("inf") if ending.ended_seconds is None else ending.ended_seconds
    return order, ended, _plainness(verdict)


def _is_an_echo(ending: Ending) -> bool:
    records = unfolded(ending.chain) or fatal_records(ending.log_tail)
    verdict = classify(ending)
    vague = verdict.outcome in ("timeout", "crashed") and verdict.cause in (None, "collective")
    return vague and any(is_an_echo(record) for record in records)


def _plainness(verdict: Verdict) -> int:
    """How plainly a failure speaks: 0 names its cause, 1 is a kill from outside, 2 says nothing."""
    if verdict.outcome == "host_oom":
        return 1
    return 2 if verdict.outcome == "crashed" and verdict.cause is None else 0
