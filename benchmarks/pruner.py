"""Is the pruner honest, and what does it save? Its rule replayed on recorded step series.

    python -m benchmarks.pruner --table FILE [--table FILE ...] [--json]

A pair is a recorded run beside a rival that needs no more memory and has been measured once: every run of every
feasible configuration serves. Truth is a table's mean over all its runs. A stop is wrong when the rival does not truly
dominate; it is counted twice, over all such pairs and over those whose run is of a true front member. Pairs share runs,
so the intervals (Clopper and Pearson) are too narrow; the number of distinct runs stands beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import Any

from benchmarks.bench import print_json, say
from benchmarks.replay.grid import Table
from benchmarks.replay.row import Row
from benchmarks.replay.table import read
from tuner.search.noise import Spread, interval_of, pooled_spread
from tuner.search.pruning import ERROR_RATE, dominated, is_look
from tuner.search.windows import Window

FEWEST_STEPS = 3
"""Shorter series have nothing to look at."""
ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One run beside one rival.

    Attributes:
        run: Of which row.
        dominates: Whether the rival truly is at least as fast (it needs no more memory in every pair).
        on_front: Whether the run's configuration is a true front member.
        stopped: Whether the rule stopped the run.
    """

    run: int
    dominates: bool
    on_front: bool
    stopped: bool


def windows_of(table: Table) -> dict[int, list[Window]]:
    """Every measured run of every feasible row, by row number."""
    found: dict[int, list[Window]] = {}
    for number, row in enumerate(table.feasible):
        speeds = [run.throughput for run in row.runs] or [row.throughput or 0.0]
        own = (row.standard_error or 0.0) / (row.throughput or 1.0)
        found[number] = [
            Window(run_id=f"{number}-{at}", trial_id=number, log_throughput=log(speed), relative_error=own, at=ANY_TIME)
            for at, speed in enumerate(speeds)
        ]
    return found


class Replay:
    """The rule on one table."""

    def __init__(self, table: Table) -> None:
        self.rows = table.feasible
        self.kind = table.device_kind
        self.windows = windows_of(table)
        self.spread: Spread = pooled_spread([each for mine in self.windows.values() for each in mine], self.kind)
        self.front = frozenset(number for number in range(len(self.rows)) if self._is_on_front(number))

    def _is_on_front(self, number: int) -> bool:
        mine = self.rows[number]
        others = (row for index, row in enumerate(self.rows) if index != number)
        return not any(_dominates(other, mine) for other in others)

    def runs(self) -> list[int]:
        """Rows with a recorded step series."""
        return [number for number, row in enumerate(self.rows) if len(row.step_seconds) >= FEWEST_STEPS]

    def pairs(self) -> Iterator[Pair]:
        """Every run beside every run of every rival that needs no more memory."""
        for number in self.runs():
            mine = self.rows[number]
            for index, row in enumerate(self.rows):
                if index == number or (row.peak_bytes or 0) > (mine.peak_bytes or 0):
                    continue
                for window in self.windows[index]:
                    low = interval_of([window], self.spread).low
                    yield Pair(
                        run=number,
                        dominates=(row.throughput or 0) >= (mine.throughput or 0),
                        on_front=number in self.front,
                        stopped=self.stop(number, [(low, row.peak_bytes or 0)]) is not None,
                    )

    def stop(self, number: int, front: Sequence[tuple[float, int]]) -> int | None:
        """After how many steps the run of this row is stopped; None when never."""
        row = self.rows[number]
        whole = sum(row.step_seconds)
        own = row.runs[0].throughput if row.runs else row.throughput or 0.0  # the series is the first run's
        units = own * whole / len(row.step_seconds)
        for count in range(1, len(row.step_seconds)):
            steps = row.step_seconds[:count]
            if is_look(steps, whole) and self._asked(front, steps, units, row, whole) is not None:
                return count
        return None

    def _asked(
        self, front: Sequence[tuple[float, int]], steps: Sequence[float], units: float, row: Row, whole: float
    ) -> float | None:
        return dominated(
            front, steps, units, row.peak_bytes or 0, window_seconds=whole, spread=self.spread, device_kind=self.kind
        )

    def saved(self) -> tuple[float, float, int]:
        """Seconds saved and spent in all over one run of each row beside the whole front, and how many were stopped."""
        points = [(interval_of([self.windows[index][0]], self.spread).low, index) for index in self.front]
        saved, stopped = 0.0, 0
        for number in self.runs():
            front = [(low, self.rows[index].peak_bytes or 0) for low, index in points if index != number]
            if (count := self.stop(number, front)) is not None:
                saved += sum(self.rows[number].step_seconds[count:])
                stopped += 1
        return saved, sum(max(row.seconds, sum(row.step_seconds)) for row in self.rows), stopped


