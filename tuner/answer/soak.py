"""What a soak says: whether memory grows, of what kind, what helps, and what goes into the export. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectives.config import TrainingConfig
from objectives.measure.growth import Growth, fit_growth, is_leak
from storage.records import RunRecord

Json = Mapping[str, Any]
NEAR_SHARE = 0.95
"""Above this share of the limit a run sits near it: remedies are tried though nothing grows."""
HELPS_SHARE = 0.02
"""A peak lower by this share is no noise."""
MOST_POINTS = 200
HORIZON_HOURS = 24.0
"""A training job as people start it: growth that fits below the limit for so long needs no restart."""
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The two curves of one soak, fitted.

    Attributes:
        held: Of what the allocator holds (CPU: resident).
        live: Of what the program keeps; None where the device does not say.
        leak: Whether the second is the reason of the first.
    """

    held: Growth
    live: Growth | None

    @property
    def leak(self) -> bool:
        """Whether live memory grows, so that no allocator setting can help."""
        return self.live is not None and is_leak(self.live, self.held)


def curves_of(measurement: Json) -> Curves:
    """Fits the curves of a soak run's measurement.

    Growth goes with the updates, not with the clock: on a machine that is not alone their pace varies.
    """
    series = [each for each in measurement.get("series") or () if each.get("reserved_bytes") is not None]
    times = paced(series)
    live = [each.get("allocated_bytes") for each in series]
    known = bool(live) and None not in live
    return Curves(
        held=fit_growth(times, [each["reserved_bytes"] for each in series]),
        live=fit_growth(times, [float(each or 0) for each in live]) if known else None,
    )


def paced(series: Sequence[Json]) -> list[float]:
    """Seconds of each reading, had all updates taken alike; the clock's where updates were not counted."""
    if not series:
        return []
    updates, seconds = int(series[-1].get("updates") or 0), float(series[-1]["seconds"])
    if not updates:
        return [float(each["seconds"]) for each in series]
    return [each["updates"] * seconds / updates for each in series]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A remedy to try.

    Attributes:
        name: For people.
        knobs: Knob values in place of the trial's.
        answer: What the child is asked beside its time.
        environment: Process-start variables beside the spec's.
    """

    name: str
    knobs: Mapping[str, Any]
    answer: Mapping[str, Any]
    environment: Mapping[str, str]


def needs_remedy(curves: Curves, peak_bytes: int | None, limit_bytes: int | None) -> bool:
    """Whether remedies are worth their time: what is held grows and no leak explains it, or it sits near the limit."""
    near = peak_bytes is not None and limit_bytes is not None and peak_bytes > NEAR_SHARE * limit_bytes
    grows = curves.held.kind in ("grows", "steps") or (curves.held.kind == "saturates" and near)
    return not curves.leak and (grows or near)


def attempts_for(config: TrainingConfig, device_kind: str, *, groups_lengths: bool, every: int) -> list[Attempt]:
    """Remedies in the order they are tried.

    Args:
        config: Of the winner.
        device_kind: ``cpu`` or ``cuda``.
        groups_lengths: Whether length-grouped batches are legal for the study.
        every: Updates between two emptyings of the cache.
    """
    found = []
    if device_kind == "cuda" and config.allocator == "default":
        found += [_attempt(f"allocator {value}", knobs={"allocator": value})
                  for value in ("expandable_segments", "max_split_size")]  # fmt: skip
    if device_kind == "cpu":
        found += [
            _attempt("MALLOC_ARENA_MAX=2", environment={"MALLOC_ARENA_MAX": "2"}),
            _attempt("MALLOC_MMAP_THRESHOLD_=131072", answer={"small_threshold": True}),
        ]
    if groups_lengths and config.batching == "padded":
        found.append(_attempt("batching length-grouped", knobs={"batching": "length-grouped"}))
    found.append(_attempt(f"empty the cache every {every} updates", answer={"empty_cache_every": every}))
    return found


def _attempt(name: str, **given: Mapping[str, Any]) -> Attempt:
    return Attempt(
        name=name,
        knobs=given.get("knobs", {}),
        answer=given.get("answer", {}),
        environment=given.get("environment", {}),
    )


def judged(attempt: Attempt, measurement: Json, plain: Json) -> dict[str, Any]:
    """A remedy's run against the plain one, as :class:`tuner.doctor.evidence.Remedy`."""
    mine, before = curves_of(measurement).held, curves_of(plain).held
    speeds = (measurement.get("units_per_second"), plain.get("units_per_second"))
    slowdown = 1 - speeds[0] / speeds[1] if speeds[0] and speeds[1] else None
    peak = measurement.get("peak_memory_bytes")
    return {
        "name": attempt.name,
        "knobs": dict(attempt.knobs),
        "growth_bytes_per_hour": mine.bytes_per_hour,
        "growth_interval": None if mine.interval is None else list(mine.interval),
        "peak_memory_bytes": peak,
        "slowdown": slowdown,
        "helps": _helps(mine, before) or _lower(measurement, plain),
    }


def _lower(measurement: Json, plain: Json) -> bool:
    """Whether less was held at the most, in a time as long as the remedy's."""
    seconds = float(measurement.get("seconds") or 0)
    mine, before = _most_held(measurement, seconds), _most_held(plain, seconds)
    return mine is not None and before is not None and mine < (1 - HELPS_SHARE) * before


def _most_held(measurement: Json, seconds: float) -> float | None:
    held = [each["reserved_bytes"] for each in measurement.get("series") or () if each["seconds"] <= seconds]
    return max((float(each) for each in held if each is not None), default=None)


def _helps(mine: Growth, before: Growth) -> bool:
    """Whether the growth is surely less than it was."""
    if mine.interval is None:
        return False
    if before.interval is None:
        return mine.kind == "flat"
    return mine.interval[1] < before.interval[0]


