"""Mistake 2: mixed precision and memory format are neglected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.doctor.check import Advice, Check, Figure, Finding, Verdict, open_question
from tuner.doctor.evidence import profiled, verified
from tuner.doctor.knob_gain import knob_finding
from tuner.doctor.pairs import gain_from, gains
from tuner.doctor.subjects import Subject, baseline_of, subjects
from tuner.doctor.telling import gain_words, percent

if TYPE_CHECKING:
    from storage.records import RunRecord, TrialRecord
    from tuner.answer.summary import StudyView

TENSOR_CORES_32 = (8, 0)
"""Compute capability from which a GPU multiplies fp32 matrices in tf32 (NVIDIA A100 whitepaper, 2020)."""
FEW_SKIPS = 0.02
"""Share of updates a loss scaler may skip: it tries a higher scale every 2,000 steps and skips where that fails."""
MANY_SKIPS = 0.2
"""Above this share a configuration does not train (as :mod:`objectives.trial.blocks` has it)."""
LOST_SOME, LOST_MOST = 0.1, 0.9
"""Shares of elements whose update rounds to nothing: above the first worth a change, above the second no training.
A Llama of 512 x 4 layers at a learning rate of 1e-4 loses about 0.6 in its first updates, and its loss still falls."""
COPY_BOUND = 0.15
"""Share of the profiled time in copies and re-layouts from which on a layer's layout is worth looking at."""


def look(view: StudyView) -> Sequence[Finding]:
    """All findings, the gain of precision first."""
    findings = (
        _precision(view),
        _tf32(view),
        _skips(view),
        *(_lost_updates(view, each) for each in subjects(view) if each.config.precision == "bf16-true"),
        _memory_format(view),
        _copies(view),
    )
    return [each for each in findings if each is not None]


def _precision(view: StudyView) -> Finding:
    """What each precision gains at the same other settings."""
    return knob_finding(
        view,
        knob="precision",
        name="precision_gain",
        nothing="No two precisions were measured with the same other settings.",
        measured_by="`tuner run` with several values in `search.precision`",
    )


def _tf32(view: StudyView) -> Finding | None:
    """Whether fp32 matrices are multiplied the slow way on a GPU that has the fast one."""
    base, facts = baseline_of(view), view.facts
    if base is None or facts is None or (facts.capability or (0, 0)) < TENSOR_CORES_32:
        return None
    if base.config.precision != "fp32":
        return _fine(
            "tf32", f"The baseline's precision is {base.config.precision}: no fp32 matrix product is left out."
        )
    if gain_from(gains(view, "precision"), "fp32"):
        return None  # the gain of every other precision is told already
    if any(each.start == "fp32" and each.end == "tf32" for each in gains(view, "precision")):
        return _fine("tf32", "tf32 was measured beside fp32 and is not faster on this model.")
    told = f"The baseline computes in full fp32 on a {facts.device_name or 'GPU'} that has tf32, which was not tried."
    return open_question("tf32", told, "`tuner run` with `search.precision: [fp32, tf32]`")


def _fine(name: str, statement: str) -> Finding:
    return Finding(name=name, verdict="fine", statement=statement, essential=False)


def _skips(view: StudyView) -> Finding | None:
    """Updates that the fp16 loss scaler skipped: they cost time and train nothing (case C01)."""
    numbers = {each.id: each.number for each in view.ended if each.config.get("precision") == "fp16-mixed"}
    if not numbers:
        return None
    failed = [each for each in view.ended if each.id in numbers and each.outcome == "numerical"]
    runs = [run for run in view.runs if run.trial_id in numbers and run.measurement.get("blocks")]
    share = max((_skipped(run) for run in runs), default=None)
    if share is None and not failed:
        return open_question(
            "loss_scale_skips", "No fp16 trial came to its window.", "`tuner run SPEC`", essential=False
        )
    mine = {each.trial.id for each in subjects(view)}
    bad = [each for each in failed if each.id in mine] or (share is not None and share > MANY_SKIPS)
    verdict: Verdict = "broken" if bad else "improve" if failed or (share or 0.0) > FEW_SKIPS else "fine"
    told = f"{len(failed)} fp16 trials ended as numerical. " if failed else ""
    worst = f"At most {percent(share)} of an fp16 window's updates were skipped." if share is not None else ""
    return Finding(
        name="loss_scale_skips",
        verdict=verdict,
        statement=f"{told}{worst}".strip(),
        figures=(Figure(name="skipped updates", value=share, unit="share"),),
        trials=tuple(sorted(numbers.values())),
        runs=(*(run.id for run in runs), *_ids_of(view, failed)),
        advice=() if verdict == "fine" else (_no_fp16(view),),
    )


