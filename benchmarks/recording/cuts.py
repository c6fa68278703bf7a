"""A complete table as it would be on a device with less memory: where to cut, what to run again, the cut rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

MEBIBYTE = 2**20
SHARES = (0.18, 0.28, 0.42)
"""Shares of misfits aimed at by measured peaks, one cap each; on a CPU some more do not fit, see below."""
FEWEST_MISFITS, MOST_MISFITS = 0.15, 0.60
SLACK = 0.06
"""A cap may miss its share by so much to stand in a wide gap between two peaks."""
EACH_SIDE = 4
"""Real runs under a cap: so many in a row that fit and so many in a row that do not, at least."""
DOUBTFUL_BYTES = 16 * MEBIBYTE
"""Everything so near below a cap is really run: on a CPU the cap counts reserved memory, the peak what was touched, and
16-bit precisions reserve up to 10 MiB more."""

Row = dict[str, Any]


def choose_caps(peaks: Sequence[int], *, must_fit: int) -> tuple[int, ...]:
    """Caps in bytes, whole MiB, ascending, each in the widest gap between two peaks near its share of misfits.

    Args:
        peaks: Peak memory of every configuration that completed.
        must_fit: The baseline's: it fits under every cap.
    """
    found = {cap for share in SHARES if (cap := _cap_near(sorted(peaks), share, must_fit)) is not None}
    return tuple(sorted(found))


def _cap_near(peaks: Sequence[int], share: float, must_fit: int) -> int | None:
    count = len(peaks)
    low, high = max(share - SLACK, FEWEST_MISFITS), min(share + SLACK, MOST_MISFITS)
    places = [place for place in range(1, count) if low <= (count - place) / count <= high]
    wide = [
        place for place in places if peaks[place - 1] >= must_fit and peaks[place] - peaks[place - 1] > 2 * MEBIBYTE
    ]
    if not wide:
        return None
    place = max(wide, key=lambda each: peaks[each] / peaks[each - 1])
    return (peaks[place - 1] + peaks[place]) // 2 // MEBIBYTE * MEBIBYTE


def next_at_edge(peaks: Mapping[str, int], cap: int, outcomes: Mapping[str, str]) -> str | None:
    """The configuration nearest to the cap that still has to be run under it; None when the edge is known.

    Both sides go on outwards until enough in a row have really not fitted, and have really fitted.

    Args:
        peaks: Peak memory without a cap, by configuration.
        cap: In bytes.
        outcomes: Of the real runs under this cap so far.
    """
    ordered = sorted(peaks, key=lambda key: peaks[key])
    above = [key for key in ordered if peaks[key] > cap]
    below = [key for key in reversed(ordered) if peaks[key] <= cap]
    doubtful = sum(peaks[key] > cap - DOUBTFUL_BYTES for key in below)
    return _next_outwards(above, outcomes, "device_oom") or _next_outwards(below, outcomes, "completed", doubtful)


def _next_outwards(keys: Sequence[str], outcomes: Mapping[str, str], wanted: str, at_least: int = 0) -> str | None:
    in_a_row = 0
    for place, key in enumerate(keys):
        if in_a_row >= EACH_SIDE and place >= at_least:
            return None
        if key not in outcomes:
            return key
        in_a_row = in_a_row + 1 if outcomes[key] == wanted else 0
    return None


def cut_rows(rows: Mapping[str, Row], cap: int, real: Mapping[str, Row]) -> list[Row]:
    """The rows under a cap: real ones where there was a run, else the uncut ones, or misfits at their median time.

    A real run that fits keeps the uncut grid's throughput, which rests on more runs: the cap is off while the window is
    timed. Its peak and seconds are its own.

    Args:
        rows: The uncut grid's, by configuration.
        cap: In bytes.
        real: Rows of the real runs under this cap, by configuration.
    """
    failed = [row["seconds"] for row in real.values() if row["outcome"] == "device_oom"]
    cost = median(failed) if failed else None
    return [_cut_row(row, cap, real.get(key), cost) for key, row in rows.items()]


def _cut_row(row: Row, cap: int, real: Row | None, cost: float | None) -> Row:
    if real is not None:
        return _real_row(row, real)
    peak = row["peak_memory_bytes"]
    if peak is None or peak <= cap:
        return {**row, "outcome_source": "cut"}
    kept: Row = {name: row[name] for name in ("config", "predicted_peak_memory_bytes") if name in row}
    return {
        **kept,
        "outcome": "device_oom",
        "throughput": None,
        "peak_memory_bytes": None,
        "seconds": row["seconds"] if cost is None else cost,
        "outcome_source": "cut",
    }


def _real_row(row: Row, real: Row) -> Row:
    if real["outcome"] != "completed" or row["throughput"] is None:
        return {**real, "outcome_source": "measured"}
    own = {name: real[name] for name in ("peak_memory_bytes", "seconds")}
    return {**row, **own, "outcome_source": "measured"}
