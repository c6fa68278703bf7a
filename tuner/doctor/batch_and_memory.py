"""Mistake 1: the batch is raised (or left small) without regard to memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from objectives.config import TrainingConfig
from tuner.doctor.check import Advice, Check, Figure, Finding, open_question
from tuner.doctor.edge import Edge, edge_of
from tuner.doctor.knob_gain import figures_of, how_to_measure, unsure_words
from tuner.doctor.pairs import Gain, known_gains
from tuner.doctor.subjects import Subject, baseline_of, data_facts, device_kind, sequence_length, subjects, winner_of
from tuner.doctor.telling import batch_words, gain_words, size
from tuner.search.front import is_feasible
from tuner.search.reasons import reason_of

if TYPE_CHECKING:
    from storage.records import RunRecord
    from tuner.answer.summary import StudyView

SIZES = "`tuner run` with several sizes in `search.micro_batch_size`"


def look(view: StudyView) -> Sequence[Finding]:
    """All findings, the limit first."""
    findings = (_distance(view), _edge(view), _largest(view), _longest(view), _evaluation(view), _spill(view))
    return [each for each in findings if each is not None]


def _distance(view: StudyView) -> Finding:
    """How far baseline and winner stand from the limit."""
    name, limit = "distance_to_limit", view.study.memory_limit_bytes
    known = [each for each in subjects(view) if each.trial.peak_memory_bytes is not None]
    base = baseline_of(view)
    if base is not None and base.trial.outcome == "device_oom":
        return _baseline_misfit(view, base, f"the baseline runs out of memory ({reason_of(base.trial)})")
    if limit is None or not known:
        return open_question(name, "No peak memory has been measured against a limit yet.", "`tuner run SPEC`")
    if base is not None and (base.trial.peak_memory_bytes or 0) > limit:
        over = (base.trial.peak_memory_bytes or 0) - limit
        return _baseline_misfit(view, base, f"the baseline needs {size(over)} more than the limit of {size(limit)}")
    told = (f"the {each.word} leaves {size(limit - _peak(each))} of it" for each in known)
    return Finding(
        name=name,
        verdict="fine",
        statement=f"The limit is {size(limit)}; {', '.join(told)}.",
        figures=tuple(each for subject in known for each in _peak_figures(subject, limit)),
        trials=tuple(each.trial.number for each in known),
        runs=tuple(run for each in known for run in each.run_ids),
    )


def _baseline_misfit(view: StudyView, base: Subject, why: str) -> Finding:
    best, limit = winner_of(view), view.study.memory_limit_bytes
    advice = [] if best is None or best.trial.number == 0 else [_use(view, best, "it fits, measured")]
    return Finding(
        name="distance_to_limit",
        verdict="broken",
        statement=f"{why[0].upper()}{why[1:]}.",
        figures=(Figure(name="memory limit", value=limit, unit="bytes"), *_peak_figures(base, limit)),
        trials=(base.trial.number,),
        runs=base.run_ids,
        advice=tuple(advice),
    )


def _use(view: StudyView, best: Subject, expected: str) -> Advice:
    """Advice to take the winner's batch; the global batch stays."""
    config = best.config
    return Advice(
        change=f"use trial {best.trial.number}: {batch_words(config, view.spec.ranks)}, the same global batch",
        expected=expected,
        check=f"`tuner export {view.study.name} --to json` writes it",
        knobs=config.to_mapping(),
    )


def _edge(view: StudyView) -> Finding | None:
    """Where the memory ends for the winner's family, and how that is known."""
    name, best = "edge", winner_of(view) or baseline_of(view)
    if best is None or view.study.memory_limit_bytes is None:
        return None
    edge = edge_of(view, best.config)
    if edge is None:
        told = f"Only micro-batch {best.config.micro_batch_size} of the {best.word}'s family is known."
        return open_question(name, told, f"`tuner estimate SPEC` (predicted), or {SIZES}", essential=False)
    return Finding(
        name=name,
        verdict="fine",
        statement=_edge_words(best, edge, view.study.memory_limit_bytes),
        figures=(
            Figure(name="largest micro-batch that fits", value=edge.largest, of=best.word),
            Figure(name="known from", value=edge.source, of=best.word),
            Figure(name="peak memory of the next size", value=edge.next_peak_bytes, unit="bytes", of=best.word),
        ),
        trials=edge.trials,
        essential=False,
    )


