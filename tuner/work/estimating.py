"""Peak memory of a space, predicted in one child without a trial, kept with the study for its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from objectives.knobs import config_key
from storage import runs, studies
from tuner.errors import TightfitError
from tuner.progress import Preparing
from tuner.search.memory_model import MemoryModel, Predicted, learn, observations_of
from tuner.work.preparation import Prepared, prepare, what_happened
from tuner.work.runner import Deadlines
from tuner.work.session import Session

if TYPE_CHECKING:
    from objectives.config import TrainingConfig
    from objectives.trial.protocol import Event
    from tuner.search.space import Space

MOST = 5_000
"""Configurations predicted at most; of a larger space the first ones, and the answer says so."""
ESTIMATE_SECONDS = 3600.0
BESIDE_THE_WINDOW = 2.0
"""Seconds a run takes beside its window, for the plan: start, worst case, warm-up; more for large models."""


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
    known = dict(prepared.predictions)
    missing = [config for config in wanted if config_key(config) not in known]
    if missing:
        known |= _ask(session, missing)
        session.refresh(
            studies.set_facts(session.database, session.study.id, {**session.study.facts, "predictions": known})
        )
    model = learn(observations_of(session.trials()), device_kind=session.lane.device.kind)
    limit = session.study.memory_limit_bytes
    return prepared, [_estimate(config, known.get(config_key(config), {}), model, limit) for config in wanted]


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


def _ask(session: Session, configs: Sequence[TrainingConfig]) -> dict[str, Mapping[str, Any]]:
    """One ``estimate`` child for all of them; by configuration key."""
    from objectives.config import TrainingConfig

    session.report(Preparing(text=f"predicting the peak memory of {len(configs)} configurations"))
    request = session.request(
        "estimate", session.lane, cap_memory=False, answer={"configs": [config.to_mapping() for config in configs]}
    )
    runs.start(session.database, id=request.run, study_id=session.study.id, purpose="estimate")
    found: dict[str, Mapping[str, Any]] = {}

    def watch(event: Event) -> str | None:
        if event.event == "answer":
            key = config_key(TrainingConfig.from_mapping(event.fields["config"]))
            found[key] = event.fields["prediction"]
        return None

    end = session.lane.run(
        request,
        Deadlines(trial_seconds=ESTIMATE_SECONDS, compile_seconds=ESTIMATE_SECONDS),
        environment=session.spec.environment,
        watch=watch,
        cancelled=session.stop.is_set,
    )
    verdict = end.verdict
    runs.finish(
        session.database, request.run, outcome=verdict.outcome, cause=verdict.cause, confidence=verdict.confidence,
        evidence=end.evidence, seconds=end.seconds,
    )  # fmt: skip
    if verdict.outcome != "completed" and not found:
        raise TightfitError(f"no peak could be predicted: {what_happened(end)}. {verdict.advice}".rstrip())
    return found


def estimate_json(session: Session, prepared: Prepared, found: Sequence[Estimate]) -> dict[str, Any]:
    """The document of ``estimate --json``."""
    limits = session.spec.limits
    _, space = prepared.baseline_and_space(session.spec)
    trials = min(limits.trials, space.size)
    seconds = trials * (limits.window_seconds + BESIDE_THE_WINDOW) * 1.5
    return {
        "study": session.study.name,
        "device": session.study.device,
        "memory_limit_bytes": session.study.memory_limit_bytes,
        "configurations": space.size,
        "counts": _counts(found),
        "plan": {
            "trials": trials,
            "seconds": seconds if limits.time_seconds is None else min(seconds, limits.time_seconds),
        },
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
