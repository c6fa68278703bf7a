"""Leaves out what certainly does not fit by the predicted peak, corrected by the runs so far, as Tightfit does.

Source: our own ``tuner.search.memory_model``; for knobs that Tightfit does not know a predicted peak 10 % over the
limit counts as certain. Without predictions in the table it leaves out nothing.
"""

from __future__ import annotations

from benchmarks.replay.oracle import Replay
from benchmarks.replay.product_space import knows
from benchmarks.replay.row import Row
from objectives.config import TrainingConfig
from tuner.search.memory_model import Observation, Points, learn

CLEARLY_OVER = 1.1
"""A predicted peak so many times the limit is a misfit where the memory model does not know the knobs."""


class MemoryFilter:
    """Remembers the misfits of one search until the next run."""

    def __init__(self) -> None:
        self._replay: Replay | None = None
        self._asks = -1
        self._misfits: frozenset[str] = frozenset()

    def __call__(self, replay: Replay, row: Row) -> bool:
        """Whether the row certainly does not fit."""
        if replay is not self._replay or len(replay.asks) != self._asks:
            self._replay, self._asks = replay, len(replay.asks)
            self._misfits = predicted_misfits(replay)
        return row.key in self._misfits


def predicted_misfits(replay: Replay) -> frozenset[str]:
    """Keys of the rows that certainly do not fit."""
    rows = [row for row in replay.table.rows if row.predicted_bytes is not None]
    if not rows or replay.limit_bytes is None:
        return frozenset()
    if not knows(replay.table):
        return frozenset(row.key for row in rows if (row.predicted_bytes or 0) > CLEARLY_OVER * replay.limit_bytes)
    model = learn(_observations(replay), device_kind=replay.table.device_kind)
    points = Points.of([_config(row) for row in rows], [row.predicted_bytes or 0 for row in rows])
    bars = model.predict_many(points, replay.limit_bytes)
    return frozenset(row.key for row, misfit in zip(rows, bars.certain_misfit, strict=True) if misfit)


def _observations(replay: Replay) -> list[Observation]:
    return [
        Observation(config=_config(seen.row), predicted_bytes=seen.row.predicted_bytes, measured_bytes=seen.peak_bytes)
        for seen in replay.asks
        if seen.peak_bytes is not None and seen.row.predicted_bytes is not None
    ]


def _config(row: Row) -> TrainingConfig:
    return TrainingConfig.from_mapping(dict(row.config))
