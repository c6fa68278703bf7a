"""Before the first trial: the data is prepared once, and the machine is asked what it can run. In children, as ever."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.trial.outcome import Verdict
from storage import studies
from tuner.answer.notices import left_out
from tuner.errors import MachineError, SpecError, SpecProblem, TightfitError
from tuner.progress import Notice, Preparing
from tuner.search.prepared import Prepared
from tuner.spec.locate import objective_problem
from tuner.work.preloads import require_preloads
from tuner.work.prepared_here import read_mark, require_alike, write_mark
from tuner.work.registration import host_name
from tuner.work.runner import Deadlines, RunEnd
from tuner.work.study_runs import study_run

if TYPE_CHECKING:
    from objectives.trial.protocol import Event
    from tuner.spec.model import StudySpec
    from tuner.work.session import Session

PREPARE_SECONDS = 3600.0
"""Tokenizing a corpus may take long; the study's own limit still holds."""
MOST_CRASHES = 12
"""So many choices may take the capability child down before the fault is taken for the objective's own."""
OBJECTIVE_ERROR = "objectives.contract.ObjectiveError"


def prepare(session: Session) -> Prepared:
    """Prepares the study on this session's first lane, or takes what an earlier session found on the same device.

    Raises:
        SpecError: The objective cannot be loaded or built as the spec says.
        TightfitError: It fails otherwise, or the study's measurements are from another kind of device.
    """
    device = session.lane.device
    study = session.study
    if study.device is not None and study.device != device.name:
        raise TightfitError(
            f"study {study.name!r} was measured on {study.device}; this is {device.name}. A front never mixes devices: "
            "give the study another name here"
        )
    require_preloads(session.spec.environment)
    prepared = Prepared.from_mapping(_together(session) if session.shared else _by_itself(session))
    if (told := left_out(prepared.data)) is not None:
        session.report(Notice(text=told))
    require_enough_data(session.spec, prepared.data)
    require_possible_batch(session.spec, prepared)
    return prepared


def _by_itself(session: Session) -> Mapping[str, Any]:
    """The study's facts where this process is the only one at it."""
    stored: Mapping[str, Any] = session.study.facts
    if not stored.get("facts") or not still_prepared(stored.get("data", {}), session.spec.objective.cache_path):
        stored = _ask(session, stored)
    _keep(session, stored)
    return stored


def _together(session: Session) -> Mapping[str, Any]:
    """The study's facts where others work on it, on this host or elsewhere: one asks, each host prepares its data.

    Raises:
        Interrupted: There was a reason to leave before it was this one's turn.
        TightfitError: The data of this host is not the study's.
    """
    with session.alone("prepare") as alone:
        if not alone:
            raise Interrupted("left before the study was prepared")
        session.refresh(studies.get(session.database, session.study.id))
        stored: Mapping[str, Any] = session.study.facts
        if not stored.get("facts"):
            stored = _ask(session, stored)
            write_mark(session.spec.objective, stored["data"])
        _keep(session, stored)
    with session.alone(f"prepare-{host_name()}") as alone:
        if not alone:
            raise Interrupted("left before this machine was prepared")
        _prepare_here(session, stored.get("data", {}))
    return stored


def _prepare_here(session: Session, stored: Mapping[str, Any]) -> None:
    objective = session.spec.objective
    here = read_mark(objective)
    if here is None or not still_prepared(here, objective.cache_path):
        here = _Answers(session, knobs=False).data_alone()
        write_mark(objective, here)
    require_alike(here, stored)


