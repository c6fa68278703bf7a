"""A table of measured configurations: its best, its noise, what counts as found. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median

from benchmarks.replay.row import MEASURED, Knobs, Row, key_of

ACCUMULATION = "accumulation_steps"
MICRO_BATCH = "micro_batch_size"
_GPU = re.compile(r"nvidia|cuda|gpu|tesla|geforce|rtx|\b(gh|gb|[abhltv])\d{2,3}s?\b")
WANTED = 0.01
"""A search has found the best when it has run something within 1 % of it (or within the noise, where that is more)."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One recorded grid under one memory limit.

    Attributes:
        name: Of the table.
        grid: Shared by the cuts of one grid.
        limit_bytes: What a peak may be at most; None for no limit.
        unit: Of the throughputs.
        device: What it was recorded on.
        global_batch_size: Samples per optimizer step; None when it is given in tokens or absent.
        global_batch_tokens: Tokens per optimizer step; None when it is given in samples or absent.
        baseline_knobs: The recorded baseline; None when absent.
        rows: One a configuration.
    """

    name: str
    grid: str
    limit_bytes: int | None
    unit: str = "tokens_per_second"
    device: str = ""
    global_batch_size: int | None = None
    global_batch_tokens: int | None = None
    baseline_knobs: Knobs | None = None
    rows: tuple[Row, ...]

    @property
    def device_kind(self) -> str:
        """``cuda`` for a table recorded on a GPU, by its device's name; ``cpu`` otherwise."""
        return "cuda" if _GPU.search(self.device.lower()) else "cpu"

    def fits(self, row: Row) -> bool:
        """Whether it completed within the limit."""
        return row.outcome in MEASURED and not row.over(self.limit_bytes)

    @cached_property
    def feasible(self) -> tuple[Row, ...]:
        """Rows that fit, fastest first."""
        fitting = (row for row in self.rows if self.fits(row))
        return tuple(sorted(fitting, key=lambda row: (-(row.throughput or 0.0), row.peak_bytes or 0, row.key)))

    @property
    def best(self) -> Row:
        """The fastest feasible row, by its true mean."""
        return self.feasible[0]

    @cached_property
    def by_key(self) -> Mapping[str, Row]:
        """Rows by :func:`key_of` their configuration."""
        return {row.key: row for row in self.rows}

    @cached_property
    def knobs(self) -> tuple[str, ...]:
        """Every knob that occurs, in the order of the file."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.config))

    @cached_property
    def baseline(self) -> Row:
        """The recorded baseline's row; the feasible row of middle speed where there is none that fits.

        A partial baseline means the row that agrees with it in most knobs.
        """
        if self.baseline_knobs is not None:
            found = self.by_key.get(key_of(self.baseline_knobs)) or self._nearest(self.baseline_knobs)
            if self.fits(found):
                return found
        return self.feasible[len(self.feasible) // 2]

    def _nearest(self, wanted: Knobs) -> Row:
        return max(self.rows, key=lambda row: sum(row.config.get(name) == value for name, value in wanted.items()))

    @cached_property
    def run_spread(self) -> float:
        """Relative standard deviation of one run, pooled over rows with repeats; else what the rows say; else 0."""
        squares, freedom = 0.0, 0
        for row in self.rows:
            if len(row.runs) > 1 and row.outcome in MEASURED:
                logs = [math.log(run.throughput) for run in row.runs]
                middle = fmean(logs)
                squares += sum((each - middle) ** 2 for each in logs)
                freedom += len(logs) - 1
        return math.sqrt(squares / freedom) if freedom else self._said_spread

    @cached_property
    def _said_spread(self) -> float:
        said = [row.standard_error / row.throughput for row in self.feasible if row.standard_error and row.throughput]
        return median(said) if said else 0.0

    @cached_property
    def repeats(self) -> int:
        """Runs behind the mean of a row that decides: the median over rows within 10 % of the best, at least 1."""
        near = [row for row in self.feasible if (row.throughput or 0.0) >= 0.9 * (self.best.throughput or 0.0)]
        return max(1, int(median(len(row.runs) for row in near)))

    @property
    def standard_error(self) -> float:
        """Relative standard error of such a row's mean: the pooled spread over the root of its repeats."""
        return self.run_spread / math.sqrt(self.repeats)

    @property
    def tolerance(self) -> float:
        """What "within 1 %" means here: the larger of 1 % and twice the standard error."""
        return max(WANTED, 2 * self.standard_error)

    def regret(self, row: Row | None) -> float:
        """Share of the best true throughput that an answer gives away; 1 for none, or for one over the limit."""
        if row is None or not self.fits(row):
            return 1.0
        return max(0.0, 1.0 - (row.throughput or 0.0) / (self.best.throughput or 1.0))

    def is_hit(self, row: Row) -> bool:
        """Whether running this row is finding the best."""
        return self.fits(row) and self.regret(row) <= self.tolerance

    @cached_property
    def misfit_seconds(self) -> float | None:
        """Median cost of the misfits that really failed; None when none did."""
        failed = [row.seconds for row in self.rows if row.outcome == "device_oom" and not row.cut]
        failed = failed or [row.seconds for row in self.rows if row.outcome == "device_oom"]
        return median(failed) if failed else None

    def cost(self, row: Row) -> float:
        """Seconds of one run. A row over the limit costs what a real misfit costs (its own where none is recorded)."""
        if row.over(self.limit_bytes) and self.misfit_seconds is not None:
            return self.misfit_seconds
        return row.seconds

    @property
    def seconds(self) -> float:
        """What running every row once costs."""
        return sum(self.cost(row) for row in self.rows)

    def without_predictions(self) -> Table:
        """The same table as if no peak had been predicted."""
        return replace(self, rows=tuple(replace(row, predicted_bytes=None) for row in self.rows))
