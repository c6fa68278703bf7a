"""The global batch: exactly what the spec says, in rows, for every configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from objectives.config import accumulation_steps

TOKEN_TOLERANCE = 0.01
"""A global batch in tokens is met when the mean of an optimizer step is within this share of it."""


NEAREST = 2
"""Near sizes that a refusal names."""


@dataclass(frozen=True, kw_only=True)
class GlobalBatch:
    """What one optimizer step consumes over all ranks; exactly one of ``samples`` and ``tokens`` is set.

    Attributes:
        samples: Samples per optimizer step, exact.
        tokens: Real tokens per optimizer step, on average, within :data:`TOKEN_TOLERANCE`.
        tokens_per_row: Mean real tokens of one row, by batching mode (from the study's data); needed with ``tokens``.
        rows_there: Rows of the study's data, by batching mode; empty when unknown.
        ranks: Data-parallel ranks.
    """

    samples: int | None = None
    tokens: int | None = None
    tokens_per_row: Mapping[str, float] = field(default_factory=dict)
    rows_there: Mapping[str, int] = field(default_factory=dict)
    ranks: int = 1

    @classmethod
    def of(cls, *, samples: int | None, tokens: int | None, data: Mapping[str, Any], ranks: int = 1) -> GlobalBatch:
        """The batch of a spec's two keys on prepared data.

        Args:
            samples: ``global_batch_size``.
            tokens: ``global_batch_tokens``.
            data: What the objective's preparation returned; empty without one.
            ranks: Data-parallel ranks.
        """
        counted = {"padded": data.get("rows"), "length-grouped": data.get("rows"), "packed": data.get("packed_rows")}
        return cls(
            samples=samples,
            tokens=tokens,
            tokens_per_row=data.get("mean_tokens_per_row") or {},
            rows_there={name: rows for name, rows in counted.items() if isinstance(rows, int)},
            ranks=ranks,
        )

    def accumulation(self, *, micro_batch_size: int, batching: str = "padded") -> int:
        """Micro-batches per optimizer step.

        Raises:
            ValueError: This micro-batch (with this batching) cannot make that global batch; the message says why.
        """
        if self.samples is not None:
            return accumulation_steps(
                global_batch_size=self.samples, micro_batch_size=micro_batch_size, ranks=self.ranks
            )
        return self._accumulation_for_tokens(micro_batch_size, batching)

    def rows(self, *, micro_batch_size: int, accumulation: int) -> int:
        """Rows (samples, or packed rows) per optimizer step over all ranks."""
        return micro_batch_size * accumulation * self.ranks

    def _accumulation_for_tokens(self, micro_batch_size: int, batching: str) -> int:
        if self.tokens is None:
            raise ValueError("the global batch is given neither in samples nor in tokens")
        per_row = self.tokens_per_row.get(batching)
        if not per_row:
            raise ValueError(f"the mean tokens of a row are not known for batching {batching!r}")
        steps = self._steps(micro_batch_size, per_row)
        if abs(self._miss(micro_batch_size, steps, per_row)) > TOKEN_TOLERANCE:
            raise ValueError(self._not_met(micro_batch_size, batching, per_row))
        rows, there = self.rows(micro_batch_size=micro_batch_size, accumulation=steps), self.rows_there.get(batching)
        if there is not None and rows > there:
            raise ValueError(
                f"{self.tokens} tokens are {rows} {batching} rows on average, and the data has {there}: no optimizer "
                "step would ever be made. Use a smaller global batch or more data"
            )
        return steps

    def _steps(self, micro_batch_size: int, per_row: float) -> int:
        return max(1, round((self.tokens or 0) / (per_row * micro_batch_size * self.ranks)))

    def _miss(self, micro_batch_size: int, steps: int, per_row: float) -> float:
        """How far so many micro-batches are from the tokens asked for, relative."""
        return steps * per_row * micro_batch_size * self.ranks / (self.tokens or 1) - 1

    def _not_met(self, size: int, batching: str, per_row: float) -> str:
        """The reason, with near sizes of both kinds that do meet it."""
        steps = self._steps(size, per_row)
        micro_tokens = per_row * size * self.ranks
        below = math.floor((self.tokens or 0) / micro_tokens)
        near = " or ".join(str(round(each * micro_tokens)) for each in (below, below + 1) if each)
        sizes = [each for each in range(1, 2 * size + 1) if self._meets(each, per_row)]
        sizes = sorted(sorted(sizes, key=lambda each: max(each, size) / min(each, size))[:NEAREST])
        others = f", or a micro_batch_size of {' or '.join(map(str, sizes))}" if sizes else ""
        return (
            f"{steps} micro-batches of {size} {batching} rows hold {steps * micro_tokens:.0f} tokens on average, "
            f"{self._miss(size, steps, per_row):+.1%} from the {self.tokens} asked for (at most {TOKEN_TOLERANCE:.0%} "
            f"is allowed). Use a global_batch_tokens of {near}{others}"
        )

    def _meets(self, size: int, per_row: float) -> bool:
        return abs(self._miss(size, self._steps(size, per_row), per_row)) <= TOKEN_TOLERANCE