def _ask(session: Session, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    answers = _Answers(session)
    return {**stored, "facts": answers.ask(), "data": answers.data}


def _keep(session: Session, stored: Mapping[str, Any]) -> None:
    """Stores facts and limit; the limit may have changed since the last session."""
    device, study = session.lane.device, session.study
    limit = session.spec.limits.memory.bytes_of(device.total_memory_bytes)
    if stored is study.facts and limit == study.memory_limit_bytes and study.device == device.name:
        return
    session.refresh(studies.set_facts(session.database, study.id, stored, device=device.name, memory_limit_bytes=limit))


def still_prepared(data: Mapping[str, Any], cache: Path) -> bool:
    """Whether what the preparation left is still there: caches may be deleted, or be somewhere else today."""
    if not data:
        return True
    folder = data.get("folder")
    here = folder is None or (Path(folder).is_dir() and Path(folder).is_relative_to(cache))
    return here and cache.is_dir()


def require_enough_data(spec: StudySpec, data: Mapping[str, Any]) -> None:
    """Refuses data smaller than one global batch: no optimizer step would ever be made.

    Raises:
        SpecError: With both sizes. An objective that does not say its number of samples is found out by the first run.
    """
    rows, wanted = data.get("rows"), spec.global_batch_size
    if rows is None or wanted is None or rows >= wanted:
        return
    problem = SpecProblem(
        where="global_batch_size",
        reason=f"the data has {rows} samples, fewer than one global batch of {wanted}",
        fix="Use a smaller global batch or more data",
    )
    raise SpecError((problem,), source="")


def require_possible_batch(spec: StudySpec, prepared: Prepared) -> None:
    """Refuses a global batch in tokens that neither the baseline nor any configuration can make of this data.

    Raises:
        SpecError: With the first reason, which names near sizes that work.
    """
    if spec.global_batch_tokens is None:
        return
    baseline, space = prepared.baseline_and_space(spec)
    if baseline.refused is None or next(space.configs(), None) is not None:
        return
    said = (reason for choice, reason in space.refused.items() if choice.startswith("micro_batch_size="))
    problem = SpecProblem(where="global_batch_tokens", reason=next(said, baseline.refused), fix="")
    raise SpecError((problem,), source="")


class _Answers:
    """Asks capability children until every choice has an answer; one that kills its child is one that cannot run."""

    def __init__(self, session: Session, *, knobs: bool = True) -> None:
        self._session, self._knobs = session, knobs
        self._skip: dict[str, str] = {}
        self._said = ""
        self.data: Mapping[str, Any] = {}

    def ask(self) -> Mapping[str, Any]:
        """The facts, as JSON."""
        for _ in range(MOST_CRASHES):
            end = self._run()
            self.data = next((a["data"] for a in end.answers if "data" in a), self.data)
            if end.verdict.outcome == "completed":
                return dict([a for a in end.answers if "facts" in a][-1]["facts"])
            self._blame(end)
        raise TightfitError(f"{MOST_CRASHES} choices in a row took their process down: {dict(self._skip)}")

    def data_alone(self) -> Mapping[str, Any]:
        """What the preparation of the data returns; no choice is tried."""
        self.ask()
        return self.data

    def _run(self) -> RunEnd:
        session, spec = self._session, self._session.spec
        asked = {name: list(values) for name, values in spec.search.items()}
        for name, value in spec.baseline.items():
            asked[name] = [*asked.get(name, []), *([] if value in asked.get(name, []) else [value])]
        request = session.request(
            "capability",
            session.lane,
            answer={
                "knobs": asked if self._knobs else {},
                "prepare": not self.data,
                "packable": spec.global_batch_tokens is not None,
                "skip": self._skip,
                "base": dict(spec.baseline),
            },
        )
        deadlines = Deadlines(trial_seconds=PREPARE_SECONDS, compile_seconds=spec.limits.compile_time_seconds)
        return study_run(session, request, deadlines, self._report)

    def _report(self, event: Event) -> str | None:
        text = self._said
        if event.event == "phase" and event.fields.get("phase") == "load":
            text = "preparing the data (once a study)"
        elif trying := event.fields.get("trying"):
            text = f"asking what runs here: {trying}"
        if text != self._said:
            self._said = text
            self._session.report(Preparing(text=text))
        return None

    def _blame(self, end: RunEnd) -> None:
        """The choice that was being tried when the child died joins those to skip.

        Raises:
            SpecError: It failed before any choice, by the objective's own word.
            MachineError: The machine could not run it.
            TightfitError: It failed before any choice otherwise, or there was a reason to leave.
        """
        if end.verdict.outcome == "infra":
            raise MachineError(f"the study cannot be prepared here: {end.verdict.text}", cause=end.verdict.cause)
        if end.verdict.outcome == "cancelled":
            raise Interrupted("stopped while the study was being prepared")
        last: Mapping[str, Any] = next((a for a in reversed(end.answers) if "trying" in a or "tried" in a), {})
        if "trying" not in last:
            raise _unusable(end.verdict, end)
        self._skip[str(last["trying"])] = f"took its process down ({what_happened(end)})"


class Interrupted(TightfitError):
    """A person asked to stop before there was a first trial."""


def _unusable(verdict: Verdict, end: RunEnd) -> TightfitError:
    own = next((record for record in end.ending.chain if record.cls == OBJECTIVE_ERROR), None)
    if own is not None:
        return SpecError((objective_problem(own.text),), source="")
    return TightfitError(f"the objective cannot be prepared: {what_happened(end)}. {verdict.advice}".rstrip())


def what_happened(end: RunEnd) -> str:
    """One line: the innermost exception, or the signal, or the exit status, with the outcome."""
    verdict = end.verdict
    name = verdict.outcome if verdict.cause is None else f"{verdict.outcome}, {verdict.cause}"
    if end.ending.chain:
        record = end.ending.chain[0]
        text = record.text.strip().splitlines()[0][:300] if record.text.strip() else ""
        return f"{record.cls.rpartition('.')[2]}: {text} [{name}]"
    if end.ending.signal is not None:
        return f"signal {end.ending.signal} [{name}]"
    return f"exit status {end.ending.exit_code} [{name}]"
