"""Mistake 6: gradient accumulation is misconfigured, or changes what is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.doctor.check import Advice, Check, Figure, Finding, Verdict, open_question
from tuner.doctor.evidence import GradientComparison, LossCurve, Verified, verified
from tuner.doctor.subjects import data_facts, subjects
from tuner.doctor.telling import batch_words, counted, percent

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

MANY_NAMES = 5
"""Parameters named in a sentence; the figures hold more."""
LOST_SHARE = 0.01
"""Share of the data that enters no update from which on a last window is worth a word."""


def look(view: StudyView) -> Sequence[Finding]:
    """All findings, the gradient first."""
    found = verified(view.runs)
    command = f"`tuner verify {view.study.name}`"
    latest = found[0] if found else None
    return [
        _gradient(view, latest, command),
        _loss(view, latest, command),
        *_in_the_loop(view, latest),
        _product(view),
        *_last_window(view),
    ]


def _gradient(view: StudyView, seen: Verified | None, command: str) -> Finding:
    """Whether the accumulated batch has the gradient of the reference split."""
    name = "gradient"
    if seen is None:
        return open_question(name, "Whether accumulation keeps the gradient was not measured.", command)
    if seen.not_comparable is not None:
        return Finding(
            name=name,
            verdict="not_comparable",
            statement=f"This model's gradient depends on the micro-batch by design: {seen.not_comparable}.",
            runs=(seen.run,),
        )
    if seen.gradient is None:
        return open_question(name, "The verification did not come to its gradients.", command)
    right = seen.gradient.distance <= seen.gradient.bound
    return Finding(
        name=name,
        verdict="fine" if right else "broken",
        statement=_gradient_words(seen.gradient, right),
        figures=_gradient_figures(seen.gradient),
        runs=(seen.run,),
        trials=tuple(each.number for each in view.ended if each.id == seen.trial_id),
        advice=() if right else (_normalise(command),),
    )


def _gradient_words(seen: GradientComparison, right: bool) -> str:
    split = (
        f"{counted(seen.accumulation_steps, 'micro-batch')} of {seen.micro_batch_size} against "
        f"{seen.reference_accumulation_steps} of {seen.reference_micro_batch_size} in {seen.precision}"
    )
    if right:
        return f"The gradient is the same however the batch is split: {split}, distance {seen.distance:.2g}."
    worst = ", ".join(each.name for each in seen.parameters[:MANY_NAMES])
    where = f" Farthest: {worst}." if worst else ""
    return (
        f"The gradient depends on the split: {split}, relative distance {seen.distance:.2g}, where rounding explains "
        f"{seen.bound:.2g}.{where}"
    )


def _gradient_figures(seen: GradientComparison) -> tuple[Figure, ...]:
    made = (
        Figure(name="distance of the gradients", value=seen.distance, unit="relative"),
        Figure(name="what rounding explains", value=seen.bound, unit="relative"),
        Figure(name="distance of the reference from fp32", value=seen.scale, unit="relative"),
    )
    parts = (Figure(name="distance", value=each.distance, unit="relative", of=each.name) for each in seen.parameters)
    return (*made, *parts)


def _normalise(command: str) -> Advice:
    return Advice(
        change=(
            "sum the loss over all real tokens of the whole global batch and divide once by their number; never "
            "average the means of micro-batches (transformers: pass `num_items_in_batch` through to the loss)"
        ),
        expected="every token weighs the same, and the gradient no longer depends on the split",
        check=f"{command} again: the distance falls below the bound; a loss curve alone does not show this fault",
    )


def _loss(view: StudyView, seen: Verified | None, command: str) -> Finding:
    """Whether winner and baseline learn alike."""
    name = "loss_curve"
    if seen is None or seen.loss_curve is None:
        told = "Whether winner and baseline learn alike was not measured."
        return open_question(name, told, command, essential=seen is None)
    curve = seen.loss_curve
    apart = curve.leaves_at is not None
    return Finding(
        name=name,
        verdict="improve" if apart else "fine",
        statement=_loss_words(curve),
        figures=(
            Figure(name="updates", value=len(curve.examined)),
            Figure(name="run-to-run band", value=curve.band, unit="share"),
            Figure(name="last loss", value=curve.examined[-1] if curve.examined else None, of="winner"),
            Figure(name="last loss", value=curve.reference[-1] if curve.reference else None, of="baseline"),
        ),
        runs=(seen.run,),
        advice=(_look_at(command),) if apart else (),
        essential=False,
    )


def _loss_words(curve: LossCurve) -> str:
    if curve.leaves_at is None:
        return (
            f"Over {len(curve.examined)} updates winner and baseline stay within {percent(curve.band)} of each other."
        )
    return (
        f"From update {curve.leaves_at + 1} on the winner's loss differs from the baseline's by more than the "
        f"{percent(curve.band)} that two equal runs differ by."
    )


def _look_at(command: str) -> Advice:
    return Advice(
        change="keep the baseline's precision, or train both for longer before the winner is taken",
        expected="the same loss at the same update; the speed-up counts only then",
        check=f"{command} again",
    )


def _in_the_loop(view: StudyView, seen: Verified | None) -> list[Finding]:
    """What a training loop around accumulation gets wrong: dead parameters, schedulers, windows thrown away."""
    if seen is None:
        return []
    findings = (_dead(view, seen), _scheduler(view, seen), _thrown_away(view, seen))
    return [each for each in findings if each is not None]


def _dead(view: StudyView, seen: Verified) -> Finding | None:
    dead = seen.without_gradient
    named = ", ".join(dead[:MANY_NAMES]) + (f" and {len(dead) - MANY_NAMES} more" if len(dead) > MANY_NAMES else "")
    advice = Advice(
        change="freeze them (`requires_grad = False`) if they are meant to stay, else find where the graph is cut",
        expected="they train; or the optimizer keeps no state for them (8 bytes a parameter with AdamW in fp32)",
        check=f"`tuner verify {view.study.name}` again",
    )
    return Finding(
        name="without_gradient",
        verdict="broken" if dead else "fine",
        statement=f"{len(dead)} trainable parameters get no gradient: {named}." if dead else "Every parameter trains.",
        figures=(Figure(name="parameters without gradient", value=len(dead)),),
        runs=(seen.run,),
        advice=(advice,) if dead else (),
        essential=False,
    )


def _scheduler(view: StudyView, seen: Verified) -> Finding | None:
    steps = seen.scheduler_steps_per_update
    if steps is None:
        return None
    right = abs(steps - 1.0) < 0.01
    advice = Advice(
        change="call `scheduler.step()` once per optimizer step, and give its lengths in optimizer steps",
        expected=f"the learning rate ends where it should: now it gets there {steps:g} times too early",
        check=f"`tuner verify {view.study.name}` again: one scheduler step per update",
    )
    return Finding(
        name="scheduler",
        verdict="fine" if right else "broken",
        statement=f"The learning-rate scheduler steps {steps:g} times per optimizer step.",
        figures=(Figure(name="scheduler steps per update", value=steps),),
        runs=(seen.run,),
        advice=() if right else (advice,),
        essential=False,
    )


def _thrown_away(view: StudyView, seen: Verified) -> Finding | None:
    if seen.lost_samples is None:
        return None
    share = seen.lost_samples / seen.samples if seen.samples else 0.0
    bad = share >= LOST_SHARE
    advice = Advice(
        change="make an update of the last, smaller window too (divided by its own number of tokens), or carry it over",
        expected=f"{percent(share)} more of the data is learned from",
        check=f"`tuner verify {view.study.name}` again: no sample is lost",
    )
    return Finding(
        name="lost_windows",
        verdict="broken" if share >= 0.5 else "improve" if bad else "fine",
        statement=f"{seen.lost_samples} samples ({percent(share)}) of a pass enter no update.",
        figures=(Figure(name="samples lost in a pass", value=seen.lost_samples, unit="samples"),),
        runs=(seen.run,),
        advice=(advice,) if bad else (),
        essential=False,
    )


def _product(view: StudyView) -> Finding:
    """Whether every configuration makes exactly the global batch (cases B07, B12): the four numbers, multiplied."""
    wanted, ranks = view.spec.global_batch_size, view.spec.ranks
    mine = subjects(view)
    if not mine or wanted is None:
        told = (
            "The global batch is given in tokens: rows per step follow from the data." if mine else "Nothing ran yet."
        )
        return open_question("global_batch", told, "`tuner run SPEC`", essential=False)
    wrong = [each for each in mine if each.config.micro_batch_size * each.config.accumulation_steps * ranks != wanted]
    told = "; ".join(f"{each.word}: {batch_words(each.config, ranks)}" for each in wrong or mine)
    verdict: Verdict = "broken" if wrong else "fine"
    advice = Advice(
        change=f"derive accumulation: {wanted} / (micro-batch x ranks)",
        expected="every configuration makes the same optimizer step",
        check="`tuner export` refuses a product that is not exact",
    )
    return Finding(
        name="global_batch",
        verdict=verdict,
        statement=f"The global batch of {wanted} is {'missed' if wrong else 'kept exactly'}: {told}.",
        figures=tuple(
            Figure(name="accumulation steps", value=each.config.accumulation_steps, of=each.word) for each in mine
        ),
        trials=tuple(each.trial.number for each in mine),
        advice=(advice,) if wrong else (),
        essential=False,
    )


def _last_window(view: StudyView) -> list[Finding]:
    """What is left over of a pass when the global batch does not divide the data (a loop may drop it)."""
    rows, batch = data_facts(view).get("rows"), view.spec.global_batch_size
    if not isinstance(rows, int) or batch is None or rows <= 0:
        return []
    left = rows % batch
    told = f"{rows} rows are {rows // batch} global batches of {batch} and {left} rows more"
    more = " in a last, smaller window: a loop that steps every N micro-batches drops it." if left else "."
    few = rows < batch
    advice = Advice(
        change="use a smaller global batch, or more data",
        expected="at least one optimizer step is made",
        check="`tuner run SPEC`",
    )
    return [
        Finding(
            name="last_window",
            verdict="broken" if few else "fine",
            statement=f"{told}{more}" if not few else f"{rows} rows are fewer than one global batch of {batch}.",
            figures=(Figure(name="rows outside whole global batches", value=left, unit="samples"),),
            advice=(advice,) if few else (),
            essential=False,
        )
    ]


CHECK = Check(name="accumulation", mistake=6, title="Gradient accumulation", look=look)
