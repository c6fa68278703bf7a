"""Why the winner won: the way from the baseline to it, knob by knob, with what each brought. Pure.

A step between two measured trials that differ in one knob is ``measured``. Where only trials exist that differ in
several, their gain together is measured; a cost model splits it (``modelled``), and without one it is told unsplit
(``together``). The gains multiply to the stated speed-up, because each trial has one level all along the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs import canonical, config_key
from tuner.answer.modelled import study_models
from tuner.answer.shares import shares
from tuner.answer.steps import Place, changed, way
from tuner.search.noise import Comparison, Interval, compare

if TYPE_CHECKING:
    from storage.records import TrialRecord
    from tuner.answer.summary import StudyView

Source = Literal["measured", "together", "modelled"]
Compared = Callable[[Place, Place], Comparison]
Peaks = Callable[[TrainingConfig], int | None]
NORMAL = 1.96
"""Half-width of a 95 % interval of a model's prediction, in its standard deviations."""


class ThroughputModel(Protocol):
    """What splits a joint gain."""

    def predict(self, config: TrainingConfig) -> tuple[float, float]:
        """Mean and standard deviation of the natural logarithm of a configuration's units per second."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change on the way.

    Attributes:
        knobs: From and to, by knob; more than one only where ``source`` is ``together``.
        gain: Throughput after over throughput before.
        low: Lower end of its 95 % interval.
        high: Upper end.
        memory_bytes: What it added to the peak (negative: saved); None where that is not known.
        trials: Numbers of the measured trials at both ends; of a ``modelled`` step, the ends of its joint change.
    """

    knobs: Mapping[str, tuple[KnobValue, KnobValue]]
    gain: float
    low: float
    high: float
    memory_bytes: int | None
    source: Source
    trials: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """As documented in :data:`tuner.documents.STEP`."""
        return {
            "knobs": [{"knob": name, "from": start, "to": end} for name, (start, end) in self.knobs.items()],
            "gain": self.gain,
            "gain_interval": [self.low, self.high],
            "memory_bytes": self.memory_bytes,
            "source": self.source,
            "trials": list(self.trials),
        }


Models = Callable[[Sequence[TrainingConfig]], ThroughputModel | None]
"""Makes the model that predicts these configurations; None where it knows too little."""
MOST_SPLIT = 7
"""Knobs changed together that a model splits at most (it is asked about 2 to that power configurations)."""


def explanation(view: StudyView) -> list[Step] | None:
    """The steps from the study's baseline to its confirmed best; the study's own cost model splits joint changes.

    Returns:
        None without a best, or without a baseline that has a throughput; no step where the baseline is the best.
    """
    places = {each.trial_id: each for each in places_of(view)}
    start = next((each for each in places.values() if each.number == 0), None)
    end = places.get(view.answer.best or -1)
    if start is None or end is None or view.answer.speedup is None:
        return None
    others = [each for each in places.values() if each not in (start, end)]
    return explain(start, end, others, compared=compared_in(view), models=study_models(view), peaks=_peaks(view))


def explain(
    baseline: Place,
    winner: Place,
    others: Sequence[Place],
    *,
    compared: Compared,
    models: Models = lambda _configs: None,
    peaks: Peaks = lambda _config: None,
) -> list[Step]:
    """The steps from one measured trial to another; their gains multiply to the ratio of the two throughputs.

    Args:
        baseline: Where the way starts.
        winner: Where it ends.
        others: Further measured trials.
        compared: How much faster the second place is than the first, with its interval.
        models: Splits joint changes; without a model they stay together.
        peaks: Predicted peak of a configuration, for the memory of a split; None where nothing predicts it.
    """
    if not changed(baseline.config, winner.config):
        return []
    found: list[Step] = []
    for before, after in pairwise(way(baseline, winner, others)):
        whole = _whole(before, after, compared(before, after))
        mixed = _mixed(before, after) if 1 < len(whole.knobs) <= MOST_SPLIT else {}
        model = models(list(dict.fromkeys(mixed.values()))) if mixed else None
        found += [whole] if model is None else _split(whole, mixed, model, peaks)
    return found


def _mixed(before: Place, after: Place) -> dict[frozenset[str], TrainingConfig]:
    """The configuration for every set of changed knobs; the rows of an optimizer step stay."""
    names, end = list(changed(before.config, after.config)), after.config.knobs()
    rows = before.config.micro_batch_size * before.config.accumulation_steps
    subsets = (frozenset(each) for size in range(len(names) + 1) for each in combinations(names, size))
    return {each: _with(before.config, {name: end[name] for name in each}, rows) for each in subsets}