def found(plain: Json, remedies: Sequence[Json], limit_bytes: int | None) -> dict[str, Any]:
    """What a soak's run keeps as its measurement: the fields of :class:`tuner.doctor.evidence.Soaked` and more."""
    curves, series = curves_of(plain), list(plain.get("series") or ())
    last = series[-1] if series else {}
    free = [each["largest_free_block_bytes"] for each in series if each.get("largest_free_block_bytes") is not None]
    tensors = plain.get("tensors") or (None, None)
    told = {
        "seconds": plain.get("seconds"),
        "growth": curves.held.kind,
        "growth_bytes_per_hour": curves.held.bytes_per_hour,
        "growth_interval": None if curves.held.interval is None else list(curves.held.interval),
        "growth_reason": curves.held.reason,
        "live_growth": None if curves.live is None else curves.live.kind,
        "live_growth_interval": None if curves.live is None or curves.live.interval is None
        else list(curves.live.interval),
        "leak": curves.leak,
        "leak_source": plain.get("kept") if curves.leak else None,
        "peak_memory_bytes": plain.get("peak_memory_bytes"),
        "allocated_bytes": last.get("allocated_bytes"),
        "reserved_bytes": last.get("reserved_bytes"),
        "largest_free_block_bytes": min(free, default=None),
        "allocation_retries": last.get("retries"),
        "evaluation": bool(plain.get("evaluations")),
        "updates": plain.get("updates"),
        "units_per_second": plain.get("units_per_second"),
        "tensors_at_start": tensors[0],
        "tensors_at_end": tensors[1],
        "remedies": [dict(each) for each in remedies],
        "series": thinned(series),
    }  # fmt: skip
    return told | {"recommendation": recommendation(told, limit_bytes)}


def thinned(series: Sequence[Json], most: int = MOST_POINTS) -> list[Json]:
    """At most so many readings, evenly taken, the last among them."""
    if len(series) <= most:
        return list(series)
    places = sorted({round(place * (len(series) - 1) / (most - 1)) for place in range(most)})
    return [series[place] for place in places]


def recommendation(told: Json, limit_bytes: int | None) -> str | None:
    """What a person should set or do in the real job; None where nothing is needed."""
    if told["leak"]:
        source = f" ({told['leak_source']})" if told["leak_source"] else ""
        return (
            f"live memory grows by {_rate(told['growth_bytes_per_hour'])}{source}: something keeps tensors. Keep "
            f"numbers (.item(), .detach()) instead; until then {_restart(told, limit_bytes)}"
        )
    best = _best_remedy(told["remedies"])
    if best is not None:
        cost = best["slowdown"]
        price = f", {100 * cost:.0f} % slower" if cost is not None and cost > 0.01 else ""
        return f"{best['name']}{price}: with it memory grew less over the soak"
    if told["growth"] == "grows":
        rate = _rate(told["growth_bytes_per_hour"])
        return f"memory grows by {rate} and no remedy helped: {_restart(told, limit_bytes)}"
    if told["growth"] == "steps":
        return "memory grew in steps, whose next nobody can foretell: leave room, and watch it in the first hours"
    if told["growth"] == "cannot_tell":
        return "the soak was too short to tell whether memory grows: `tuner soak STUDY --minutes 30`"
    return None


def _best_remedy(remedies: Sequence[Json]) -> Json | None:
    helping = [each for each in remedies if each["helps"]]
    return min(helping, key=lambda each: each["slowdown"] if each["slowdown"] is not None else 0.0, default=None)


def _rate(bytes_per_hour: float | None) -> str:
    if bytes_per_hour is None:
        return "an unknown rate"
    return f"{bytes_per_hour / GIB:.2f} GiB an hour" if abs(bytes_per_hour) >= GIB / 10 else (
        f"{bytes_per_hour / 2**20:.1f} MiB an hour"
    )  # fmt: skip


def _restart(told: Json, limit_bytes: int | None) -> str:
    """When to restart from a checkpoint: before the interval's upper end reaches the limit."""
    peak, interval = told["peak_memory_bytes"], told["growth_interval"]
    if not interval or interval[1] <= 0 or peak is None or limit_bytes is None:
        return "restart from a checkpoint now and then"
    hours = max(limit_bytes - peak, 0) / interval[1]
    if hours > HORIZON_HOURS:
        return f"the limit is {hours:.0f} hours away"
    return f"restart from a checkpoint every {hours * 0.9:.1f} hours"


def remarks(runs: Sequence[RunRecord], trial_id: int) -> tuple[str, ...]:
    """What the latest soak of a trial has to say in its export; empty without one."""
    mine = [
        run for run in runs
        if run.purpose == "soak" and run.trial_id == trial_id and run.outcome == "completed" and run.measurement
    ]  # fmt: skip
    if not mine:
        return ()
    last = max(mine, key=lambda run: (run.started_at, run.id)).measurement
    seconds = float(last.get("seconds") or 0)
    long = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    said = f"Soaked for {long} with changing lengths: memory {WORDS[str(last.get('growth'))]}."
    advice = last.get("recommendation")
    return (said,) if not advice else (said, f"From the soak: {advice}.")


WORDS = {
    "flat": "stays where it is",
    "saturates": "grew and comes to rest",
    "grows": "grows",
    "steps": "grew in steps",
    "cannot_tell": "could not be judged in that time",
}
"""The kinds of growth in a sentence."""


def document(told: Json, *, study: str, trial: int, run: str) -> dict[str, Any]:
    """What ``tuner soak`` answers: the run's measurement without its series' details."""
    return {"study": study, "trial": trial, "run": run, **told}
