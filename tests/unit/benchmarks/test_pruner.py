"""The pruner's benchmark counts a stop as wrong exactly when the rival does not truly dominate."""

from __future__ import annotations

import pytest

from benchmarks.pruner import lines, measure, rate, together
from benchmarks.replay.grid import Table
from benchmarks.replay.row import Row, Run


def row(name: int, speed: float, peak: int, steps: int = 40, first_run: float | None = None) -> Row:
    """Steps of 8 units each; ``first_run``: what the run with the recorded steps read."""
    read = first_run or speed
    return Row(
        config={"micro_batch_size": name}, outcome="completed", throughput=speed, peak_bytes=peak, seconds=10.0,
        step_seconds=(8.0 / read,) * steps, runs=(Run(throughput=read), Run(throughput=speed)),
    )  # fmt: skip


def table(*rows: Row) -> Table:
    return Table(name="t", grid="t", limit_bytes=None, device="AMD EPYC (2 cores)", rows=rows)


def test_a_dominated_run_is_stopped_and_its_time_counted() -> None:
    found = measure(table(row(1, 100.0, 10), row(2, 20.0, 20), row(3, 300.0, 30)))
    assert found["front"] == 2
    assert found["wrong_stops"] == found["front_stops"] == 0
    assert found["stops"] == 2  # beside either run of the one rival that needs no more memory
    assert found["runs_stopped_beside_the_front"] == 1
    assert 0 < found["seconds_saved"] < 40 * 8.0 / 20.0


def test_a_front_member_whose_first_run_read_far_too_low_is_saved_by_the_spread_it_shows() -> None:
    found = measure(table(row(1, 100.0, 10), row(2, 110.0, 20, first_run=10.0)))
    assert found["front"] == 2
    assert found["between_run_spread"] > 0.5
    assert found["wrong_stops"] == found["front_stops"] == 0


def test_rates_have_exact_intervals_and_none_without_tries() -> None:
    assert rate(0, 0)["rate"] is None
    assert rate(0, 100)["interval"][1] == pytest.approx(0.0362, abs=1e-4)
    assert rate(100, 100)["interval"][1] == 1.0


def test_all_tables_together_are_said_in_lines() -> None:
    found = [measure(table(row(1, 100.0, 10), row(2, 20.0, 20)))]
    said = list(lines({"tables": found, **together(found)}))
    assert len(said) == 3
    assert "device time saved" in said[-1]
