"""What a script's ranks have said so far, and what follows: warm-up, window, end. Pure: messages in, decisions out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from objectives.measure.window import Block, find_warm_up, is_warm, narrow_enough

if TYPE_CHECKING:
    from objectives.trial.protocol import WindowPlan

FEWEST_STEPS = 3
"""Steps a measurement needs when the script ends by itself."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One optimizer step as one rank saw it.

    Attributes:
        index: From 1.
        ended_seconds: Host time of its end, by the machine's monotonic clock.
        seconds: Since the end of the step before; None for the first.
        micro_steps: Backwards that followed a forward.
        samples: Of this rank; None where they could not be seen.
        tokens: Real ones, by the attention mask; None likewise.
        wait_seconds: The host waited for the loader.
        hook_seconds: Spent in our own hooks.
        applied: False when a loss scaler skipped it.
        evaluated: The model was also evaluated meanwhile: no step time.
        backward_seconds: When the last backward began, by the same clock as ``ended_seconds``.
    """

    index: int
    ended_seconds: float
    seconds: float | None
    micro_steps: int
    samples: int | None
    tokens: int | None
    wait_seconds: float
    hook_seconds: float
    applied: bool
    evaluated: bool
    backward_seconds: float | None

    @classmethod
    def of(cls, row: Sequence[Any]) -> Step:
        """From a row as it was sent."""
        return cls(**dict(zip(cls.__dataclass_fields__, row, strict=True)))


@dataclass(kw_only=True)
class Rank:
    """One rank's process.

    Attributes:
        applied: What it read back; None before.
        window_steps: Optimizer steps of its memory window, 0 before its end.
        memory: Its last memory reading.
        failure: The exception it ended with.
        failed_seconds: When that was heard.
        gone: Its line has ended.
        left: It said good-bye: asked to stop, it did.
    """

    pid: int
    number: int = 0
    steps: dict[int, Step] = field(default_factory=dict)
    applied: Mapping[str, Any] | None = None
    window_steps: int = 0
    memory: Mapping[str, Any] = field(default_factory=dict)
    device: Mapping[str, Any] = field(default_factory=dict)
    failure: Mapping[str, Any] | None = None
    failed_seconds: float | None = None
    gone: bool = False
    left: bool = False


@dataclass(frozen=True, kw_only=True)
class Merged:
    """One optimizer step over all ranks: the first rank's time (they meet in every step), everybody's samples."""

    index: int
    seconds: float
    micro_steps: int
    samples: int
    tokens: int | None
    wait_seconds: float
    hook_seconds: float
    applied: bool
    evaluated: bool

    def block(self) -> Block:
        """As the window's statistics take it."""
        return Block(
            micro_seconds=(self.seconds,),
            micro_units=(self.samples,),
            optimizer_seconds=0.0,
            accumulation_steps=1,
            applied=self.applied,
            data_wait_seconds=self.wait_seconds,
        )


