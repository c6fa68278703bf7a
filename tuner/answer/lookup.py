"""The best known configuration for what somebody is about to train, from studies that confirmed one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from objectives.config import TrainingConfig, accumulation_steps
from storage.confirmed import ConfirmedStudy, ConfirmedTrial
from tuner.answer.fingerprint import Difference, Fingerprint, Query, differences, is_capped, same_device

MOST_OTHERS = 3
"""Further answers that are named beside the nearest."""


@dataclass(frozen=True, kw_only=True)
class BestConfig:
    """A confirmed configuration, ready for the job that asked.

    Attributes:
        config: Every knob, with ``accumulation_steps`` for the job's own global batch and ranks.
        exact: Whether everything that was asked for is what was measured.
        differences: What is not, in words.
        stale: What has changed since, in words; None where that cannot be judged from here.
        throughput: In ``throughput_unit``, on the device that was asked for and nowhere else: None when it was
            measured on another.
        throughput_interval: 95 %; None without one.
        peak_memory_bytes: What it needs, on the batch it was measured with.
        device: Where it was measured.
        memory_limit_bytes: What the study allowed.
        found_under_cap: Whether that was a cap on a larger card.
        global_batch_size: The job's; None where the study gives tokens.
        versions: Software it was measured with.
        renew: The command that measures it again.
    """

    study: str
    trial: int
    config: Mapping[str, Any]
    exact: bool
    differences: tuple[str, ...] = ()
    stale: tuple[str, ...] | None = None
    throughput: float | None = None
    throughput_unit: str | None = None
    throughput_interval: tuple[float, float] | None = None
    peak_memory_bytes: int | None = None
    device: str = ""
    memory_limit_bytes: int | None = None
    found_under_cap: bool = False
    global_batch_size: int | None = None
    world_size: int = 1
    confirmed_at: str | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    renew: str = ""

    @property
    def training_config(self) -> TrainingConfig:
        """The same as a typed configuration."""
        return TrainingConfig.from_mapping(self.config)

    def __getitem__(self, knob: str) -> Any:
        """A knob's value: ``best["micro_batch_size"]``."""
        return self.config[knob]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A study that may answer, with its fastest confirmed trial that may be used."""

    study: ConfirmedStudy
    fingerprint: Fingerprint
    trial: ConfirmedTrial
    differences: tuple[Difference, ...]

    @property
    def distance(self) -> float:
        """0 for what was asked for."""
        return sum(each.weight for each in self.differences)


def candidates(query: Query, known: Sequence[tuple[ConfirmedStudy, Fingerprint]]) -> list[Candidate]:
    """Those that may answer, nearest first; among equally near ones the newest.

    Args:
        query: What is asked for.
        known: Studies with what their results belong to, newest first.
    """
    found = []
    for study, mark in known:
        apart = differences(query, mark)
        trial = None if apart is None else usable(query, study)
        if apart is not None and trial is not None:
            found.append(Candidate(study=study, fingerprint=mark, trial=trial, differences=apart))
    return sorted(found, key=lambda each: each.distance)


def usable(query: Query, study: ConfirmedStudy) -> ConfirmedTrial | None:
    """The study's fastest confirmed trial that fits the memory asked for and divides the job's batch; None without."""
    limit = query.memory_bytes if query.memory_bytes is not None else study.memory_limit_bytes
    return next((each for each in study.trials if _fits(each, limit) and steps_for(query, each.config)), None)


def _fits(trial: ConfirmedTrial, limit_bytes: int | None) -> bool:
    return limit_bytes is None or (trial.peak_memory_bytes is not None and trial.peak_memory_bytes <= limit_bytes)


def steps_for(query: Query, config: Mapping[str, Any]) -> int | None:
    """Accumulation steps of a configuration in the job that asks; None where its batch does not divide."""
    if query.global_batch_size is None:
        return int(config["accumulation_steps"]) if query.ranks == 1 else None
    micro = int(config["micro_batch_size"])
    try:
        return accumulation_steps(global_batch_size=query.global_batch_size, micro_batch_size=micro, ranks=query.ranks)
    except ValueError:
        return None


def answered(
    query: Query, candidate: Candidate, *, interval: tuple[float, float] | None, throughput: float | None,
    versions: Mapping[str, Any], stale: tuple[str, ...] | None,
) -> BestConfig:  # fmt: skip
    """The answer that a candidate gives.

    Args:
        query: What is asked for.
        candidate: The nearest.
        interval: 95 % interval of the confirmation.
        throughput: The confirmation's.
        versions: Software of the confirmation's runs.
        stale: What has changed since.
    """
    study, trial, mark = candidate.study, candidate.trial, candidate.fingerprint
    here = same_device(query.device, mark.device)
    measured_ranks = query.ranks == 1
    apart = [each.text for each in candidate.differences]
    if not measured_ranks:
        apart.append(f"measured on one rank, not on {query.ranks}: the exchange of gradients costs time and buffers")
    return BestConfig(
        study=study.name,
        trial=trial.number,
        config={**trial.config, "accumulation_steps": steps_for(query, trial.config)},
        exact=not apart,
        differences=tuple(apart),
        stale=stale,
        throughput=throughput if here and measured_ranks else None,
        throughput_unit=trial.throughput_unit,
        throughput_interval=interval if here and measured_ranks else None,
        peak_memory_bytes=trial.peak_memory_bytes,
        device=mark.device,
        memory_limit_bytes=study.memory_limit_bytes,
        found_under_cap=is_capped(mark),
        global_batch_size=query.global_batch_size or mark.batch,
        world_size=query.ranks,
        confirmed_at=None if study.confirmed_at is None else study.confirmed_at.isoformat(),
        versions=dict(versions),
        renew=f"tuner confirm {study.name}",
    )
