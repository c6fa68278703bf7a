"""What a study will take, before it starts: configurations, predicted memory, time. Nothing is run for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from storage.records import StudyRecord, TrialRecord
from tuner.answer.plan import StudyPlan, plan
from tuner.search.memory_model import learn, observations_of
from tuner.search.prepared import Prepared
from tuner.search.space import Space
from tuner.spec.model import StudySpec

MOST_PREDICTED = 2_000
"""Configurations whose predictions are looked at; of a larger space the first ones."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What is known of the space's memory from a study of the same objective.

    Attributes:
        study: Its name.
        device: Where that was.
        limit_bytes: What the counts were made against.
        fits: Configurations that fit for certain; ``doubtful`` and ``misfits`` likewise.
        unknown: Without a prediction.
        smallest_bytes: The lowest predicted peak; None without one. Likewise ``largest_bytes``.
    """

    study: str
    device: str | None
    limit_bytes: int | None
    fits: int = 0
    doubtful: int = 0
    misfits: int = 0
    unknown: int = 0
    smallest_bytes: int | None = None
    largest_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The plan of a spec.

    Attributes:
        configurations: In the space: as a machine has found them out, or the product of what was written.
        exact: Which of the two.
        plan: Trials, runs and seconds at most.
        memory: None where nothing is known yet: ``tuner estimate`` finds it out.
    """

    configurations: int
    exact: bool
    plan: StudyPlan
    memory: Memory | None = None


def outlook(spec: StudySpec, known: StudyRecord | None, trials: Sequence[TrialRecord] = ()) -> Outlook:
    """The plan.

    Args:
        spec: The new study.
        known: A stored study of the same objective that has been prepared; None without one.
        trials: Those of that study, which correct its predictions.
    """
    if known is None or "facts" not in known.facts:
        written = prod(len(values) for values in spec.search.values())
        return Outlook(configurations=written, exact=False, plan=plan(spec.limits, written))
    prepared = Prepared.from_mapping(known.facts)
    try:
        baseline, space = prepared.baseline_and_space(spec)
    except ValueError:
        return outlook(spec, None)
    memory = _memory(spec, known, prepared, (baseline.config, space), trials)
    return Outlook(configurations=space.size, exact=True, plan=plan(spec.limits, space.size), memory=memory)


def _memory(
    spec: StudySpec, known: StudyRecord, prepared: Prepared, tried: tuple[TrainingConfig, Space],
    trials: Sequence[TrialRecord],
) -> Memory | None:  # fmt: skip
    if not prepared.predictions:
        return None
    baseline, space = tried
    limit = _limit(spec, known)
    model = learn(observations_of(trials), device_kind=prepared.facts.device_kind)
    fits = doubtful = misfits = unknown = 0
    peaks: list[int] = []
    for config in (baseline, *islice((each for each in space.configs() if each != baseline), MOST_PREDICTED)):
        raw = prepared.predictions.get(config_key(config), {})
        if raw.get("peak_memory_bytes") is None:
            unknown += 1
            continue
        said = model.predict(config, int(raw["peak_memory_bytes"]), limit_bytes=limit, wide=bool(raw.get("wide")))
        peaks.append(said.mean_bytes)
        misfits, doubtful = misfits + said.certain_misfit, doubtful + (said.doubtful and not said.certain_misfit)
    fits = len(peaks) - misfits - doubtful
    return Memory(
        study=known.name, device=known.device, limit_bytes=limit, fits=fits, doubtful=doubtful, misfits=misfits,
        unknown=unknown, smallest_bytes=min(peaks, default=None), largest_bytes=max(peaks, default=None),
    )  # fmt: skip


def _limit(spec: StudySpec, known: StudyRecord) -> int | None:
    """The new study's limit on that study's device; None where the device's memory is not known."""
    asked = spec.limits.memory
    if asked.size_bytes is not None:
        return asked.size_bytes
    before = (known.spec.get("limits") or {}).get("memory") or {}
    if known.memory_limit_bytes is None or not before.get("share"):
        return known.memory_limit_bytes
    return asked.bytes_of(round(known.memory_limit_bytes / before["share"]))