def _ids_of(view: StudyView, trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Runs of these trials."""
    wanted = {each.id for each in trials}
    return tuple(run.id for run in view.runs if run.trial_id in wanted)


def _skipped(run: RunRecord) -> float:
    return float(run.measurement.get("skipped_steps") or 0) / float(run.measurement["blocks"])


def _no_fp16(view: StudyView) -> Advice:
    alternative = "bf16-mixed" if view.facts is None or _has_bf16(view) else "fp32"
    return Advice(
        change=f"precision: {alternative} instead of fp16-mixed",
        expected="bf16 has fp32's range: nothing overflows, no update is skipped"
        if alternative == "bf16-mixed"
        else "no update is skipped; this device has no bf16",
        check="`skipped_steps` of the trial is 0, and its throughput counts applied updates only",
        knobs={"precision": alternative},
    )


def _has_bf16(view: StudyView) -> bool:
    facts = view.facts
    return facts is None or facts.device_kind == "cpu" or (facts.capability or (0, 0)) >= TENSOR_CORES_32


def _lost_updates(view: StudyView, subject: Subject) -> Finding:
    """What pure bf16 weights lose: a step smaller than half a unit in the last place changes nothing (case C12)."""
    name = "lost_updates" if subject.word == "winner" else f"lost_updates_of_the_{subject.word}"
    known = next((each for each in verified(view.runs) if "bf16-true" in each.lost_update_shares), None)
    if known is None:
        told = f"The {subject.word}'s weights are bf16: what that loses in small updates was not measured."
        return open_question(name, told, f"`tuner verify {view.study.name}`")
    share = known.lost_update_shares["bf16-true"]
    verdict: Verdict = "broken" if share > LOST_MOST else "improve" if share > LOST_SOME else "fine"
    return Finding(
        name=name,
        verdict=verdict,
        statement=f"With bf16 weights {percent(share)} of the parameters' updates round to nothing.",
        figures=(
            Figure(name="updates that round to nothing", value=share, unit="share", of=subject.word),
            Figure(name="learning rate", value=view.spec.learning_rate, of="study"),
        ),
        trials=(subject.trial.number,),
        runs=(known.run,),
        advice=() if verdict == "fine" else (_keep_weights(view),),
    )


def _keep_weights(view: StudyView) -> Advice:
    back = [each for each in gains(view, "precision") if (each.start, each.end) == ("bf16-true", "bf16-mixed")]
    cost = (
        f"{gain_words(back[0])} against bf16-true"
        if back
        else "fp32 weights and their optimizer state take more memory"
    )
    return Advice(
        change="precision: bf16-mixed (fp32 weights), or an optimizer with stochastic rounding or Kahan summation",
        expected=f"no update is lost; {cost}",
        check=f"`tuner verify {view.study.name}`: the share falls to 0",
        knobs={"precision": "bf16-mixed"},
        gain=back[0].ratio if back else None,
        gain_interval=(back[0].low, back[0].high) if back else None,
        measured=bool(back),
    )


def _memory_format(view: StudyView) -> Finding | None:
    """Whether convolutions get the layout their kernels want."""
    if view.facts is None or not view.facts.has_convolutions:
        return None
    return knob_finding(
        view,
        knob="memory_format",
        name="memory_format_gain",
        nothing="The model has convolutions; both memory formats were not measured with the same other settings.",
        measured_by="`tuner run` with `search.memory_format: [contiguous, channels_last]`",
    )


def _copies(view: StudyView) -> Finding:
    """Copies and re-layouts in the profile."""
    known = next((each for each in profiled(view.runs) if "copies" in each.shares), None)
    name, command = "copies", f"`tuner profile {view.study.name} --trial N --with torch`"
    if known is None:
        return open_question(name, "No profile says what copies and re-layouts take.", command, essential=False)
    share = known.shares["copies"]
    return Finding(
        name=name,
        verdict="improve" if share > COPY_BOUND else "fine",
        statement=f"{percent(share)} of the profiled time goes into copies and re-layouts.",
        figures=(Figure(name="copies and re-layouts", value=share, unit="share"),),
        runs=(known.run,),
        advice=() if share <= COPY_BOUND else (_fewer_copies(command, share),),
        essential=False,
    )


def _fewer_copies(command: str, share: float) -> Advice:
    return Advice(
        change="look for `contiguous()`, dtype casts and transposes in the dearest layers (the profile names them)",
        expected=f"at most {percent(share)} of the step: what a profile shows is a bound, not a measurement",
        check=command,
    )


CHECK = Check(name="precision_and_memory_format", mistake=2, title="Precision and memory format", look=look)