def _edge_words(best: Subject, edge: Edge, limit: int) -> str:
    if edge.next_size is None:
        return f"With the {best.word}'s other settings the largest size of the space, {edge.largest}, fits."
    need = "does not fit"
    if edge.next_peak_bytes is not None:
        need = f"needs {size(edge.next_peak_bytes)}, {size(edge.next_peak_bytes - limit)} over the limit"
    return (
        f"With the {best.word}'s other settings micro-batch {edge.largest} is the largest that fits; "
        f"{edge.next_size} {need} ({edge.source})."
    )


def _largest(view: StudyView) -> Finding:
    """Whether the baseline's micro-batch is the right one among those that fit, everything else the same."""
    name, base = "largest_that_fits", baseline_of(view)
    feasible = {each.id for each in view.standing if is_feasible(each, view.study.memory_limit_bytes)}
    known = [each for each in known_gains(view, "micro_batch_size") if set(each.trial_ids) <= feasible]
    seen = [] if base is None else [each for each in known if each.start == base.config.micro_batch_size]
    how = how_to_measure(view, "micro_batch_size", SIZES)
    if base is None or not seen:
        told = "No other micro-batch size was measured beside the baseline's with the same other settings."
        return open_question(name, told, how)
    better = max((each for each in seen if each.worth), key=lambda each: each.ratio, default=None)
    if better is None and any(each.unsure for each in seen):
        return open_question(name, unsure_words("micro_batch_size", seen), how, figures=figures_of(seen))
    return Finding(
        name=name,
        verdict="fine" if better is None else "improve",
        statement=_largest_words(base, better, seen),
        figures=figures_of(seen),
        trials=tuple(dict.fromkeys(number for each in seen for number in each.trials)),
        runs=base.run_ids,
        advice=() if better is None else (_size_advice(view, base.config, better),),
    )


def _largest_words(base: Subject, better: Gain | None, known: Sequence[Gain]) -> str:
    mine = base.config.micro_batch_size
    if better is not None and int(better.end) < mine:
        return (
            f"Micro-batch {better.end} with more accumulation is faster than the baseline's {mine}: "
            f"{gain_words(better)}. The largest that fits is not the fastest."
        )
    if better is not None:
        return f"Micro-batch {better.end} fits and is faster than the baseline's {mine}: {gain_words(better)}."
    slower = [each for each in known if int(each.end) > int(each.start) and each.slower]
    told = f" A larger one was even slower: {slower[-1].end} is {gain_words(slower[-1])}." if slower else ""
    return f"No other size that fits was measured to be faster than micro-batch {mine} at the same settings.{told}"


def _size_advice(view: StudyView, config: TrainingConfig, gain: Gain) -> Advice:
    rows, end = config.micro_batch_size * config.accumulation_steps, int(gain.end)
    after = config.with_values(micro_batch_size=end, accumulation_steps=max(1, round(rows / end)))
    return Advice(
        change=f"{batch_words(after, view.spec.ranks)} instead of {batch_words(config, view.spec.ranks)}",
        expected=f"{gain_words(gain)}, {gain.ground}",
        check=f"`tuner show {view.study.name}`: the trials {', '.join(map(str, gain.trials))}",
        knobs={"micro_batch_size": after.micro_batch_size, "accumulation_steps": after.accumulation_steps},
        gain=gain.ratio,
        gain_interval=(gain.low, gain.high),
        measured=not gain.modelled,
    )


def _longest(view: StudyView) -> Finding | None:
    """Whether the measured peak is of the longest sequence there can be."""
    data = data_facts(view)
    longest, limit = data.get("longest_row"), sequence_length(view)
    if not isinstance(longest, int) or not isinstance(limit, int):
        return None
    short = longest < limit
    told = f"; a row of the full {limit} would need more, and was never tried" if short else ""
    return Finding(
        name="longest_sequence",
        verdict="fine",
        statement=f"Every peak was measured on the data's longest row, {longest} tokens{told}.",
        figures=(
            Figure(name="longest row", value=longest, unit="tokens"),
            Figure(name="sequence length of the spec", value=limit, unit="tokens"),
        ),
        essential=False,
    )


