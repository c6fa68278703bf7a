"""The global batch: exactly what the spec says, in rows, for every configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from objectives.config import accumulation_steps

TOKEN_TOLERANCE = 0.01
"""A global batch in tokens is met when the mean of an optimizer step is within this share of it."""


@dataclass(frozen=True, kw_only=True)
class GlobalBatch:
    """What one optimizer step consumes over all ranks; exactly one of ``samples`` and ``tokens`` is set.

    Attributes:
        samples: Samples per optimizer step, exact.
        tokens: Real tokens per optimizer step, on average, within :data:`TOKEN_TOLERANCE`.
        tokens_per_row: Mean real tokens of one row, by batching mode (from the study's data); needed with ``tokens``.
        ranks: Data-parallel ranks.
    """

    samples: int | None = None
    tokens: int | None = None
    tokens_per_row: Mapping[str, float] = field(default_factory=dict)
    ranks: int = 1

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
        micro_tokens = per_row * micro_batch_size * self.ranks
        steps = max(1, round(self.tokens / micro_tokens))
        miss = steps * micro_tokens / self.tokens - 1
        if abs(miss) > TOKEN_TOLERANCE:
            raise ValueError(
                f"{steps} micro-batches of {micro_batch_size} {batching} rows hold {steps * micro_tokens:.0f} tokens "
                f"on average, {miss:+.1%} from the {self.tokens} asked for (at most {TOKEN_TOLERANCE:.0%} is allowed)"
            )
        return steps
