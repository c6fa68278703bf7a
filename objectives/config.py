"""The configuration of a training run: one value per knob, plus what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

KnobValue = int | str | bool


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One configuration. Defaults are what a plain PyTorch trainer does when nobody asks for anything.

    Attributes:
        micro_batch_size: Samples (or packed rows) per device and forward pass.
        accumulation_steps: Micro-batches per optimizer step. Derived from the global batch, never searched by hand.
        precision: ``fp32``, ``tf32``, ``fp16-mixed``, ``bf16-mixed`` or ``bf16-true``.
        prefetch_factor: Batches each loader worker keeps ready. Acts only with ``loader_workers`` above 0.
    The other knobs' values are described beside their choices in :mod:`objectives.knobs`.
    """

    micro_batch_size: int = 1
    accumulation_steps: int = 1
    precision: str = "fp32"
    activation_checkpointing: str = "none"
    attention: str = "sdpa"
    loss: str = "full"
    compile: str = "off"
    optimizer: str = "adamw"
    memory_format: str = "contiguous"
    loader_workers: int = 0
    prefetch_factor: int = 2
    pin_memory: bool = False
    tokens: str = "on-the-fly"
    batching: str = "padded"
    allocator: str = "default"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Builds a configuration from a (partial) mapping of field names. Unknown names raise ``TypeError``."""
        return cls(**values)

    def to_mapping(self) -> dict[str, KnobValue]:
        """All fields by name, in the order of the class: what is stored, shown and exported."""
        return dict(vars(self))

    def knobs(self) -> dict[str, KnobValue]:
        """The searched part: everything but the derived ``accumulation_steps``."""
        values = self.to_mapping()
        del values["accumulation_steps"]
        return values

    def with_values(self, **values: Any) -> TrainingConfig:
        """A copy with some fields replaced."""
        return replace(self, **values)


KNOB_NAMES: tuple[str, ...] = tuple(
    field.name for field in fields(TrainingConfig) if field.name != "accumulation_steps"
)


def accumulation_steps(*, global_batch_size: int, micro_batch_size: int, ranks: int = 1) -> int:
    """Micro-batches per optimizer step so that ``micro x accumulation x ranks`` is exactly the global batch.

    Args:
        global_batch_size: Samples per optimizer step over all ranks.
        micro_batch_size: Samples per device and forward pass.
        ranks: Data-parallel ranks.

    Raises:
        ValueError: The product cannot be exact; the message names the micro-batch sizes that would divide.
    """
    per_rank, rest = divmod(global_batch_size, ranks)
    if rest:
        raise ValueError(f"a global batch of {global_batch_size} does not divide over {ranks} ranks")
    steps, rest = divmod(per_rank, micro_batch_size)
    if rest or steps < 1:
        sizes = ", ".join(map(str, divisors(per_rank)))
        raise ValueError(
            f"micro-batch {micro_batch_size} does not divide {per_rank} samples per rank; these sizes do: {sizes}"
        )
    return steps


def divisors(number: int) -> tuple[int, ...]:
    """All positive divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
