"""What a replayed strategy is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.replay.oracle import Replay

Kind = Literal["ours", "ablation", "optuna", "peer", "informed"]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One strategy.

    Attributes:
        name: In the output.
        kind: ``ours`` and its ``ablation``; an ``optuna`` sampler; a ``peer`` re-implemented from its description;
            ``informed``: a peer that was given the best other knobs, which no peer knows.
        search: Searches: asks the replay, and says when it stops. The baseline has been run.
        slow: Whether one search takes seconds: it gets fewer seeds.
    """

    name: str
    kind: Kind
    search: Callable[[Replay], None]
    slow: bool = False