def _whole(before: Place, after: Place, seen: Comparison) -> Step:
    knobs = changed(before.config, after.config)
    gain = math.exp(after.log_throughput - before.log_throughput)
    return Step(
        knobs=knobs,
        gain=gain,
        low=seen.low * gain / seen.ratio,
        high=seen.high * gain / seen.ratio,
        memory_bytes=_less(after.peak_memory_bytes, before.peak_memory_bytes),
        source="measured" if len(knobs) == 1 else "together",
        trials=(before.number, after.number),
    )


def _split(
    whole: Step, mixed: Mapping[frozenset[str], TrainingConfig], model: ThroughputModel, peaks: Peaks
) -> list[Step]:
    """The joint step as one modelled step a knob, in the order of their gains."""
    names = list(whole.knobs)
    gains = shares(names, lambda changed: model.predict(mixed[changed])[0], math.log(whole.gain))
    sizes = _memory_shares(names, lambda changed: peaks(mixed[changed]), whole.memory_bytes)
    spreads = {each: model.predict(mixed[each])[1] for each in (frozenset[str](), *(frozenset({n}) for n in names))}
    halves = {name: NORMAL * math.hypot(spreads[frozenset()], spreads[frozenset({name})]) for name in names}
    return [
        Step(
            knobs={name: whole.knobs[name]},
            gain=math.exp(gain),
            low=math.exp(gain - halves[name]),
            high=math.exp(gain + halves[name]),
            memory_bytes=sizes.get(name),
            source="modelled",
            trials=whole.trials,
        )
        for name, gain in sorted(gains.items(), key=lambda each: -each[1])
    ]


def _memory_shares(
    names: Sequence[str], peak: Callable[[frozenset[str]], int | None], total: int | None
) -> Mapping[str, int]:
    """Bytes by knob, adding up to the measured difference; empty where a peak on the way is not predicted."""
    if total is None:
        return {}
    try:
        found = shares(names, lambda names: _known(peak(names)), float(total))
    except LookupError:
        return {}
    return {name: round(part) for name, part in found.items()}


def _known(peak: int | None) -> float:
    if peak is None:
        raise LookupError
    return float(peak)


def _with(config: TrainingConfig, values: Mapping[str, Any], rows: int) -> TrainingConfig:
    """The canonical configuration with some knobs changed; the rows of an optimizer step stay."""
    made = config.with_values(**values)
    return canonical(made.with_values(accumulation_steps=max(1, round(rows / made.micro_batch_size))))


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def places_of(view: StudyView) -> list[Place]:
    """The completed trials that were measured on an undisturbed machine, at the level of the study's answer."""
    known = {each.id: view.interval(each) for each in view.ended if each.outcome == "completed"}
    clean = {key: interval for key, interval in known.items() if interval is not None and not interval.disturbed}
    return [
        Place(
            trial_id=trial.id,
            number=trial.number,
            config=canonical(TrainingConfig.from_mapping(trial.config)),
            log_throughput=math.log(clean[trial.id].mean),
            standard_error=clean[trial.id].standard_error,
            peak_memory_bytes=trial.peak_memory_bytes,
        )
        for trial in view.ended
        if trial.id in clean
    ]


def compared_in(view: StudyView) -> Compared:
    """Compares measured trials: paired by round where the confirmation ran both, else from the trials' intervals."""
    trials = {each.id: each for each in view.ended}
    fit = view.answer.fit

    def seen(before: Place, after: Place) -> Comparison:
        if fit is not None and {before.trial_id, after.trial_id} <= fit.levels.keys():
            return fit.against(after.trial_id, before.trial_id)
        return compare(_interval(view, trials[after.trial_id]), _interval(view, trials[before.trial_id]))

    return seen


def _interval(view: StudyView, trial: TrialRecord) -> Interval:
    known = view.interval(trial)
    assert known is not None, "a place has an interval"
    return known


def _peaks(view: StudyView) -> Peaks:
    predictions: Mapping[str, Mapping[str, Any]] = view.study.facts.get("predictions") or {}

    def peak(config: TrainingConfig) -> int | None:
        said = predictions.get(config_key(config), {}).get("peak_memory_bytes")
        return said if isinstance(said, int) else None

    return peak