class Ledger:
    """Follows one run.

    Args:
        world_size: Ranks that must have said something of a step before it counts.
        plan: The window.
        micro_batch_size: Asked for; taken where a rank cannot see its samples.
    """

    def __init__(self, *, world_size: int, plan: WindowPlan, micro_batch_size: int) -> None:
        self.world, self._plan, self._micro = world_size, plan, micro_batch_size
        self.ranks: dict[int, Rank] = {}
        """By process number."""
        self.world_seen = 1
        self.began = False
        self.loss: list[float] = []
        self.warm_up: list[Merged] = []
        self.window: list[Merged] = []
        self.worst_case: list[Merged] = []
        self.evaluated = 0
        self.complete = False
        self._next = 1
        self._spent = 0.0

    def hear(self, pid: int, message: Mapping[str, Any], now: float) -> list[Merged]:
        """Takes one message in; returns the optimizer steps that are complete over all ranks since the last."""
        self.began = self.began or "began" in message
        if not message.keys() & {"steps", "applied", "bye", "failure"}:
            return []
        rank = self.ranks.setdefault(pid, Rank(pid=pid))
        rank.number = int(message.get("rank", 0))
        self.world_seen = max(self.world_seen, int(message.get("world_size", 1)))
        for name in ("applied", "memory", "device", "window_steps"):
            if name in message:
                setattr(rank, name, message[name])
        if "failure" in message and rank.failure is None:
            rank.failure, rank.failed_seconds = message["failure"], now
        if message.get("loss") is not None:
            self.loss.append(float(message["loss"]))
        if "bye" in message:
            self._take_leave(rank, message["bye"])
        rank.steps.update({int(row[0]): Step.of(row) for row in message.get("steps", ())})
        return self._merge()

    def _take_leave(self, rank: Rank, bye: Mapping[str, Any]) -> None:
        rank.left = True
        rank.memory = bye.get("memory") or rank.memory
        skipped = set(bye.get("skipped", ()))
        self.window = [
            Merged(**{**vars(step), "applied": False}) if step.index in skipped else step for step in self.window
        ]

    @property
    def trained(self) -> list[Rank]:
        """The ranks that have made a step, by number."""
        return sorted((rank for rank in self.ranks.values() if rank.steps or rank.applied), key=lambda r: r.number)

    @property
    def last_step(self) -> int:
        """The furthest any rank has come; 0 before the first step."""
        return max((max(rank.steps, default=0) for rank in self.ranks.values()), default=0)

    @property
    def all_applied(self) -> bool:
        """Whether every rank has read back its configuration."""
        known = [rank for rank in self.trained if rank.applied is not None]
        return len(known) >= self.world

    def _merge(self) -> list[Merged]:
        made = []
        while len(rows := [r.steps[self._next] for r in self.trained if self._next in r.steps]) >= self.world:
            self._next += 1
            if all(row.seconds is not None for row in rows):
                made.append(self._merged(rows))
        for step in made:
            self._place(step)
        return made

    def _merged(self, rows: Sequence[Step]) -> Merged:
        tokens = [row.tokens for row in rows if row.tokens is not None]
        return Merged(
            index=rows[0].index,
            seconds=float(rows[0].seconds or 0.0),
            micro_steps=max(row.micro_steps for row in rows),
            samples=sum(self._samples(row) for row in rows),
            tokens=sum(tokens) if len(tokens) == len(rows) else None,
            wait_seconds=max(row.wait_seconds for row in rows),
            hook_seconds=max(row.hook_seconds for row in rows),
            applied=all(row.applied for row in rows),
            evaluated=any(row.evaluated for row in rows),
        )

    def _samples(self, row: Step) -> int:
        return row.samples if row.samples is not None else row.micro_steps * self._micro

    def _place(self, step: Merged) -> None:
        """A step belongs to the memory window, the warm-up, the measuring window, or to none of them."""
        if self.complete:
            return
        if step.evaluated:
            self.evaluated += 1
        elif not self.all_applied or step.index <= max(rank.window_steps for rank in self.trained):
            self.worst_case.append(step)
        elif not self._is_warm():
            self.warm_up.append(step)
        else:
            self._measure(step)

    def _is_warm(self) -> bool:
        if self.window:
            return True
        seconds = [step.seconds for step in self.warm_up]
        elapsed, load = math.fsum(seconds), self._plan.warm_load_seconds
        return elapsed >= load and (is_warm(seconds) or elapsed >= load + self._plan.max_seconds)

    def _measure(self, step: Merged) -> None:
        self.window.append(step)
        self._spent += step.seconds
        if narrow_enough([each.block() for each in self.window], self._plan, self._spent):
            self.finish()

    def finish(self) -> None:
        """Ends the window where it stands: it is complete, the worker asked to stop, or the script has ended.

        Steps that, seen with the whole series, belong to the warm-up are moved there: at most half the window. A script
        that ended before its window began is measured by its last steps.
        """
        if self.complete:
            return
        self.complete = True
        if not self.window and len(self.warm_up) > FEWEST_STEPS:
            self.window, self.warm_up = self.warm_up[FEWEST_STEPS - 1 :], self.warm_up[: FEWEST_STEPS - 1]
        series = [step.seconds for step in (*self.warm_up, *self.window)]
        late = min(find_warm_up(series) - len(self.warm_up), len(self.window) // 2)
        if late > 0:
            self.warm_up += self.window[:late]
            self.window = self.window[late:]

    @property
    def measured(self) -> bool:
        """Whether the window says something."""
        return self.complete and len(self.window) >= 1

    def rank_figures(self) -> list[dict[str, Any]]:
        """Per rank: step time, samples and real tokens of a step, memory, shares waited for data and other ranks."""
        indices = {step.index for step in self.window}
        found = []
        for rank in self.trained:
            steps = [step for index, step in rank.steps.items() if index in indices and step.seconds]
            seconds = math.fsum(step.seconds or 0.0 for step in steps)
            found.append(
                {
                    "rank": rank.number,
                    "step_seconds": seconds / len(steps) if steps else None,
                    "samples_per_step": fmean(self._samples(step) for step in steps) if steps else None,
                    "tokens_per_step": _mean_tokens(steps),
                    "data_wait_share": math.fsum(s.wait_seconds for s in steps) / seconds if seconds else None,
                    "rank_wait_share": self._rank_wait(rank, indices) / seconds if seconds else None,
                    "peak_memory_bytes": rank.memory.get("peak_memory_bytes"),
                }
            )
        return found

    def _rank_wait(self, rank: Rank, indices: set[int]) -> float:
        """Seconds this rank's last backwards began before the slowest rank's: gradients meet there."""
        waits = []
        for index in indices:
            begun = {r.pid: r.steps[index].backward_seconds for r in self.trained if index in r.steps}
            known = [seconds for seconds in begun.values() if seconds is not None]
            own = begun.get(rank.pid)
            if own is not None and len(known) > 1:
                waits.append(max(known) - own)
        return math.fsum(waits)

    def hook_share(self) -> float | None:
        """Share of the window's time spent in our own hooks; None without a window."""
        return (
            fmean(s.hook_seconds for s in self.window) / fmean(s.seconds for s in self.window) if self.window else None
        )


def _mean_tokens(steps: Sequence[Step]) -> float | None:
    known = [step.tokens for step in steps if step.tokens is not None]
    return fmean(known) if steps and len(known) == len(steps) else None
