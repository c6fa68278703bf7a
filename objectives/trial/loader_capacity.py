"""The body of a ``loader_capacity`` run: what the data pipeline delivers by itself, setting by setting. Trains nothing.

Samples are loaded, collated and handed over exactly as in training; the consumer only counts. On a CPU the loader's
workers share the cores with the training: there a second thread multiplies matrices meanwhile, with as many threads as
training would use. What is left is an upper bound of the throughput all the same: training waits for other things, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.contract import load_objective
from objectives.measure.series import error_of_mean
from objectives.trial.batches import make_loader
from objectives.trial.failure import shortened
from objectives.trial.setup import Setup

if TYPE_CHECKING:
    from objectives.contract import Batch, Objective
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest

PIPELINE_KNOBS = ("loader_workers", "prefetch_factor", "pin_memory", "tokens", "batching")
"""Knobs that are applied; no other changes what the pipeline does."""
DEFAULT_SECONDS = 1.0
"""Measured per setting, after the batches that were ready before."""
MOST_START_SECONDS = 5.0
"""A pipeline that has not delivered its first batches by then is measured by these."""
MATRIX = 256


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What one setting delivers.

    Attributes:
        units_per_second: Real tokens or samples per second.
        relative_standard_error: From inside the measurement; None where it has too few batches to tell.
        batches: Measured.
        seconds: Of the measurement.
    """

    units_per_second: float
    relative_standard_error: float | None
    batches: int
    seconds: float


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"settings": [{knob: value}], "seconds": s}``; ``request.config`` gives the rest.

    Sends one ``answer`` a setting: ``settings`` as asked, then ``units_per_second``, ``relative_standard_error``,
    ``batches`` and ``seconds``, or a ``reason`` why it cannot be said. Asked to stop, it leaves the rest out.
    """
    channel.phase("import")
    torch.set_num_threads(request.threads)
    objective = load_objective(request.objective)
    channel.phase("load")
    seconds = float(request.answer.get("seconds", DEFAULT_SECONDS))
    for settings in request.answer["settings"]:
        channel.send("answer", settings=dict(settings), **answer_for(request, objective, settings, seconds))
        if channel.stop_requested:
            break
    channel.phase("done")


def answer_for(
    request: RunRequest, objective: Objective, settings: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """One setting's answer; whatever its pipeline raises is the reason."""
    try:
        setup = pipeline(request, objective, settings)
        with training_beside(request) if setup.config.loader_workers else no_training():
            found = measure(setup, objective.unit, seconds)
    except Exception as error:  # noqa: BLE001 - a user's data may raise anything; then nothing is known of the setting
        return {"reason": shortened(f"{type(error).__name__}: {error}")[:300]}
    return {
        "units_per_second": found.units_per_second,
        "relative_standard_error": found.relative_standard_error,
        "batches": found.batches,
        "seconds": found.seconds,
    }


def pipeline(request: RunRequest, objective: Objective, settings: Mapping[str, Any]) -> Setup:
    """A setup whose loader's knobs are applied. The model is never run, so it has no memory where it can do without."""
    config = TrainingConfig.from_mapping({**request.config, **settings})
    setup = Setup(device=torch.device(request.device), workload=_build(objective, request), config=config)
    for item in knobs.KNOBS:
        if item.name in PIPELINE_KNOBS and item.apply is not None:
            item.apply(setup, getattr(config, item.name))
    return setup


def _build(objective: Objective, request: RunRequest) -> Any:
    try:
        return objective.build(torch.device("meta"), request.seed)
    except Exception:  # noqa: BLE001 - a user's own model may not exist without values
        return objective.build(torch.device("cpu"), request.seed)


def measure(setup: Setup, unit: str, seconds: float) -> Capacity:
    """Takes batches for so long. Those that stood ready before it began are taken first and not counted.

    Raises:
        ValueError: The batches do not say how many units they have.
    """
    loader = make_loader(setup, steps_in_block=setup.config.accumulation_steps)
    indices: Iterator[Sequence[int]] = iter(loader.batch_sampler)  # type: ignore[arg-type]
    lengths = setup.workload.lengths() if hasattr(setup.workload, "lengths") else None
    batches = iter(loader)
    _take_ready(batches, indices, 1 + setup.config.loader_workers * (loader.prefetch_factor or 0))
    marks, units = [time.perf_counter()], []
    while marks[-1] - marks[0] < seconds:
        batch = next(batches)
        marks.append(time.perf_counter())
        units.append(units_of(batch, next(indices), unit, lengths))
    return summary(marks, units)


def _take_ready(batches: Iterator[Any], indices: Iterator[Any], ready: int) -> None:
    begun = time.perf_counter()
    for _ in islice(zip(batches, indices, strict=False), ready):
        if time.perf_counter() - begun > MOST_START_SECONDS:
            return


def summary(marks: Sequence[float], units: Sequence[float]) -> Capacity:
    """The rate between the marks, and its error."""
    seconds = marks[-1] - marks[0]
    waits = [after - before for before, after in pairwise(marks)]
    mean_units, mean_wait = sum(units) / len(units), seconds / len(waits)
    parts = [u / mean_units - wait / mean_wait for u, wait in zip(units, waits, strict=True)]
    known = error_of_mean(parts)
    return Capacity(
        units_per_second=sum(units) / seconds,
        relative_standard_error=None if known is None else known[0],
        batches=len(units),
        seconds=seconds,
    )


def units_of(batch: Batch, indices: Sequence[int], unit: str, lengths: Any) -> float:
    """Real units of a batch, without running a model: as it says itself, else by its samples.

    Raises:
        ValueError: Neither says it.
    """
    if isinstance(batch, Mapping) and isinstance(batch.get("units"), int):
        return float(batch["units"])
    if unit == "samples":
        return float(len(indices))
    if lengths is None:
        raise ValueError("the workload's batches have no `units` and it has no lengths(): its tokens are not countable")
    return float(sum(int(lengths[index]) for index in indices))


@contextmanager
def no_training() -> Iterator[None]:
    """Nothing beside the loader."""
    yield


@contextmanager
def training_beside(request: RunRequest) -> Iterator[None]:
    """On a CPU, matrices are multiplied meanwhile by as many threads as would train; a GPU leaves the cores alone."""
    if request.device != "cpu":
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_multiply, args=(over,), name="training-beside", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _multiply(over: threading.Event) -> None:
    left, right = torch.ones(MATRIX, MATRIX), torch.ones(MATRIX, MATRIX)
    while not over.is_set():
        torch.mm(left, right)