def _dominates(other: Row, mine: Row) -> bool:
    """At least as fast with no more memory, and better in one of them."""
    speed, peak = (other.throughput or 0, mine.throughput or 0), (other.peak_bytes or 0, mine.peak_bytes or 0)
    return speed[0] >= speed[1] and peak[0] <= peak[1] and (speed[0] > speed[1] or peak[0] < peak[1])


def rate(hits: int, tries: int) -> dict[str, Any]:
    """A share with its 95 % Clopper-Pearson interval; null without tries."""
    from scipy.special import betaincinv

    if not tries:
        return {"tries": 0, "rate": None, "interval": None}
    low = float(betaincinv(hits, tries - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, tries - hits, 0.975)) if hits < tries else 1.0
    return {"tries": tries, "rate": hits / tries, "interval": [low, high]}


def measure(table: Table) -> dict[str, Any]:
    """One table's numbers."""
    replay = Replay(table)
    pairs = list(replay.pairs())
    not_dominated = [pair for pair in pairs if not pair.dominates]
    of_front = [pair for pair in pairs if pair.on_front]
    saved, whole, stopped = replay.saved()
    return {
        "table": table.name,
        "runs": len(replay.runs()),
        "front": len(replay.front),
        "between_run_spread": replay.spread.relative,
        "pairs": len(pairs),
        "stops": sum(pair.stopped for pair in pairs),
        "wrong_stops": sum(pair.stopped for pair in not_dominated),
        "wrong_stop_rate": rate(sum(pair.stopped for pair in not_dominated), len(not_dominated)),
        "front_stops": sum(pair.stopped for pair in of_front),
        "front_stop_rate": rate(sum(pair.stopped for pair in of_front), len(of_front)),
        "runs_stopped_beside_the_front": stopped,
        "seconds_saved": saved,
        "seconds": whole,
    }


def together(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All tables as one."""
    tries = {name: sum(each[name]["tries"] for each in found) for name in ("wrong_stop_rate", "front_stop_rate")}
    seconds = sum(each["seconds"] for each in found)
    return {
        "stated_rate": ERROR_RATE,
        "pairs": sum(each["pairs"] for each in found),
        "stops": sum(each["stops"] for each in found),
        "wrong_stop_rate": rate(sum(each["wrong_stops"] for each in found), tries["wrong_stop_rate"]),
        "front_stop_rate": rate(sum(each["front_stops"] for each in found), tries["front_stop_rate"]),
        "seconds_saved_share": sum(each["seconds_saved"] for each in found) / seconds if seconds else None,
    }


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The document for people."""
    for each in (*document["tables"], document):
        name = each.get("table", "all tables")
        front = each["front_stop_rate"]
        wrong = "no run of a front member" if front["rate"] is None else f"{front['rate']:.2%} of front members stopped"
        yield f"{name}: {each['pairs']} pairs, {each['stops']} stops, {wrong} (interval {front['interval']})"
    share = document["seconds_saved_share"]
    yield f"stated rate {document['stated_rate']:.0%}; device time saved: {0.0 if share is None else share:.1%}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the arguments, prints the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruner", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--table", action="append", required=True, type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    asked = parser.parse_args(arguments)
    found = [measure(read(path)) for path in asked.table]
    document = {"tables": found, **together(found)}
    if asked.json:
        print_json(document)
    else:
        for line in lines(document):
            say(line)


if __name__ == "__main__":
    main()
