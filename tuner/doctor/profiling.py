"""Mistake 7: too little profiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.doctor.check import Advice, Check, Figure, Finding, open_question
from tuner.doctor.evidence import Profiled, ProfileFinding, profiled
from tuner.doctor.subjects import Subject, device_kind, measured, winner_of, words_for
from tuner.doctor.telling import percent, size

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

MOST_OPERATORS = 5
UNEVEN = 2.0
"""The slowest twentieth of the steps over the median one from which on something happens in them."""
WASTES: Mapping[str, tuple[str, str]] = {
    "hidden_synchronisation": (
        "the host waits for the device in the middle of a step",
        "take `.item()`, `.cpu()`, `print` of tensors and `if tensor:` out of the step; log from a copy every N steps",
    ),
    "wrong_device": (
        "an operator runs on another device than the model",
        "make its tensors where the model is (`device=x.device`), once, outside the step",
    ),
    "slow_path": (
        "an operator takes a slow path",
        "use the fast one: fused attention instead of written-out softmax, dtypes and shapes its kernels take",
    ),
    "copy_bound": (
        "a layer mostly copies",
        "drop `contiguous()` and transposes there, keep one memory format, cast once",
    ),
}
"""What costs without need, by the kind of a profile's finding: what it is, and what to change."""


def look(view: StudyView) -> Sequence[Finding]:
    """All findings: where the time goes, then what of it is waste."""
    found = [each for each in profiled(view.runs) if each.unavailable is None]
    timed = next((each for each in found if each.shares or each.operators), None)
    memory = next((each for each in found if each.memory_by_category or each.memory_by_module), None)
    return [_summary(view, timed), *_wastes(view, timed), *_uneven(view), *_memory(view, memory)]


def _command(view: StudyView, tool: str) -> str:
    best = winner_of(view)
    number = best.trial.number if best is not None else 0
    return f"`tuner profile {view.study.name} --trial {number} --with {tool}`"


def _summary(view: StudyView, seen: Profiled | None) -> Finding:
    """Where the time goes."""
    if seen is None:
        return open_question(
            "profile", "No trial was profiled: where its time goes is not known.", _command(view, "torch")
        )
    top = ", ".join(f"{each.name} {percent(each.share)}" for each in seen.operators[:MOST_OPERATORS])
    shares = ", ".join(f"{name} {percent(share)}" for name, share in _largest_first(seen.shares) if share > 0)
    return Finding(
        name="profile",
        verdict="fine",
        statement=f"The {words_for(view, seen.trial_id)} spends its time in {shares or top}.",
        figures=(
            *(
                Figure(name=name, value=share, unit="share", of="step time")
                for name, share in _largest_first(seen.shares)
            ),
            *(Figure(name=each.name, value=each.share, unit="share", of="operator") for each in seen.operators),
        ),
        runs=(seen.run,),
        trials=tuple(each.number for each in view.ended if each.id == seen.trial_id),
    )


def _largest_first(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda each: -each[1])


def _wastes(view: StudyView, seen: Profiled | None) -> list[Finding]:
    return [] if seen is None else [_waste(view, seen, each, place) for place, each in enumerate(seen.findings)]


def _waste(view: StudyView, seen: Profiled, found: ProfileFinding, place: int) -> Finding:
    what, change = WASTES.get(found.kind, (found.kind.replace("_", " "), "look at it in the trace"))
    share = found.share
    bound = "what it takes now" if share is None else f"at most {percent(share)} of the step: a profile gives a bound"
    return Finding(
        name=found.kind if not place else f"{found.kind}_{place + 1}",
        verdict="improve",
        statement=f"{what[0].upper()}{what[1:]} at {found.where}: {found.text}",
        figures=(Figure(name=found.kind.replace("_", " "), value=share, unit="share", of=found.where),),
        runs=(seen.run,),
        advice=(
            Advice(
                change=found.advice or change,
                expected=bound,
                check=f"{_command(view, seen.tool)} again; for the speed `tuner run`: a profiled run measures nothing",
                gain=None if share is None or share >= 1 else 1 / (1 - share),
            ),
        ),
    )


def _uneven(view: StudyView) -> list[Finding]:
    """Steps that are now and then far slower (cases D08, H05, H11): new shapes compile, or search kernels, anew.

    Looked at where shapes cost: on a GPU, and with a compiled model. A CPU's slow steps are its neighbours'.
    """
    known = [
        (each, max(ratios))
        for each in measured(view)
        if (device_kind(view) == "cuda" or each.config.compile != "off") and (ratios := _spikes(each))
    ]
    return [] if not known else [_spiky(view, *max(known, key=lambda each: each[1]))]


def _spikes(subject: Subject) -> list[float]:
    """The slowest twentieth of the steps over the median one, by run."""
    pairs = (
        (run.measurement.get("p95_step_seconds"), run.measurement.get("median_step_seconds")) for run in subject.runs
    )
    return [float(slow) / float(usual) for slow, usual in pairs if slow and usual]


def _spiky(view: StudyView, subject: Subject, ratio: float) -> Finding:
    bad, compiled = ratio >= UNEVEN, subject.config.compile != "off"
    told = (
        "each new shape compiles or captures anew" if compiled else "new shapes, clocks, or somebody else on the device"
    )
    why = f": {told}" if bad else ""
    advice = Advice(
        change="pad to a few fixed lengths (length-grouped or packed batches), and drop the ragged last batch",
        expected=f"every step takes what the median one does: at most {ratio:.1f} times less for the slowest",
        check=f"{_command(view, 'torch')} shows what the slow steps do; p95 near the median in the next study",
    )
    return Finding(
        name="uneven_steps",
        verdict="improve" if bad else "fine",
        statement=f"One step in twenty of the {subject.word} takes {ratio:.1f} times the median{why}.",
        figures=(Figure(name="p95 over median step", value=ratio, unit="ratio", of=subject.word),),
        trials=(subject.trial.number,),
        runs=subject.run_ids,
        advice=(advice,) if bad else (),
        essential=False,
    )


def _memory(view: StudyView, seen: Profiled | None) -> list[Finding]:
    if seen is None:
        told = "What the memory at the peak is made of was not recorded."
        return [open_question("memory_at_the_peak", told, _command(view, "memory"), essential=False)]
    parts = sorted(seen.memory_by_category.items(), key=lambda each: -each[1])
    modules = sorted(seen.memory_by_module.items(), key=lambda each: -each[1])
    told = ", ".join(f"{name} {size(count)}" for name, count in (parts or modules)[:MOST_OPERATORS])
    return [
        Finding(
            name="memory_at_the_peak",
            verdict="fine",
            statement=f"At the peak: {told}.",
            figures=tuple(
                Figure(name=name, value=count, unit="bytes", of=kind)
                for kind, rows in (("category", parts), ("module", modules))
                for name, count in rows
            ),
            runs=(seen.run,),
            essential=False,
        )
    ]


CHECK = Check(name="profiling", mistake=7, title="Profiling", look=look)
