"""Mistake 5: data loading starves the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tuner.doctor.check import Advice, Check, Figure, Finding, open_question
from tuner.doctor.loader_memory import growth, host_memory, shared_memory
from tuner.doctor.padding import padding, tokens
from tuner.doctor.subjects import Subject, baseline_of, device_kind, measured, subjects
from tuner.doctor.telling import counted, duration, number, percent
from tuner.search.capacities import PURPOSE

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

STALLED = 0.05
"""Share of a step spent waiting for data from which on the loader is worth a change."""
ENOUGH = 1.1
"""A loader that delivers so many times what training takes keeps up: less, and each hiccup is a wait."""
SLOW_FIRST_PASS = 2.0
"""The first pass over the data waits so many times longer than later ones: caches fill, files are opened."""


def look(view: StudyView) -> Sequence[Finding]:
    """All findings, the stall first."""
    findings = (
        *_stalls(view),
        _capacity(view),
        _workers(view),
        shared_memory(view),
        host_memory(view),
        growth(view),
        _first_pass(view),
        padding(view),
        tokens(view),
    )
    return [each for each in findings if each is not None]


def stall_share(view: StudyView, subject: Subject) -> tuple[float, float, float] | None:
    """Mean, smallest and largest share of a step that waits for data, over the subject's runs; None without one.

    On a GPU the comparison with batches already on the device tells: the host's own waiting overlaps with computing. On
    a CPU nothing overlaps, and the host's waiting is the stall.
    """
    name = "data_stall_share" if device_kind(view) == "cuda" else "data_wait_share"
    known = subject.numbers(name) or subject.numbers("data_stall_share")
    return (fmean(known), min(known), max(known)) if known else None


def _stalls(view: StudyView) -> list[Finding]:
    known = [(each, share) for each in measured(view) if (share := stall_share(view, each)) is not None]
    if not known:
        return [open_question("stall", "No run says how long it waited for data.", "`tuner run SPEC`")]
    return [_stall(view, subject, share) for subject, share in known]


def _stall(view: StudyView, subject: Subject, share: tuple[float, float, float]) -> Finding:
    mean, low, high = share
    stalled = mean >= STALLED
    told = f"The {subject.word} waits {percent(mean)} of each step for data"
    base = baseline_of(view)
    is_base = base is not None and base.trial.id == subject.trial.id
    return Finding(
        name="stall" if is_base else "stall_of_the_winner",
        verdict="improve" if stalled else "fine",
        statement=f"{told}: the device starves, and a larger batch would not help." if stalled else f"{told}.",
        figures=(
            Figure(name="waiting for data", value=mean, unit="share", interval=(low, high), of=subject.word),
            Figure(name="loader workers", value=subject.config.loader_workers, of=subject.word),
        ),
        trials=(subject.trial.number,),
        runs=subject.run_ids,
        advice=(_feed(view, subject, mean),) if stalled else (),
    )


def _feed(view: StudyView, subject: Subject, share: float) -> Advice:
    config, best = subject.config, _enough_workers(view, subject)
    cores = None if view.facts is None else view.facts.cores
    workers = best if best is not None else min(config.loader_workers + 1, cores or config.loader_workers + 1)
    change = f"loader_workers: {workers} instead of {config.loader_workers}"
    knobs: dict[str, Any] = {"loader_workers": workers}
    if workers <= config.loader_workers:
        change, knobs = (
            "make samples cheaper: cache what is computed for each (knob `tokens: cached`, decoded pictures)",
            {},
        )
    return Advice(
        change=f"{change}, rather than another batch size",
        expected=f"at most {1 / (1 - min(share, 0.95)):.2f}x: what the waiting takes now",
        check="`tuner run` with several values in `search.loader_workers`: the stall share falls below 5 %",
        knobs=knobs,
        gain=1 / (1 - min(share, 0.95)),
    )


def _answers(view: StudyView) -> list[tuple[str, Mapping[str, Any]]]:
    """What loaders deliver by themselves: run id and answer, of settings that could be measured."""
    return [
        (run.id, answer)
        for run in view.runs
        if run.purpose == PURPOSE
        for answer in run.measurement.get("capacities") or ()
        if answer.get("units_per_second")
    ]


def _need(view: StudyView, subject: Subject) -> float | None:
    """Units per second that training would take if it never waited."""
    share, rate = stall_share(view, subject), subject.trial.throughput
    return None if share is None or not rate else rate / (1 - min(share[0], 0.95))


def _capacity(view: StudyView) -> Finding:
    """What the loader delivers against what training takes, by number of workers."""
    name, known, mine = "loader_capacity", _answers(view), measured(view)
    if not known or not mine:
        told = "What the loader delivers by itself was not measured."
        how = "`tuner run` with several values in `search.loader_workers` and `sampler: auto`"
        return open_question(name, told, how, essential=False)
    subject = mine[-1]
    need = _need(view, subject)
    used = [answer for _, answer in known if _is_used(answer, subject)]
    rate = max((float(each["units_per_second"]) for each in used), default=None)
    short = rate is not None and need is not None and rate < ENOUGH * need
    return Finding(
        name=name,
        verdict="improve" if short else "fine",
        statement=_capacity_words(subject, rate, need),
        figures=(
            Figure(name="needed", value=need, unit=str(subject.trial.throughput_unit), of=subject.word),
            *(_capacity_figure(answer, subject) for _, answer in known),
        ),
        runs=tuple(dict.fromkeys(run for run, _ in known)),
        trials=(subject.trial.number,),
        advice=(_feed(view, subject, max(0.0, 1 - (rate or 0) / (need or 1))),) if short else (),
        essential=False,
    )


def _capacity_words(subject: Subject, rate: float | None, need: float | None) -> str:
    if rate is None or need is None:
        return f"The {subject.word}'s own loader setting was not measured by itself."
    return (
        f"With the {subject.word}'s {counted(subject.config.loader_workers, 'worker')} the loader delivers "
        f"{number(rate)} a second by itself; training takes {number(need)} ({rate / need:.1f} times)."
    )


def _capacity_figure(answer: Mapping[str, Any], subject: Subject) -> Figure:
    rate, error = float(answer["units_per_second"]), answer.get("relative_standard_error")
    half = None if error is None else 1.96 * float(error) * rate
    said = ", ".join(f"{name} {value}" for name, value in answer["settings"].items())
    return Figure(
        name="delivered",
        value=rate,
        unit=str(subject.trial.throughput_unit),
        interval=None if half is None else (rate - half, rate + half),
        of=said,
    )


def _is_used(answer: Mapping[str, Any], subject: Subject) -> bool:
    knobs = subject.config.knobs()
    return all(knobs.get(name) == value for name, value in answer["settings"].items())


def _enough_workers(view: StudyView, subject: Subject) -> int | None:
    """The fewest workers whose loader keeps up; None where no setting does, or nothing says."""
    need = _need(view, subject)
    if need is None:
        return None
    enough = [
        int(answer["settings"].get("loader_workers", 0))
        for _, answer in _answers(view)
        if float(answer["units_per_second"]) >= ENOUGH * need
    ]
    return min(enough, default=None)


def _workers(view: StudyView) -> Finding:
    """Workers against the cores this process may really use (affinity and control group: case E01)."""
    mine, name = subjects(view), "workers_and_cores"
    if view.facts is None or not mine:
        return open_question(name, "The machine was not asked yet.", "`tuner run SPEC`", essential=False)
    cores = view.facts.cores
    over = [each for each in mine if each.config.loader_workers * view.spec.ranks > cores]
    most = over[0] if over else mine[-1]
    workers = most.config.loader_workers * view.spec.ranks
    told = f"{counted(workers, 'loader worker')} on {counted(cores, 'usable core')} (affinity and control group)"
    advice = Advice(
        change=f"loader_workers: {max(0, cores // view.spec.ranks)} at most, or give the process more cores",
        expected="workers stop taking turns on the cores that training needs",
        check="`tuner devices` shows the usable cores; `tuner run` with `search.loader_workers` measures each",
        knobs={"loader_workers": max(0, cores // view.spec.ranks)},
    )
    return Finding(
        name=name,
        verdict="improve" if over else "fine",
        statement=f"{told}: they get in each other's way." if over else f"The {most.word} has {told}.",
        figures=(Figure(name="usable cores", value=cores), Figure(name="loader workers", value=workers, of=most.word)),
        trials=tuple(each.trial.number for each in mine),
        advice=(advice,) if over else (),
        essential=False,
    )


def _first_pass(view: StudyView) -> Finding | None:
    """Whether the first pass over the data is slower than what a short trial measures, or the other way round."""
    known = [
        (run, each, first, later)
        for each in measured(view)
        for run in each.runs
        if (first := run.measurement.get("first_pass_wait_seconds")) is not None
        and (later := run.measurement.get("later_pass_wait_seconds")) is not None
    ]
    if not known:
        return _one_pass(view)
    run, subject, first, later = max(known, key=lambda each: each[2] - each[3])
    slow = first > SLOW_FIRST_PASS * later and first - later > STALLED * _step(subject)
    advice = Advice(
        change="prepare the data once before training (knob `tokens: cached`, resized pictures on local disk)",
        expected=f"the first epoch waits {duration(later)} a step instead of {duration(first)}",
        check="`tuner run` with the prepared data: both passes wait the same",
    )
    return Finding(
        name="first_pass",
        verdict="improve" if slow else "fine",
        statement=f"A step of the first pass waits {1000 * first:.1f} ms for data, later ones {1000 * later:.1f} ms.",
        figures=(
            Figure(name="wait in the first pass", value=first, unit="seconds", of=subject.word),
            Figure(name="wait in later passes", value=later, unit="seconds", of=subject.word),
        ),
        trials=(subject.trial.number,),
        runs=(run.id,),
        advice=(advice,) if slow else (),
        essential=False,
    )


def _one_pass(view: StudyView) -> Finding | None:
    if not any(each.numbers("data_passes") for each in measured(view)):
        return None
    told = "No run went through the data twice: a slow first epoch cannot be told."
    return open_question("first_pass", told, "`tuner soak`, or a longer `limits.window`", essential=False)


def _step(subject: Subject) -> float:
    known = subject.numbers("median_step_seconds")
    return fmean(known) if known else 0.0


CHECK = Check(name="data_loading", mistake=5, title="Data loading", look=look)
