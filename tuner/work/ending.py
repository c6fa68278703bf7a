"""What is known about a run's end, from its process, events and request: the facts a verdict is made from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from objectives.trial.outcome import Ending, ExceptionRecord, extract_numbers

if TYPE_CHECKING:
    from objectives.trial.protocol import Event, RunRequest
    from tuner.work.trial_process import ProcessEnd

MEASURING = frozenset({"search", "repeat", "confirm", "soak"})
"""Purposes whose result is a measurement."""
CAPPED_PHASES = frozenset({"build", "compile", "worst_case"})
"""While these last, a CPU's cap is on; it is lifted before anything is timed."""
NEAR_CAP_BYTES = 40 << 20
"""A child refused at its cap stops this short of it: allocations come in blocks."""
LONGEST_CHAIN = 256


def ending_from(
    end: ProcessEnd, events: Sequence[Event], request: RunRequest, *, ended_seconds: float | None = None
) -> Ending:
    """Puts together what the process, its events and its request say about the end.

    Args:
        end: Of its process.
        events: Every event of this rank, in order.
        request: What the run was asked to do.
        ended_seconds: When the end was seen, by the worker's monotonic clock; needed where ranks are compared.
    """
    failure = _last(events, "failure")
    phase = str(failure.get("phase") or _last(events, "phase").get("phase") or "import")
    chain = _chain(failure)
    share = _share(failure, end, request, phase)
    return Ending(
        exit_code=end.exit_code,
        signal=end.signal,
        killed_by_us=end.killed_by_us,
        kill_reason=end.kill_reason,
        phase=phase,
        applied_steps=_applied_steps(events, failure, request),
        chain=chain,
        finished=_finished(events, request),
        log_tail=end.log_tail,
        device=request.device,
        memory_used_share=share,
        cap_set=_cap_set(failure, request),
        cap_reached=_cap_reached(failure, chain, request, phase, share),
        kernel_kills_rose=end.kernel_kills_rose,
        launcher_lost=end.launcher_lost,
        loader_workers=_number(request.config.get("loader_workers")),
        micro_batch_size=_number(request.config.get("micro_batch_size")),
        ended_seconds=ended_seconds,
    )


def _last(events: Sequence[Event], name: str) -> Mapping[str, Any]:
    return next((event.fields for event in reversed(events) if event.event == name), {})


def _finished(events: Sequence[Event], request: RunRequest) -> bool:
    """Whether the result is complete: a measuring run that says ``finished`` without a measurement has none."""
    names = {event.event for event in events}
    return "finished" in names and (request.purpose not in MEASURING or "measurement" in names)


def _chain(failure: Mapping[str, Any]) -> tuple[ExceptionRecord, ...]:
    """The exception chain as it came. A child's words are not trusted to have the shape they should."""
    records = failure.get("chain")
    if not isinstance(records, list):
        return ()
    return tuple(_record(item) for item in records[:LONGEST_CHAIN] if isinstance(item, Mapping))


def _record(item: Mapping[str, Any]) -> ExceptionRecord:
    bases = item.get("bases")
    return ExceptionRecord(
        cls=str(item.get("cls", "")),
        bases=tuple(map(str, bases)) if isinstance(bases, (list, tuple)) else (),
        text=str(item.get("text", "")),
    )


def _applied_steps(events: Sequence[Event], failure: Mapping[str, Any], request: RunRequest) -> int | None:
    """Optimizer steps applied, as the child says or as its step events show; None where the run takes none."""
    if request.purpose not in MEASURING:
        return None
    if (told := _number(failure.get("applied_steps"))) is not None:
        return told
    steps = [event.fields for event in events if event.event == "step" and event.fields.get("kind") == "optimizer"]
    if not steps:
        return 0 if _last(events, "measurement").get("step_seconds") == [] else None
    return sum(not step.get("skipped") for step in steps)


def _cap_set(failure: Mapping[str, Any], request: RunRequest) -> bool:
    told = failure.get("cap_set")
    return told if isinstance(told, bool) else request.cap_memory and request.memory_limit_bytes is not None


def _share(failure: Mapping[str, Any], end: ProcessEnd, request: RunRequest, phase: str) -> float | None:
    """Memory in use at the end, as a share of the limit.

    A child that died without a word is judged by what was seen from outside: on a CPU, under the cap, its anonymous
    memory. That counts what it inherited, too: rather too near the cap than too far, since near means one more run.
    """
    told = failure.get("memory_used_share")
    if isinstance(told, (int, float)) and not isinstance(told, bool):
        return float(told)
    limit, seen = request.memory_limit_bytes, end.peak_anonymous_bytes
    if request.device != "cpu" or phase not in CAPPED_PHASES or not limit or seen is None:
        return None
    return (seen + NEAR_CAP_BYTES) / limit


def _cap_reached(
    failure: Mapping[str, Any],
    chain: Sequence[ExceptionRecord],
    request: RunRequest,
    phase: str,
    share: float | None,
) -> bool | None:
    """Whether the child's cap refused. One request larger than what was left reaches it as well."""
    told = failure.get("cap_reached")
    reached = told if isinstance(told, bool) else None
    limit = request.memory_limit_bytes
    if reached or request.device != "cpu" or not _cap_set(failure, request) or not limit:
        return reached
    if phase not in CAPPED_PHASES or share is None:
        return reached
    asked = max((extract_numbers(record.text).get("requested_bytes", 0) for record in chain), default=0)
    return True if asked and share * limit + asked >= limit else reached


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