def _evaluation(view: StudyView) -> Finding:
    """Whether evaluation fits where training does."""
    name = "evaluation"
    failed = [run for run in view.runs if run.evidence.get("phase") == "eval" and _is_misfit(run)]
    if failed:
        return _evaluation_fails(view, failed)
    limit, done = view.study.memory_limit_bytes, [each for each in view.runs if _evaluated(each) is not None]
    if not done or limit is None or device_kind(view) == "cpu":
        return open_question(
            name,
            "Evaluation was not measured on this device: its memory is not known.",
            "an objective with `evaluate(model)`: the confirmation of `tuner run` then runs it once",
            essential=False,
        )
    peak = max(_evaluated(each) or 0 for each in done)
    fits = peak <= limit
    return Finding(
        name=name,
        verdict="fine" if fits else "broken",
        statement=f"With an evaluation the peak is {size(peak)} of {size(limit)}.",
        figures=(Figure(name="peak memory with evaluation", value=peak, unit="bytes", of="winner"),),
        runs=tuple(each.id for each in done),
        advice=() if fits else (_smaller_evaluation(),),
        essential=False,
    )


def _evaluation_fails(view: StudyView, failed: Sequence[RunRecord]) -> Finding:
    numbers = {each.id: each.number for each in view.ended}
    return Finding(
        name="evaluation",
        verdict="broken",
        statement=f"Training fits and evaluation does not: {reason_of(failed[0])}.",
        trials=tuple(sorted({numbers[each.trial_id] for each in failed if each.trial_id in numbers})),
        runs=tuple(each.id for each in failed),
        advice=(_smaller_evaluation(),),
    )


def _smaller_evaluation() -> Advice:
    return Advice(
        change=(
            "evaluate with a smaller batch than you train with, and bring predictions to the host as they come "
            "(transformers: `per_device_eval_batch_size`, `eval_accumulation_steps`); keep no logits on the device"
        ),
        expected="evaluation stays below training's peak; training's speed does not change",
        check="`tuner run` again: the confirmation evaluates once",
    )


def _spill(view: StudyView) -> Finding | None:
    """Whether memory went where it is slow: swap, a disk, or a driver that answers with host memory."""
    ended = [each for each in view.ended if each.cause == "spill"]
    looked = [run for run in view.runs if (run.measurement.get("memory") or {}).get("swap_bytes") is not None]
    if not (ended or looked):
        return open_question("spill", "No run has said whether it swapped.", "`tuner run SPEC`", essential=False)
    swapping = [run for run in looked if _memory(run, "swap_bytes") > 0]
    bad = bool(ended or swapping)
    told = f"{len(ended) + len(swapping)} runs held memory where it is slow (swap, or host memory lent by the driver)."
    most = max((_memory(run, "swap_bytes") for run in looked), default=None)
    return Finding(
        name="spill",
        verdict="improve" if bad else "fine",
        statement=told if bad else f"None of {len(looked)} runs swapped or spilled to host memory.",
        figures=(Figure(name="swapped", value=most, unit="bytes"),),
        trials=tuple(each.number for each in ended),
        runs=tuple(each.id for each in swapping),
        advice=(_no_spill(),) if bad else (),
    )


def _no_spill() -> Advice:
    return Advice(
        change="lower `limits.memory`, so that no trial is allowed into swap or the driver's host memory",
        expected="spilled steps are 2 to 10 times slower: such a configuration never wins",
        check="`tuner run` again: no outcome `device_oom/spill`, and 0 bytes swapped here",
    )


def _peak_figures(subject: Subject, limit: int | None) -> tuple[Figure, ...]:
    peak = subject.trial.peak_memory_bytes
    left = None if peak is None or limit is None else limit - peak
    share = None if left is None or not limit else left / limit
    return (
        Figure(name="peak memory", value=peak, unit="bytes", of=subject.word),
        Figure(name="headroom", value=left, unit="bytes", of=subject.word),
        Figure(name="headroom of the limit", value=share, unit="share", of=subject.word),
    )


def _peak(subject: Subject) -> int:
    return subject.trial.peak_memory_bytes or 0


def _memory(run: RunRecord, name: str) -> int:
    return int((run.measurement.get("memory") or {}).get(name) or 0)


def _evaluated(run: RunRecord) -> int | None:
    found = (run.measurement.get("evaluation_memory") or {}).get("peak_memory_bytes")
    return found if isinstance(found, int) else None


def _is_misfit(run: RunRecord) -> bool:
    return run.outcome in ("device_oom", "host_oom")


CHECK = Check(name="batch_and_memory", mistake=1, title="Batch against memory", look=look)
