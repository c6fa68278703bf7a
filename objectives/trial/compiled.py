"""torch.compile's own phase: how long it took, what it cost in memory, how often it happened again."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from objectives.contract import Batch
    from objectives.measure.memory import Memory
    from objectives.trial.channel import Channel
    from objectives.trial.setup import Setup
    from objectives.trial.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What compilation cost.

    Attributes:
        seconds: Time to compile and run the worst-case micro-step once; 0 for an eager model.
        peak_memory_bytes: Peak right after it, the compiler's own spike included; None for an eager model.
    """

    seconds: float = 0.0
    peak_memory_bytes: int | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, with how many graphs have been compiled so far and whether the compiler has given up.

        More than one graph a shape means recompiling; behind the limit every new shape runs eagerly, silently slower.
        """
        seen = compilations() if self.seconds else Compilations()
        return asdict(self) | asdict(seen)


@dataclass(frozen=True, kw_only=True)
class Compilations:
    """The compiler's own count in this process; None where nothing was compiled."""

    graphs: int | None = None
    limit_reached: bool | None = None


def compile_and_run_once(setup: Setup, trainer: Trainer, batch: Batch, channel: Channel, memory: Memory) -> Compiled:
    """Compiles the model where its knob says so, by one forward and backward of the longest micro-batch."""
    if setup.compile_options is None:
        return Compiled()
    channel.phase("compile")
    begun = time.perf_counter()
    setup.model.compile(**setup.compile_options)
    trainer.micro_step(trainer.place(batch))
    trainer.drop()
    memory.note_compile_peak()
    peak = memory.reading().peak_memory_bytes
    return Compiled(seconds=time.perf_counter() - begun, peak_memory_bytes=peak)


def compilations() -> Compilations:
    """What torch.compile has done in this process so far, by dynamo's counters."""
    from torch._dynamo.utils import counters

    given_up = any("recompile limit" in reason for reason in counters["unimplemented"])
    return Compilations(graphs=int(counters["stats"]["unique_graphs"]), limit_reached=given_up)
