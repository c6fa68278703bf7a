"""Peak memory of a space, predicted in one child without a trial, kept with the study for its trials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.contract import SCRIPT
from objectives.knobs import config_key
from storage import studies
from tuner.answer.plan import plan
from tuner.errors import TightfitError
from tuner.progress import Notice, Preparing
from tuner.search.memory_model import MemoryModel, Predicted, learn, observations_of
from tuner.search.predictions import Prediction, spread_out, to_ask
from tuner.search.prepared import Prepared
from tuner.work.preparation import prepare, what_happened
from tuner.work.runner import Deadlines
from tuner.work.session import Session
from tuner.work.study_runs import study_run

if TYPE_CHECKING:
    from objectives.trial.protocol import Event
    from tuner.search.space import Space

MOST = 5_000
"""Configurations predicted at most; of a larger space the first ones, and the answer says so."""
ESTIMATE_SECONDS = 3600.0
PREDICTION_SHARE = 0.08
"""Of the study's time limit, what ``tuner run`` gives to prediction before its first trial ..."""
LEAST_SECONDS, MOST_SECONDS = 10.0, 120.0
"""... but so many seconds at least, and at most (without a limit, too). What is not done then stays unknown."""
TIME_IS_OVER = "prediction_time"
"""Why a child that predicts is asked to stop."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One configuration's prediction.

    Attributes:
        raw: What the fakes say, as JSON: bytes, categories, operator at the peak, note.
        predicted: Corrected, with its bar; None where nothing could be predicted.
    """

    config: TrainingConfig
    raw: Mapping[str, Any]
    predicted: Predicted | None


def estimate(session: Session) -> tuple[Prepared, list[Estimate]]:
    """Predicts the whole space (at most :data:`MOST` configurations), the baseline first.

    Raises:
        SpecError: The objective cannot be used as the spec says.
        TightfitError: The child that predicts failed.
    """
    prepared = prepare(session)
    baseline, space = prepared.baseline_and_space(session.spec)
    wanted = _wanted(baseline.config, space)
    prepared = _predicted(session, prepared, wanted, seconds=None)
    model = learn(observations_of(session.trials()), device_kind=session.lane.device.kind)
    limit, known = session.study.memory_limit_bytes, prepared.predictions
    return prepared, [_estimate(config, known.get(config_key(config), {}), model, limit) for config in wanted]


def predict(session: Session, prepared: Prepared) -> Prepared:
    """What ``tuner run`` knows before its first trial: as much of the space as fits its time, the baseline first.

    Kept with the study; a session that goes on asks only for the rest. Without predictions the study goes on, and
    says why it has none.
    """
    if session.spec.objective.kind == SCRIPT:  # what it needs is known by running it only
        return prepared
    limit = session.spec.limits.time_seconds
    share = MOST_SECONDS if limit is None else limit * PREDICTION_SHARE
    seconds = min(max(share, LEAST_SECONDS), MOST_SECONDS)
    with session.database.lock(f"predict-{session.study.id}", wait_seconds=seconds) as held:
        if not held:  # another worker predicts, and takes longer than this one would
            return prepared
        session.refresh(session.patiently(lambda: studies.get(session.database, session.study.id)))
        prepared = Prepared.from_mapping(session.study.facts)
        baseline, space = prepared.baseline_and_space(session.spec)
        try:
            return _predicted(session, prepared, _wanted(baseline.config, space), seconds=seconds)
        except TightfitError as error:
            session.report(Notice(text=f"{error}; the search goes on without"))
            return prepared


def _predicted(
    session: Session, prepared: Prepared, wanted: Sequence[TrainingConfig], *, seconds: float | None
) -> Prepared:
    """The study with everything predicted that was missing, or what the time was enough for; stored."""
    missing = to_ask(wanted, prepared.predictions, most=MOST)
    if not missing:
        return prepared
    answers = _ask(session, missing, seconds)
    known = {**prepared.predictions, **spread_out(wanted, answers)}
    facts = {**session.study.facts, "predictions": known}
    session.refresh(session.patiently(lambda: studies.set_facts(session.database, session.study.id, facts)))
    if len(answers) < len(missing) and seconds is not None:
        left = len(missing) - len(answers)
        session.report(Notice(text=f"{left} of {len(missing)} peaks were not predicted in {seconds:.0f} s"))
    return replace(prepared, predictions=known)


