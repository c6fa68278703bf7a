"""Whether another value of one knob is worth a change: the finding that several checks share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.doctor.check import Advice, Figure, Finding, open_question
from tuner.doctor.pairs import Gain, gain_from, known_gains
from tuner.doctor.subjects import Subject, baseline_of, winner_of
from tuner.doctor.telling import gain_words, value

if TYPE_CHECKING:
    from objectives.config import KnobValue
    from tuner.answer.summary import StudyView

CHANGES_NUMERICS = frozenset({"bf16-true", "fp16-mixed"})
"""Faster is not enough to advise these: they lose small updates, or overflow; the advice says how to look."""


def knob_finding(
    view: StudyView, *, knob: str, name: str, nothing: str, measured_by: str, essential: bool = True
) -> Finding:
    """Whether another value of a knob than the baseline's is worth a change, by pairs of trials alike in all else."""
    base, best, known = baseline_of(view), winner_of(view), known_gains(view, knob)
    how = how_to_measure(view, knob, measured_by)
    seen = [] if base is None else [each for each in known if each.start == base.config.knobs()[knob]]
    if base is None or not seen:
        return open_question(name, nothing, how, essential=essential)
    mine: KnobValue = base.config.knobs()[knob]
    better = gain_from(known, mine)
    if not better and any(each.unsure for each in seen):
        return open_question(name, unsure_words(knob, seen), how, essential=essential, figures=figures_of(seen))
    return Finding(
        name=name,
        verdict="improve" if better else "fine",
        statement=_gain_statement(knob, mine, better, seen, best),
        figures=figures_of(seen),
        trials=tuple(dict.fromkeys(number for each in seen for number in each.trials)),
        runs=_runs_behind(view, seen),
        advice=tuple(_gain_advice(view, each) for each in _advised(better)),
        essential=essential,
    )


def figures_of(seen: Sequence[Gain]) -> tuple[Figure, ...]:
    """The gains as evidence."""
    return tuple(each.figure() for each in seen)


def unsure_words(knob: str, seen: Sequence[Gain]) -> str:
    """What is known, where that is too little."""
    told = "; ".join(f"{value(each.end)} over {value(each.start)}: {gain_words(each)}" for each in seen if each.unsure)
    return f"Too little is known of {knob} to say ({told})."


def how_to_measure(view: StudyView, knob: str, otherwise: str) -> str:
    """More trials where the study searches the knob already; else what puts it into the space."""
    if len(view.spec.search.get(knob, ())) > 1:
        return "`tuner run SPEC` again with more `limits.trials` or `limits.time`: it goes on where it ended"
    return otherwise


def _gain_statement(
    knob: str, mine: KnobValue, better: Sequence[Gain], seen: Sequence[Gain], best: Subject | None
) -> str:
    told = "; ".join(f"{value(each.end)}: {gain_words(each)}" for each in seen)
    if not better:
        return f"No other {knob} was measured to be faster than the baseline's {value(mine)} ({told})."
    end = None if best is None else best.config.knobs()[knob]
    done = f" The winner uses {value(end)}." if end is not None and end != mine else ""
    how = "by the cost model's split" if all(each.modelled for each in seen) else "at the same other settings"
    return f"Over the baseline's {knob} {value(mine)} {how}: {told}.{done}"


def _advised(better: Sequence[Gain]) -> list[Gain]:
    """The largest gain, and where that changes the numerics the largest that does not as well."""
    safe = [each for each in better if each.end not in CHANGES_NUMERICS]
    return list(dict.fromkeys([*better[:1], *safe[:1]]))


def _gain_advice(view: StudyView, gain: Gain) -> Advice:
    risky = gain.end in CHANGES_NUMERICS
    also = "; `tuner verify` says what it costs in small updates" if risky else ""
    return Advice(
        change=f"{gain.knob}: {value(gain.end)} instead of {value(gain.start)}",
        expected=f"{gain_words(gain)}, {gain.ground}",
        check=f"`tuner show {view.study.name}`: the trials {', '.join(map(str, gain.trials[:4]))}{also}",
        knobs={gain.knob: gain.end},
        gain=gain.ratio,
        gain_interval=(gain.low, gain.high),
        measured=not gain.modelled,
    )


def _runs_behind(view: StudyView, seen: Sequence[Gain]) -> tuple[str, ...]:
    wanted = {each for gain in seen for each in gain.trial_ids}
    return tuple(
        run.id for run in view.runs if run.trial_id in wanted and run.throughput and run.outcome == "completed"
    )
