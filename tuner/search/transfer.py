"""What earlier studies teach a new one: how much each knob brings, never how fast or how large anything is. Pure.

A study on the same device with the same kind of objective and the same unit may teach. How far its knobs' effects carry
over falls with what is different: another model family, another size, sequence length or global batch. The planner
takes that as a correlation between the two studies' effects (:mod:`tuner.search.planner.effects`); levels are never
shared, and no measurement of an earlier study enters this one's front.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectives.contract import BUILT_IN
from storage.records import StudyRecord, TrialRecord
from tuner.search.planner.observation import Earlier, Seen
from tuner.spec.model import StudySpec

ALIKE = 0.95
"""Similarity of a study that differs in nothing known: another day, perhaps another version of a library."""
OTHER_FAMILY, OTHER_ADAPTERS = 0.75, 0.8
PER_DOUBLING = {"parameters": 0.98, "sequence_length": 0.95, "global_batch": 0.98}
"""Factors of the similarity for each doubling (or halving) of a size."""
LEAST_SIMILARITY = 0.5
"""Studies less alike are left alone."""
MOST_STUDIES = 4
MOST_TRIALS = 160
"""Trials taken over in all, from the most similar studies first: the cost of learning grows with their number cubed."""
FEWEST_TRIALS = 3
"""Completed trials without which a study has no effects to teach."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What decides how much two studies have in common.

    Attributes:
        device: Its name.
        kind: The objective's kind; two of one kind count in the same unit.
        family: The model's type; of an objective of one's own, its settings.
        parameters: Trained or not; None when unknown.
        sequence_length: Tokens; None where samples have no length.
        global_batch: Samples, or tokens, per optimizer step.
        in_tokens: Whether the global batch is given in tokens.
        adapters: Whether low-rank adapters are trained instead of the model.
    """

    device: str
    kind: str
    family: str
    parameters: int | None = None
    sequence_length: int | None = None
    global_batch: int = 1
    in_tokens: bool = False
    adapters: bool = False


@dataclass(frozen=True, kw_only=True)
class Past:
    """An earlier study's rows."""

    study_id: int
    name: str
    profile: Profile
    trials: Sequence[TrialRecord]


def profile_of(study: StudyRecord, spec: StudySpec) -> Profile | None:
    """A prepared study's profile; None before it was prepared."""
    if study.device is None or not study.facts.get("facts"):
        return None
    data: Mapping[str, Any] = study.facts.get("data") or {}
    settings = spec.objective.settings
    return Profile(
        device=study.device,
        kind=spec.objective.kind,
        family=_family(spec, data),
        parameters=data.get("parameters"),
        sequence_length=(settings.get("data") or {}).get("sequence_length"),
        global_batch=spec.global_batch_size or spec.global_batch_tokens or 1,
        in_tokens=spec.global_batch_size is None,
        adapters=bool(settings.get("lora")),
    )


def similarity(mine: Profile, other: Profile) -> float:
    """How far the other study's effects carry over, 0 (not at all) to :data:`ALIKE`."""
    if (mine.device, mine.kind) != (other.device, other.kind):
        return 0.0
    made = ALIKE
    made *= 1.0 if mine.family == other.family else OTHER_FAMILY
    made *= 1.0 if mine.adapters == other.adapters else OTHER_ADAPTERS
    for name, factor in PER_DOUBLING.items():
        if name != "global_batch" or mine.in_tokens == other.in_tokens:
            made *= factor ** _doublings(getattr(mine, name), getattr(other, name))
    return made


def earlier_studies(mine: Profile, past: Sequence[Past]) -> tuple[Earlier, ...]:
    """What the most similar of these studies teach, most similar first; bounded in studies and in trials.

    Args:
        mine: The new study.
        past: Earlier ones, newest first.
    """
    alike = [(similarity(mine, each.profile), each) for each in past]
    able = [
        (share, each) for share, each in alike if share >= LEAST_SIMILARITY and len(_completed(each)) >= FEWEST_TRIALS
    ]
    able = sorted(able, key=lambda pair: -pair[0])[:MOST_STUDIES]
    found: list[Earlier] = []
    left = MOST_TRIALS
    for place, (share, each) in enumerate(able):
        seen = [seen_of(trial) for trial in spread(_completed(each), left // (len(able) - place))]
        left -= len(seen)
        found.append(Earlier(name=each.name, seen=seen, similarity=share))
    return tuple(found)


def spread(trials: Sequence[TrialRecord], most: int) -> list[TrialRecord]:
    """So many trials from the fastest to the slowest, evenly: slow ones show what the fast ones' knobs bring."""
    ordered = sorted(trials, key=lambda trial: -(trial.throughput or 0.0))
    if len(ordered) <= most:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / max(most - 1, 1))] for place in range(most)]


def seen_of(trial: TrialRecord) -> Seen:
    """A finished trial as the planner takes it."""
    metrics = trial.metrics
    return Seen(
        config=dict(trial.config),
        outcome=str(trial.outcome),
        throughput=trial.throughput,
        is_bound=trial.outcome == "pruned",
        peak_memory_bytes=trial.peak_memory_bytes,
        seconds=trial.seconds,
        setup_seconds=metrics.get("setup_seconds"),
        compile_seconds=metrics.get("compile_seconds"),
        data_stall_share=metrics.get("data_stall_share"),
        runs=max(1, trial.windows),
        certain=trial.confidence != "probable",
    )


def sentence(earlier: Sequence[Earlier]) -> str | None:
    """What a person is told; None where nothing is taken over."""
    if not earlier:
        return None
    told = ", ".join(f"{each.name} ({len(each.seen)} trials, {each.similarity:.0%} alike)" for each in earlier)
    number = "an earlier study" if len(earlier) == 1 else f"{len(earlier)} earlier studies"
    return f"starts from {number}: {told}; `transfer: false` in the spec starts from nothing"


def _completed(past: Past) -> list[TrialRecord]:
    return [trial for trial in past.trials if trial.outcome == "completed" and (trial.throughput or 0) > 0]


def _family(spec: StudySpec, data: Mapping[str, Any]) -> str:
    settings = spec.objective.settings
    if spec.objective.kind not in BUILT_IN:
        return json.dumps(settings, sort_keys=True, default=str)
    model: Mapping[str, Any] = settings.get("model") or {}
    said = data.get("model_type") or (model.get("config") or {}).get("model_type")
    return str(said or model.get("hub") or model.get("path"))


def _doublings(mine: int | None, other: int | None) -> float:
    """Doublings between two sizes; 0 where one is unknown on both sides, one where only one is known."""
    if not mine or not other:
        return 0.0 if mine == other else 1.0
    return abs(math.log2(mine / other))