def predicted_misfits(session: Session, prepared: Prepared) -> frozenset[str]:
    """Keys of the configurations that certainly do not fit, by what was predicted and has been measured so far."""
    if not prepared.predictions:
        return frozenset()
    _, space = prepared.baseline_and_space(session.spec)
    model = learn(observations_of(session.trials()), device_kind=session.lane.device.kind)
    limit = session.study.memory_limit_bytes
    found = (_estimate(config, prepared.predictions.get(key, {}), model, limit) for key, config in space.keyed())
    return frozenset(
        config_key(each.config) for each in found if each.predicted is not None and each.predicted.certain_misfit
    )


def _wanted(baseline: TrainingConfig, space: Space) -> list[TrainingConfig]:
    return [baseline, *(config for config in islice(space.configs(), MOST) if config != baseline)]


def _estimate(config: TrainingConfig, raw: Mapping[str, Any], model: MemoryModel, limit: int | None) -> Estimate:
    peak = raw.get("peak_memory_bytes")
    if peak is None:
        return Estimate(config=config, raw=raw, predicted=None)
    predicted = model.predict(config, int(peak), limit_bytes=limit, wide=bool(raw.get("wide")))
    return Estimate(config=config, raw=raw, predicted=predicted)


def _ask(session: Session, configs: Sequence[TrainingConfig], seconds: float | None) -> dict[str, Prediction]:
    """One ``estimate`` child for all of them; by configuration key, those that it came to in so many seconds.

    Raises:
        TightfitError: It failed before it had answered anything.
    """
    session.report(Preparing(text=f"predicting the peak memory of {len(configs)} configurations"))
    request = session.request(
        "estimate", session.lane, cap_memory=False, answer={"configs": [config.to_mapping() for config in configs]}
    )
    found: dict[str, Prediction] = {}
    ends_at = time.monotonic() + (ESTIMATE_SECONDS if seconds is None else seconds)

    def watch(event: Event) -> str | None:
        if event.event == "answer":
            key = config_key(TrainingConfig.from_mapping(event.fields["config"]))
            found[key] = event.fields["prediction"]
        return TIME_IS_OVER if time.monotonic() > ends_at else None

    deadline = ESTIMATE_SECONDS if seconds is None else 2 * seconds
    end = study_run(session, request, Deadlines(trial_seconds=deadline, compile_seconds=deadline), watch)
    verdict = end.verdict
    if verdict.outcome != "completed" and not found:
        raise TightfitError(f"no peak could be predicted: {what_happened(end)}. {verdict.advice}".rstrip())
    return found


def estimate_json(session: Session, prepared: Prepared, found: Sequence[Estimate]) -> dict[str, Any]:
    """The document of ``estimate --json``."""
    _, space = prepared.baseline_and_space(session.spec)
    planned = plan(session.spec.limits, space.size)
    return {
        "study": session.study.name,
        "device": session.study.device,
        "memory_limit_bytes": session.study.memory_limit_bytes,
        "configurations": space.size,
        "counts": _counts(found),
        "plan": {"trials": planned.trials, "runs": planned.runs, "seconds": planned.seconds},
        "estimates": [_row(each) for each in found],
    }


def _counts(found: Sequence[Estimate]) -> dict[str, int]:
    known = [each.predicted for each in found if each.predicted is not None]
    misfits = sum(each.certain_misfit for each in known)
    doubtful = sum(each.doubtful for each in known)
    return {
        "fits": len(known) - misfits - doubtful,
        "doubtful": doubtful,
        "misfits": misfits,
        "unknown": len(found) - len(known),
    }


def _row(each: Estimate) -> dict[str, Any]:
    said = each.predicted
    return {
        "config": each.config.to_mapping(),
        "verdict": "unknown" if said is None else _verdict(said),
        "predicted_peak_memory_bytes": None if said is None else said.mean_bytes,
        "predicted_interval": None if said is None else [said.low_bytes, said.high_bytes],
        "categories": dict(each.raw.get("categories", {})),
        "operator_at_peak": each.raw.get("operator_at_peak") or None,
        "note": each.raw.get("note"),
    }


def _verdict(said: Predicted) -> str:
    return "misfit" if said.certain_misfit else "doubtful" if said.doubtful else "fits"
