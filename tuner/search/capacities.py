"""The loader settings of a space, and what stored ``loader_capacity`` runs say of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs import canonical
from storage.records import RunRecord
from tuner.search.planner.observation import LoaderCapacity
from tuner.search.planner.priors import LOADER_KNOBS
from tuner.search.space import Space

Settings = Mapping[str, KnobValue]
"""Value by loader knob; every one of them is named."""

PURPOSE = "loader_capacity"
MOST_SETTINGS = 32
"""Settings measured at most, the first of the space's; the search learns the others from its own runs."""
UNKNOWN_ERROR = 0.1
"""Relative standard error taken where a measurement had too few batches to tell its own."""


def distinct_settings(space: Space) -> list[Settings]:
    """The space's loader settings that differ in what they do, in its order: prefetching is nothing without workers."""
    names = [name for name in LOADER_KNOBS if name in space.values]
    choices: list[dict[str, KnobValue]] = [{}]
    for name in names:
        choices = [{**made, name: value} for made in choices for value in space.values[name]]
    found: dict[str, Settings] = {}
    for choice in choices:
        config = canonical(TrainingConfig.from_mapping({**space.fixed, **choice}))
        settings = {name: config.knobs()[name] for name in LOADER_KNOBS}
        found.setdefault(_key(settings), settings)
    return list(found.values())[:MOST_SETTINGS]


def missing(wanted: Sequence[Settings], runs: Iterable[RunRecord]) -> list[Settings]:
    """Those that no run has an answer for, be it a reason."""
    known = {_key(answer["settings"]) for answer in _answers(runs)}
    return [settings for settings in wanted if _key(settings) not in known]


def capacities(wanted: Sequence[Settings], runs: Iterable[RunRecord]) -> tuple[LoaderCapacity, ...]:
    """What is known of the wanted settings, as the search takes it."""
    answers = {_key(answer["settings"]): answer for answer in _answers(runs) if answer.get("units_per_second")}
    found = [(settings, answers.get(_key(settings))) for settings in wanted]
    return tuple(
        LoaderCapacity(
            settings=settings,
            throughput=float(answer["units_per_second"]),
            relative_standard_error=float(answer.get("relative_standard_error") or UNKNOWN_ERROR),
        )
        for settings, answer in found
        if answer is not None
    )


def _answers(runs: Iterable[RunRecord]) -> Iterable[Mapping[str, Any]]:
    for run in runs:
        if run.purpose == PURPOSE:
            yield from run.measurement.get("capacities", ())


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)
