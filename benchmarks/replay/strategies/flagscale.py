"""FlagScale's auto tuner: the whole product in one order, skipping what its rules of dominance rule out.

Source: PEERS.md, B7, and FlagScale's ``auto_tuner/search/searcher.py`` (the order of the product: other knobs, then
the micro-batch, then recomputation innermost), ``prune/history.py`` (``prune_by_micro_batch_size``,
``prune_by_recompute``, ``prune_by_mbs_recompute``) and ``utils.py`` (``beside``: equal but for the named keys). Order
``memory`` tries the smallest micro-batch and recomputation first, order ``performance`` the largest micro-batch and
none first. A skipped entry inherits the result that ruled it out, and rules out others. Its rules for parallelism have
no knob here; its analytic memory model is optional and off. Activation checkpointing is its recomputation:
``selective`` and ``full`` count as recomputing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.replay.grid import MICRO_BATCH
from benchmarks.replay.oracle import Replay
from benchmarks.replay.row import Row, key_of
from benchmarks.replay.strategies.ladder import size_of

RECOMPUTE = "activation_checkpointing"
NONE_FIRST = {"none": 0, "selective": 1, "full": 2}
Order = Literal["memory", "performance"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of its history, run or skipped.

    Attributes:
        others: Its other knobs.
        size: Its micro-batch.
        recompute: How much it recomputes: 0 none, 1 selective, 2 full.
        ran: Whether it (or what it inherits from) has a performance.
        oom: Whether it (or what it inherits from) ran out of memory.
    """

    others: str
    size: int
    recompute: int
    ran: bool = False
    oom: bool = False


@dataclass(frozen=True, kw_only=True)
class FlagScale:
    """The tuner in one of its orders."""

    order: Order

    def __call__(self, replay: Replay) -> None:
        """Walks the product."""
        history: list[Entry] = []
        for row in self._ordered(replay):
            entry = _entry(row)
            inherited = ruled_out(entry, history)
            if inherited is None:
                seen = replay.first if row.key == replay.baseline.key else replay.ask(row)
                inherited = (seen.completed, seen.outcome == "device_oom")
            ran, oom = inherited
            history.append(Entry(others=entry.others, size=entry.size, recompute=entry.recompute, ran=ran, oom=oom))
        replay.stop(replay.best_seen())

    def _ordered(self, replay: Replay) -> Iterator[Row]:
        """Other knobs as the table has them, then the micro-batch, then recomputation."""
        sign = 1 if self.order == "memory" else -1
        places: dict[str, int] = {}
        for row in replay.table.rows:
            places.setdefault(_entry(row).others, len(places))

        def position(row: Row) -> tuple[int, int, int]:
            entry = _entry(row)
            return places[entry.others], sign * entry.size, -sign * entry.recompute

        return iter(sorted(replay.table.rows, key=position))


def ruled_out(entry: Entry, history: list[Entry]) -> tuple[bool, bool] | None:
    """(ran, out of memory) as inherited from the entry that rules this one out; None when it is to be run."""
    for past in (each for each in history if each.others == entry.others):
        if _slower(entry, past):
            return past.ran, past.oom
        if past.oom and _larger(entry, past):
            return False, True
    return None


def _slower(entry: Entry, past: Entry) -> bool:
    """A larger micro-batch already ran, or the same without recomputation."""
    if not past.ran:
        return False
    by_size = past.recompute == entry.recompute and past.size > entry.size
    by_recompute = past.size == entry.size and past.recompute == 0 and entry.recompute > 0
    return by_size or by_recompute


def _larger(entry: Entry, past: Entry) -> bool:
    """Needs more than what ran out: a larger micro-batch, none where it recomputed, or both."""
    if past.size == entry.size:
        return past.recompute > 0 and entry.recompute == 0
    return past.size < entry.size and (
        past.recompute == entry.recompute or (past.recompute > 0 and not entry.recompute)
    )


def _entry(row: Row) -> Entry:
    others = {name: value for name, value in row.config.items() if name not in (MICRO_BATCH, RECOMPUTE)}
    return Entry(others=key_of(others), size=size_of(row), recompute=NONE_FIRST.get(_recompute(row), 0))


def _recompute(row: Row) -> Any:
    return row.config.get(RECOMPUTE, "none")
