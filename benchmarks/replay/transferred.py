"""One table as the earlier study of another: what a study of it would have left in the store."""

from __future__ import annotations

from benchmarks.replay.grid import Table
from benchmarks.replay.row import MEASURED, Row
from tuner.search.planner.observation import Earlier, Seen

TRIALS = 24
"""Completed trials that such a study has left: about what a search makes."""
SIMILARITY = 0.9
"""Of a study of another size or length of the same family on the same device, by tuner.search.transfer."""


def as_earlier(table: Table, *, trials: int = TRIALS, similarity: float = SIMILARITY) -> Earlier:
    """The table's rows as an earlier study's results.

    Args:
        table: The earlier one; only the knobs' effects carry over, so another unit or level does no harm.
        trials: Completed rows taken, evenly from the fastest to the slowest, and the misfits' share beside them.
        similarity: How far its effects carry over to the table that is searched.
    """
    measured = sorted(
        (row for row in table.rows if row.outcome in MEASURED and row.throughput),
        key=lambda row: -(row.throughput or 0),
    )
    count = min(trials, len(measured))
    places = sorted({round(place * (len(measured) - 1) / max(count - 1, 1)) for place in range(count)})
    return Earlier(
        name=table.name, seen=tuple(_seen(measured[place], table) for place in places), similarity=similarity
    )


def _seen(row: Row, table: Table) -> Seen:
    fits = table.fits(row)
    return Seen(
        config=dict(row.config),
        outcome=row.outcome if fits else "device_oom",
        throughput=row.throughput if fits else None,
        peak_memory_bytes=row.peak_bytes,
        seconds=row.seconds,
        setup_seconds=row.setup_seconds,
        compile_seconds=row.compile_seconds,
        data_stall_share=row.data_stall_share,
        runs=max(1, len(row.runs)),
    )
