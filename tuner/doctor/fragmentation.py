"""Mistake 3: fragmentation (or a leak) over a long run is ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.doctor.check import Advice, Check, Figure, Finding, Verdict, open_question
from tuner.doctor.evidence import Remedy, Soaked, soaked
from tuner.doctor.subjects import Subject, device_kind, measured, winner_of, words_for
from tuner.doctor.telling import duration, percent, size

if TYPE_CHECKING:
    from storage.records import TrialRecord
    from tuner.answer.summary import StudyView

LARGE_SHARE = 0.10
"""Of the device's memory: reserved by the allocator and held by no tensor at the peak. The hint that PyTorch prints
with every out-of-memory is no sign of it."""
SAFE_HOURS = 24.0
"""Growth that reaches the limit sooner than this ends a run of a day."""
FAR = 20.0
"""A line is not believed farther than so many times the time that was watched: growth often comes to an end."""


def look(view: StudyView) -> Sequence[Finding]:
    """All findings, the long run first."""
    findings = (_soak(view), _held(view), _retries(view), _misfits(view))
    return [each for each in findings if each is not None]


def _soak(view: StudyView) -> Finding:
    """What a long run of the winner showed."""
    found = soaked(view.runs)
    command = f"`tuner soak {view.study.name}`"
    if not found:
        return open_question("soak", "No long run was made: whether memory grows is not known.", command)
    seen = next((each for each in found if _is_winner(view, each)), found[0])
    if seen.growth == "cannot_tell":
        longer = f"`tuner soak {view.study.name} --minutes {max(2, round(2 * seen.seconds / 60))}`"
        return open_question("soak", f"{duration(seen.seconds)} do not tell whether memory grows.", longer)
    verdict = _soak_verdict(view, seen)
    return Finding(
        name="soak",
        verdict=verdict,
        statement=_soak_words(view, seen),
        figures=_soak_figures(view, seen),
        runs=(seen.run,),
        trials=tuple(each.number for each in view.ended if each.id == seen.trial_id),
        advice=() if verdict == "fine" else _soak_advice(view, seen),
    )


def _soak_verdict(view: StudyView, seen: Soaked) -> Verdict:
    limit = view.study.memory_limit_bytes
    over = limit is not None and (seen.peak_memory_bytes or 0) > limit
    if seen.leak or over:
        return "broken"
    if seen.growth == "grows":
        hours = hours_left(view, seen)
        return "broken" if hours is not None and hours < SAFE_HOURS and not _far(hours, seen) else "improve"
    return "improve" if seen.growth == "steps" else "fine"


def hours_left(view: StudyView, seen: Soaked) -> float | None:
    """Hours until steady growth reaches the limit; None without steady growth, or without a limit or a peak."""
    limit, growth = view.study.memory_limit_bytes, seen.growth_bytes_per_hour
    if seen.growth != "grows" or limit is None or not growth or growth <= 0 or seen.peak_memory_bytes is None:
        return None
    return max(0.0, (limit - seen.peak_memory_bytes) / growth)


def _soak_words(view: StudyView, seen: Soaked) -> str:
    who, long = words_for(view, seen.trial_id), duration(seen.seconds)
    if seen.leak:
        source = f" ({seen.leak_source})" if seen.leak_source else ""
        return f"Over {long} of the {who} live tensors grow{source}: a leak, not fragmentation.{_until(view, seen)}"
    words = {
        "flat": "does not grow",
        "saturates": "grows at first and then stays",
        "steps": "grows in steps, which are not extrapolated",
        "grows": "grows",
    }
    return f"Over {long} of the {who} memory {words[seen.growth]}{_rate(seen)}.{_until(view, seen)}"


def _rate(seen: Soaked) -> str:
    if seen.growth != "grows" or seen.growth_bytes_per_hour is None:
        return ""
    low_high = seen.growth_interval
    bounds = "" if low_high is None else f" [{size(low_high[0])}, {size(low_high[1])}]"
    return f" by {size(seen.growth_bytes_per_hour)} an hour{bounds}"


def _until(view: StudyView, seen: Soaked) -> str:
    hours = hours_left(view, seen)
    if hours is None:
        return ""
    told = f" At that pace the limit is reached in {duration(3600 * hours)}."
    return f"{told} That is far longer than was watched: a longer soak tells." if _far(hours, seen) else told


def _far(hours: float, seen: Soaked) -> bool:
    return 3600 * hours > FAR * seen.seconds


def _soak_figures(view: StudyView, seen: Soaked) -> tuple[Figure, ...]:
    who = words_for(view, seen.trial_id)
    rows: tuple[tuple[str, float | int | str | None, str], ...] = (
        ("length", seen.seconds, "seconds"),
        ("peak memory", seen.peak_memory_bytes, "bytes"),
        ("in live tensors at the end", seen.allocated_bytes, "bytes"),
        ("held by the allocator at the end", seen.reserved_bytes, "bytes"),
        ("smallest largest free block", seen.largest_free_block_bytes, "bytes"),
        ("allocation retries", seen.allocation_retries, ""),
        ("curve", seen.growth, ""),
    )
    growth = Figure(
        name="growth", value=seen.growth_bytes_per_hour, unit="bytes_per_hour", interval=seen.growth_interval, of=who
    )
    return (growth, *(Figure(name=name, value=value, unit=unit, of=who) for name, value, unit in rows))


def _soak_advice(view: StudyView, seen: Soaked) -> tuple[Advice, ...]:
    check = f"`tuner soak {view.study.name}` again"
    if seen.leak:
        held = seen.leak_source or "losses or outputs kept in a list with their graph"
        change = f"find what keeps tensors alive ({held}): keep `loss.item()`, or `detach()` first"
        return (Advice(change=change, expected="live tensors stay flat; no allocator setting helps", check=check),)
    helped = [each for each in seen.remedies if each.helps]
    if not seen.remedies:
        change = "let a longer soak try remedies before you rely on a long run; until then restart from checkpoints"
        expected = "what grows for minutes only is no fault; for what goes on, the soak names what helps and its price"
        return (Advice(change=change, expected=expected, check=check.replace("` again", " --minutes 30`")),)
    if not helped:
        tried = ", ".join(each.name for each in seen.remedies)
        change = "restart from a checkpoint before the limit is reached, or keep more headroom"
        return (Advice(change=change, expected=f"the run survives; none of these helped: {tried}", check=check),)
    return tuple(_remedy(each, check) for each in helped)


def _remedy(remedy: Remedy, check: str) -> Advice:
    grown = remedy.growth_bytes_per_hour
    expected = "memory grows less" if grown is None else f"growth of {size(grown)} an hour"
    cost = remedy.slowdown
    priced = "" if cost is None else f", {percent(abs(cost))} {'slower' if cost > 0 else 'faster'}"
    return Advice(
        change=remedy.name,
        expected=f"{expected}{priced}, measured in the soak",
        check=check,
        knobs=remedy.knobs,
        gain=None if cost is None else 1 - cost,
        measured=cost is not None,
    )


def _held(view: StudyView) -> Finding | None:
    """Reserved against allocated at the peak, as a share of the device."""
    known = [each for each in measured(view) if _gap(each) is not None]
    if not known:
        return _nothing_on_cpu(view)
    total = view.total_memory_bytes or view.study.memory_limit_bytes
    shares = {each.word: (_gap(each) or 0) / total for each in known} if total else {}
    worst = max(shares.values(), default=None)
    bad = worst is not None and worst >= LARGE_SHARE
    told = ", ".join(
        f"{size(_gap(each))} ({percent(shares[each.word])}) in the {each.word}" for each in known if shares
    )
    return Finding(
        name="held_and_unused",
        verdict="improve" if bad else "fine",
        statement=f"At the peak the allocator holds more than tensors use: {told} of the device's memory.",
        figures=tuple(figure for each in known for figure in _held_figures(each, total)),
        trials=tuple(each.trial.number for each in known),
        runs=tuple(run for each in known for run in each.run_ids),
        advice=(_segments(view, worst or 0.0),) if bad else (),
        essential=False,
    )


def _nothing_on_cpu(view: StudyView) -> Finding | None:
    if device_kind(view) != "cpu" or not measured(view):
        return None
    return Finding(
        name="held_and_unused",
        verdict="not_comparable",
        statement="A CPU has no caching allocator: what fragments there shows in the soak's resident memory alone.",
        essential=False,
    )


def _gap(subject: Subject) -> int | None:
    reserved, allocated = subject.memory("peak_reserved_bytes"), subject.memory("peak_allocated_bytes")
    return None if reserved is None or allocated is None else reserved - allocated


def _held_figures(subject: Subject, total: int | None) -> tuple[Figure, ...]:
    names = {
        "peak_allocated_bytes": "allocated",
        "peak_reserved_bytes": "reserved",
        "largest_free_block_bytes": "largest free block",
        "outside_bytes": "outside the allocator",
    }
    made = [
        Figure(name=told, value=subject.memory(name), unit="bytes", of=subject.word) for name, told in names.items()
    ]
    share = None if not total else (_gap(subject) or 0) / total
    return (*made, Figure(name="held and unused", value=share, unit="share", of=subject.word))


def _segments(view: StudyView, share: float) -> Advice:
    tried = {str(each.config.get("allocator", "default")) for each in view.ended}
    setting = next((each for each in ("expandable_segments", "max_split_size") if each not in tried), None)
    if setting is None:
        change = "length-grouped batches, or a fixed padded length: fewer shapes fragment less"
        return Advice(change=change, expected=f"at most {percent(share)} of the device", check="`tuner soak` again")
    return Advice(
        change=f"allocator: {setting}",
        expected=f"at most {percent(share)} of the device's memory becomes usable",
        check=f"`tuner run` with `search.allocator: [default, {setting}]`",
        knobs={"allocator": setting},
    )


def _retries(view: StudyView) -> Finding | None:
    """Allocations that had to give cached blocks back first: each stalls the device."""
    known = [each for each in measured(view) if each.memory("allocation_retries") is not None]
    if not known:
        return None
    worst = max(known, key=lambda each: each.memory("allocation_retries") or 0)
    count = worst.memory("allocation_retries") or 0
    told = f"The {worst.word} had to give cached blocks back {count} times in a short run: it lives at the edge."
    advice = Advice(
        change="a smaller micro-batch with more accumulation, or a lower `limits.memory`",
        expected="each retry waits for the device and frees everything cached: steps of even length come back",
        check="allocation retries of 0 in the next study",
    )
    return Finding(
        name="allocation_retries",
        verdict="improve" if count else "fine",
        statement=told if count else "No allocation had to wait for cached blocks to be given back.",
        figures=tuple(
            Figure(name="allocation retries", value=each.memory("allocation_retries"), of=each.word) for each in known
        ),
        trials=(worst.trial.number,),
        runs=worst.run_ids,
        advice=(advice,) if count else (),
        essential=False,
    )


def _misfits(view: StudyView) -> Finding | None:
    """Trials that failed with enough free memory in pieces (judged by share of the request, not by the hint)."""
    found: list[TrialRecord] = [each for each in view.ended if each.cause == "fragmentation"]
    if not found:
        return None
    setting = _segments(view, LARGE_SHARE)
    return Finding(
        name="out_of_memory_by_fragmentation",
        verdict="improve",
        statement=f"{len(found)} trials ran out of memory with enough of it free, in pieces.",
        figures=(Figure(name="trials", value=len(found)),),
        trials=tuple(each.number for each in found),
        advice=(setting,),
    )


def _is_winner(view: StudyView, seen: Soaked) -> bool:
    best = winner_of(view)
    return best is not None and best.trial.id == seen.trial_id


CHECK = Check(name="fragmentation", mistake=3, title="Fragmentation over a long run", look=look)
