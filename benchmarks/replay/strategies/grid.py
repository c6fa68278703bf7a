"""NeMo's plain grid: every configuration once, no adaptation, the fastest wins.

Source: NVIDIA NeMo's Auto Configurator, as told in PEERS.md, B6: the full grid, one job each, fastest mean step time
wins. The order is the table's rows in the seed's order.
"""

from __future__ import annotations

from benchmarks.replay.oracle import Replay


def search(replay: Replay) -> None:
    """Runs every row."""
    for row in replay.table.rows:
        if row.key != replay.baseline.key:
            replay.ask(row)
    replay.stop(replay.best_seen())
