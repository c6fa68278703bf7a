"""Mistake 4: batch sizes that do not fit model or data parallelism, and ranks with unequal work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tuner.doctor.check import Advice, Check, Figure, Finding, Verdict, open_question
from tuner.doctor.parallel_plan import ParallelPlan, Problem, plan_of, problems
from tuner.doctor.subjects import Subject, baseline_of, data_facts, measured, subjects
from tuner.doctor.telling import batch_words, percent

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

UNEQUAL = 0.10
"""Relative distance of the largest from the mean over ranks from which on work or memory counts as unequal."""
IDLE = 0.10
"""Share of its step that a rank may wait for the slowest one."""
Rank = Mapping[str, Any]


def look(view: StudyView) -> Sequence[Finding]:
    """All findings: what divides, and whether the ranks do equal work."""
    return [_division(view), *_balance(view)]


def _division(view: StudyView) -> Finding:
    """Whether batch, heads, layers, stages and sequence divide, for baseline and winner (or for the spec alone)."""
    plans = {each.word: plan_of(view.spec, each.trial.config, data_facts(view)) for each in subjects(view)}
    if not plans:
        return open_question("division", "No configuration has been tried yet.", "`tuner run SPEC`")
    found = {problem.text: problem for plan in plans.values() for problem in problems(plan)}
    worst: Verdict = "broken" if any(each.verdict == "broken" for each in found.values()) else "improve"
    return Finding(
        name="division",
        verdict=worst if found else "fine",
        statement=_division_words(view, found.values()),
        figures=tuple(figure for word, plan in plans.items() for figure in _plan_figures(word, plan)),
        trials=tuple(each.trial.number for each in subjects(view)),
        advice=tuple(_fix(problem) for problem in found.values()),
    )


def _division_words(view: StudyView, found: Any) -> str:
    if found:
        return "; ".join(each.text for each in found) + "."
    batches = "; ".join(f"{each.word}: {batch_words(each.config, view.spec.ranks)}" for each in subjects(view))
    return f"Everything divides: {batches}."


def _plan_figures(word: str, plan: ParallelPlan) -> tuple[Figure, ...]:
    names = ("ranks", "tensor", "pipeline", "context", "micro_batch", "accumulation", "heads", "layers")
    known = ((name.replace("_", "-"), getattr(plan, name)) for name in names)
    made = tuple(Figure(name=name, value=value, of=word) for name, value in known if value is not None)
    idle = Figure(name="idle in the pipeline", value=plan.bubble_share, unit="share", of=word)
    return (*made, idle) if plan.pipeline > 1 else made


def _fix(problem: Problem) -> Advice:
    return Advice(
        change=problem.fix,
        expected="no rank waits, pads or stops for a part that does not divide",
        check="`tuner doctor STUDY` on the study with the change; a wrong division never starts, or hangs",
    )


def _balance(view: StudyView) -> list[Finding]:
    """Whether the ranks of a run do equal work, hold equal memory, and do not wait for each other."""
    known = [(each, ranks) for each in measured(view) if len(ranks := _ranks(each)) > 1]
    if known:
        return [_rank_finding(view, subject, ranks) for subject, ranks in known]
    several = view.spec.ranks > 1
    told = "The ranks were not measured." if several else "Every run had one rank: nothing was shared out."
    how = "`tuner run SPEC` with `kind: script` and a launcher (`torchrun --nproc_per_node 2 ...`)"
    return [open_question("rank_balance", told, how, essential=several)]


def _ranks(subject: Subject) -> list[Rank]:
    return list(next((run.measurement["ranks"] for run in reversed(subject.runs) if run.measurement.get("ranks")), ()))


def _rank_finding(view: StudyView, subject: Subject, ranks: Sequence[Rank]) -> Finding:
    uneven = {name: over for name in UNEVEN if (over := _over_mean(ranks, name)) is not None and over > UNEQUAL}
    idle = _idle(ranks)
    waits = idle is not None and idle > IDLE
    base = baseline_of(view)
    return Finding(
        name="rank_balance" if base is not None and base.trial.id == subject.trial.id else "rank_balance_of_the_winner",
        verdict="improve" if uneven or waits else "fine",
        statement=_rank_words(subject, ranks, uneven, idle),
        figures=tuple(figure for each in ranks for figure in _rank_figures(subject, each)),
        trials=(subject.trial.number,),
        runs=subject.run_ids,
        advice=tuple(_even_out(ranks, uneven, idle)) if uneven or waits else (),
    )


def _idle(ranks: Sequence[Rank]) -> float | None:
    """Share of its step that the fastest rank waits more than the slowest does; None where they do not say.

    What both wait is jitter: now one is late, now the other. Unequal work lets the same one wait every time.
    """
    known = [float(each["rank_wait_share"]) for each in ranks if each.get("rank_wait_share") is not None]
    return max(known) - min(known) if len(known) > 1 else None


UNEVEN: Mapping[str, str] = {
    "tokens_per_step": "real tokens",
    "samples_per_step": "samples",
    "peak_memory_bytes": "peak memory",
    "data_wait_share": "waiting for data",
}
"""Figures of a rank that should be equal, and how they are called. Waiting is compared as a difference of shares."""


def _over_mean(ranks: Sequence[Rank], name: str) -> float | None:
    """How far the largest is over the mean, relative (shares: the difference); None where ranks do not say."""
    known = [float(each[name]) for each in ranks if each.get(name) is not None]
    if len(known) < 2:
        return None
    over = max(known) - fmean(known)
    return over if name.endswith("_share") else over / fmean(known) if fmean(known) > 0 else 0.0


def _rank_words(subject: Subject, ranks: Sequence[Rank], uneven: Mapping[str, float], idle: float | None) -> str:
    parts = [
        f"the heaviest rank has {percent(over)} more {UNEVEN[name]} than the mean" for name, over in uneven.items()
    ]
    if idle is not None:
        parts.append(f"the fastest rank waits {percent(idle)} of its step longer than the slowest")
    told = "; ".join(parts) or "no rank has more work than the others"
    return f"{len(ranks)} ranks of the {subject.word}: {told}."


def _rank_figures(subject: Subject, rank: Rank) -> tuple[Figure, ...]:
    of = f"{subject.word}, rank {rank.get('rank')}"
    units = {
        "step_seconds": "seconds",
        "samples_per_step": "samples",
        "tokens_per_step": "tokens",
        "data_wait_share": "share",
        "rank_wait_share": "share",
        "peak_memory_bytes": "bytes",
    }
    return tuple(
        Figure(name=name.replace("_", " "), value=rank[name], unit=unit, of=of)
        for name, unit in units.items()
        if rank.get(name) is not None
    )


def _even_out(ranks: Sequence[Rank], uneven: Mapping[str, float], idle: float | None) -> list[Advice]:
    bound = (
        f"at most the idle share comes back: {percent(idle)} of a step" if idle is not None else "steps of equal length"
    )
    gain = None if idle is None or idle >= 1 else 1 / (1 - idle)
    check = "`tuner run SPEC`: the ranks' figures here"
    if {"tokens_per_step", "samples_per_step", "peak_memory_bytes"} & uneven.keys():
        change = (
            "sort or pack sequences over all ranks together, so that each gets as many real tokens (length grouping)"
        )
    elif "data_wait_share" in uneven:
        change = "give the waiting rank's loader as many workers as the others', and shards of equal size"
    else:
        change = (
            "find what the slow rank does alone: logging, checkpoints or evaluation on rank 0, another program there"
        )
    return [Advice(change=change, expected=bound, check=check, gain=gain)]


CHECK = Check(name="parallelism", mistake=4, title="Batches over ranks, heads, layers and stages", look=look)
