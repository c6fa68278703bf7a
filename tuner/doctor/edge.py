"""Where the memory ends for one family of configurations (all knobs but the micro-batch the same). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from tuner.search.front import is_feasible
from tuner.search.memory_model import MemoryModel, learn, observations_of
from tuner.search.memory_order import family_of
from tuner.search.predictions import representative

if TYPE_CHECKING:
    from storage.records import TrialRecord
    from tuner.answer.summary import StudyView

Source = Literal["measured", "interpolated", "predicted"]


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The largest micro-batch of a family that fits the limit, as far as it is known.

    Attributes:
        largest: Micro-batch size; 0 where not even one sample fits.
        source: ``measured``: it fits and the next size of the space was seen not to. ``interpolated``: a straight line
            through the two largest measured peaks (or a size that fits and a larger one that does not). ``predicted``:
            by the study's corrected predictions.
        next_size: The next larger size of the space; None where the largest of the space fits.
        next_peak_bytes: What that one needs; None where not known.
        trials: Numbers of the trials it rests on.
    """

    largest: int
    source: Source
    next_size: int | None
    next_peak_bytes: int | None
    trials: tuple[int, ...]


def family(view: StudyView, config: TrainingConfig) -> list[TrialRecord]:
    """The finished trials that differ from a configuration in the micro-batch alone, smallest first."""
    wanted = _rest(config)
    found = (each for each in view.ended if _rest(TrainingConfig.from_mapping(each.config)) == wanted)
    return sorted(found, key=lambda trial: int(trial.config["micro_batch_size"]))


def sizes_of(view: StudyView, config: TrainingConfig) -> list[int]:
    """The micro-batch sizes of the space, ascending; those tried where the spec searches none."""
    asked = view.spec.search.get("micro_batch_size") or ()
    tried = (int(each.config["micro_batch_size"]) for each in family(view, config))
    return sorted({*map(int, asked), *tried, config.micro_batch_size})


def edge_of(view: StudyView, config: TrainingConfig) -> Edge | None:
    """The edge of a configuration's family; None without a limit, or where nothing tells it."""
    limit = view.study.memory_limit_bytes
    if limit is None:
        return None
    sizes, mine = sizes_of(view, config), family(view, config)
    return _measured(sizes, mine, limit) or _predicted(view, config, sizes, limit) or _line(sizes, mine, limit)


def _measured(sizes: Sequence[int], mine: Sequence[TrialRecord], limit: int) -> Edge | None:
    fitting = {_size(each): each for each in mine if is_feasible(each, limit)}
    over = {_size(each): each for each in mine if _over(each, limit)}
    largest = max(fitting, default=0)
    following = next((size for size in sizes if size > largest), None)
    if following is None and fitting:
        return Edge(
            largest=largest, source="measured", next_size=None, next_peak_bytes=None, trials=(fitting[largest].number,)
        )
    if following in over:
        known = [fitting[largest].number] if fitting else []
        beyond = over[following]
        return Edge(
            largest=largest,
            source="measured",
            next_size=following,
            next_peak_bytes=beyond.peak_memory_bytes if beyond.outcome == "completed" else None,
            trials=(*known, beyond.number),
        )
    return None


def _line(sizes: Sequence[int], mine: Sequence[TrialRecord], limit: int) -> Edge | None:
    """Peaks are affine in the micro-batch above a knee (:mod:`tuner.search.planner.peaks` has the same line)."""
    points = sorted({_size(each): each for each in mine if each.peak_memory_bytes is not None}.items())[-2:]
    if len(points) < 2:
        return None
    (small, low), (large, high) = ((size, each.peak_memory_bytes or 0) for size, each in points)
    slope = (high - low) / (large - small)
    peaks = {size: round(high + slope * (size - large)) for size in sizes}
    return _from_peaks(sizes, peaks, limit, "interpolated", tuple(each.number for _, each in points))


def _predicted(view: StudyView, config: TrainingConfig, sizes: Sequence[int], limit: int) -> Edge | None:
    """By the predictions, corrected by what the study measured."""
    stored: Mapping[str, Mapping[str, Any]] = view.study.facts.get("predictions") or {}
    model = learn(observations_of(view.ended), device_kind=view.history.device_kind)
    peaks = {
        size: peak for size in sizes if (peak := _peak(stored, model, config.with_values(micro_batch_size=size), limit))
    }
    return _from_peaks(sizes, peaks, limit, "predicted", ()) if len(peaks) == len(sizes) else None


def _peak(
    stored: Mapping[str, Mapping[str, Any]], model: MemoryModel, config: TrainingConfig, limit: int
) -> int | None:
    said = stored.get(config_key(config)) or stored.get(config_key(representative(config))) or {}
    raw = said.get("peak_memory_bytes")
    if not isinstance(raw, int):
        return None
    return model.predict(config, raw, limit_bytes=limit, wide=bool(said.get("wide"))).mean_bytes


def _from_peaks(
    sizes: Sequence[int], peaks: Mapping[int, int], limit: int, source: Source, trials: tuple[int, ...]
) -> Edge:
    largest = max((size for size in sizes if peaks[size] <= limit), default=0)
    following = next((size for size in sizes if size > largest), None)
    return Edge(
        largest=largest,
        source=source,
        next_size=following,
        next_peak_bytes=None if following is None else peaks[following],
        trials=trials,
    )


def _over(trial: TrialRecord, limit: int) -> bool:
    needs_more = trial.outcome == "completed" and (trial.peak_memory_bytes or 0) > limit
    return trial.outcome == "device_oom" or needs_more


def _size(trial: TrialRecord) -> int:
    return int(trial.config["micro_batch_size"])


def _rest(config: TrainingConfig) -> tuple[Any, ...]:
    return family_of(config)
