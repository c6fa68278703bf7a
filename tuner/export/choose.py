"""Which measured trial is handed over, and everything of the study that travels with it. Pure: rows in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from objectives.config import TrainingConfig
from objectives.contract import SCRIPT
from objectives.script.template import Template
from storage.records import RunRecord, TrialRecord
from tuner.answer.soak import remarks as soak_remarks
from tuner.answer.summary import StudyView
from tuner.export.handover import ExportRefused, Handover
from tuner.export.notes import size_text
from tuner.search.front import is_feasible, knee, pareto_front
from tuner.spec.quantities import QuantityError, parse_memory

Pick = Literal["fastest", "knee", "smallest"]
PICKS: tuple[Pick, ...] = ("fastest", "knee", "smallest")


class NothingToExport(ExportRefused):
    """The study has no measured trial that fits."""

    exit_status = 1


def choose(view: StudyView, pick: str = "fastest", memory: str | None = None) -> Handover:
    """The picked trial, ready for a format, on as many ranks as it was measured on.

    Args:
        view: The study's rows.
        pick: ``fastest`` (the confirmed best where there is one), ``knee`` or ``smallest`` of the front.
        memory: Only trials that need at most so much, such as ``40GiB`` or ``50%`` of the device; None for the
            study's limit.

    Raises:
        ExportRefused: An unknown pick or an unreadable size.
        NothingToExport: No measured trial fits; the message names the smallest.
    """
    if pick not in PICKS:
        raise ExportRefused(f"no pick {pick!r}; there are {', '.join(PICKS)}")
    limit = view.study.memory_limit_bytes if memory is None else _limit(view, memory)
    front = pareto_front(view.standing, limit)
    if not front:
        raise NothingToExport(_nothing(view, memory))
    trial = _picked(view, front, pick, limit)
    return _handover(view, trial, _remarks(view, trial, len(front), (pick, memory)))


def _limit(view: StudyView, memory: str) -> int:
    try:
        asked = parse_memory(memory, smallest_bytes=1)
    except QuantityError as error:
        raise ExportRefused(f"--memory: {error}") from error
    if asked.size_bytes is not None:
        return asked.size_bytes
    total = view.total_memory_bytes
    if total is None:
        raise ExportRefused(f"--memory {memory}: the device's memory is not known; write a size such as 40GiB")
    return asked.bytes_of(total)


def _picked(view: StudyView, front: Sequence[TrialRecord], pick: str, limit: int | None) -> TrialRecord:
    if pick == "smallest":
        return front[-1]
    if pick == "knee":
        return knee(front) or front[0]
    best = next((each for each in view.standing if each.id == view.answer.best), None)
    return best if best is not None and is_feasible(best, limit) else front[0]


def _nothing(view: StudyView, memory: str | None) -> str:
    measured = [each.peak_memory_bytes for each in view.standing if is_feasible(each, None)]
    name, peaks = view.study.name, [peak for peak in measured if peak is not None]
    if not peaks:
        return f"study {name!r} has no measured configuration yet: nothing to export"
    limit = f"--memory {memory}" if memory is not None else "the memory limit"
    return f"no measured configuration of {name!r} fits {limit}; the smallest needs {size_text(min(peaks))}"


def _remarks(view: StudyView, trial: TrialRecord, points: int, asked: tuple[str, str | None]) -> tuple[str, ...]:
    pick, memory = asked
    said = [f"Picked as the {pick}{f' that fits {memory}' if memory else ''} of {points} on the front."]
    if pick == "knee" and points < 3:
        said.append(f"A front of {points} has no knee between its ends: this is its fastest.")
    if trial.number == 0:
        said.append("This is the baseline: nothing measured was faster (or smaller, for that pick).")
    if view.answer.best is not None and trial.id != view.answer.best:
        said.append("It is not the confirmed winner of the study.")
    if view.spec.objective.kind == SCRIPT:
        carried = ", ".join(sorted(Template.of(view.spec.objective.settings).knobs()))
        said.append(
            f"The study set only {carried} of the script; every other value here is a default, not the script's."
        )
    return (*said, *soak_remarks(view.runs, trial.id))


def _handover(view: StudyView, trial: TrialRecord, remarks: tuple[str, ...]) -> Handover:
    study, spec, config = view.study, view.spec, TrainingConfig.from_mapping(trial.config)
    rows = config.micro_batch_size * config.accumulation_steps * spec.ranks
    interval, hardware = view.interval(trial), _hardware(view.runs, trial)
    return Handover(
        study=study.name,
        trial=trial.number,
        config=config,
        global_batch_size=spec.global_batch_size if spec.global_batch_size is not None else rows,
        global_batch_tokens=spec.global_batch_tokens,
        objective=spec.objective.kind,
        ranks=spec.ranks,
        measured_ranks=spec.ranks,
        device_kind=view.history.device_kind,
        device=study.device,
        throughput=trial.throughput,
        throughput_unit=trial.throughput_unit,
        throughput_interval=None if interval is None else (interval.low, interval.high),
        confirmed=trial.id in view.answer.intervals,
        peak_memory_bytes=trial.peak_memory_bytes,
        memory_limit_bytes=study.memory_limit_bytes,
        total_memory_bytes=view.total_memory_bytes,
        longest_tokens=_longest(view, config),
        threads=hardware.get("threads"),
        environment=dict(spec.environment),
        versions={name: str(said) for name, said in (hardware.get("versions") or {}).items() if said is not None},
        max_grad_norm=spec.max_grad_norm,
        own_optimizer=view.facts is not None and "optimizer" in view.facts.workload_methods,
        adapters=spec.objective.settings.get("lora") or {},
        remarks=remarks,
    )


def _hardware(runs: Sequence[RunRecord], trial: TrialRecord) -> Mapping[str, Any]:
    """Of the trial's newest measured run; empty without one."""
    return next((run.hardware for run in reversed(runs) if run.trial_id == trial.id and run.hardware), {})


def _longest(view: StudyView, config: TrainingConfig) -> int | None:
    """Tokens of the worst-case batch's rows: the data's longest, the sequence length at most; packed rows have that."""
    said = (view.spec.objective.settings.get("data") or {}).get("sequence_length")
    packed = config.batching == "packed"
    found = None if packed else (view.study.facts.get("data") or {}).get("longest_row")
    known = [each for each in (said, found) if isinstance(each, int)]
    return min(known) if known else None
