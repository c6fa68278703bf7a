"""Blocks of micro-steps and an update, timed: the same calls serve warm-up, window and the comparison without a loader.

Nothing inside a block waits for the device. The timer marks boundaries and waits once, at the block's end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from objectives.measure.window import Block, find_warm_up, is_warm, narrow_enough, stall_share, summarise
from objectives.trial.batches import make_loader
from objectives.trial.data_use import DataUse, grouped_padding_share, positions, workers_bytes
from objectives.trial.trainer import NumericalFault, Trainer, Update
from objectives.trial.worst_case import WorstCase, check_finite

if TYPE_CHECKING:
    from objectives.measure.timing import Timer
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import WindowPlan
    from objectives.trial.setup import Setup

BLOCKS_IN_WINDOW = 20
"""A window should hold at least so many blocks: fewer say little about their own error."""
FEWEST_MICRO_STEPS = 3
"""A cut block has at least so many micro-steps: the first, which creates gradients, and two that add to them."""
LARGEST_SKIPPED_SHARE = 0.2
"""More skipped updates than this in the window and the configuration does not train."""


def steps_in_block(accumulation_steps: int, worst: WorstCase, window_seconds: float) -> int:
    """Micro-steps per measured block: all where 20 whole optimizer steps fit the window, else as many as let 20 fit."""
    room = window_seconds / BLOCKS_IN_WINDOW - worst.optimizer_seconds
    fitting = int(room / max(worst.micro_seconds, 1e-9))
    return min(accumulation_steps, max(FEWEST_MICRO_STEPS, fitting))


class BlockLoop:
    """Runs blocks on a setup whose loader it makes."""

    def __init__(
        self, channel: Channel, setup: Setup, trainer: Trainer, timer: Timer, window: WindowPlan, micro_steps: int
    ) -> None:
        self._channel, self._setup, self._trainer, self._timer = channel, setup, trainer, timer
        self._plan, self._micro_steps = window, micro_steps
        loader = make_loader(setup, steps_in_block=micro_steps)
        self._batches: Iterator[Any] = iter(loader)
        self._data = DataUse(
            samples=len(loader.dataset) if hasattr(loader.dataset, "__len__") else None,
            samples_per_block=setup.config.micro_batch_size * setup.config.accumulation_steps,
        )
        self._workers_bytes: tuple[int | None, int | None] = (None, None)
        self._window: list[Block] = []
        self._losses: list[float] = []
        self._placed: list[Any] = []
        self._warm_up_seconds: list[float] = []

    def _block(self) -> Block:
        waits, units = 0.0, []
        self._placed = []
        self._timer.start()
        for _ in range(self._micro_steps):
            asked = time.perf_counter()
            batch = next(self._batches)
            waits += time.perf_counter() - asked
            placed = self._trainer.place(batch)
            units.append(self._trainer.micro_step(placed))
            self._timer.mark()
            self._placed.append(placed)
        update = self._trainer.update()
        self._timer.mark()
        *micro_seconds, optimizer_seconds = self._timer.resolve()
        block = Block(
            micro_seconds=tuple(micro_seconds),
            micro_units=tuple(units),
            optimizer_seconds=optimizer_seconds,
            accumulation_steps=self._setup.config.accumulation_steps,
            applied=update.applied,
            data_wait_seconds=waits,
            overlapped_loading=self._setup.config.loader_workers > 0,
        )
        self._data.note(units=units, positions=[positions(each) for each in self._placed], wait_seconds=waits)
        self._report(block, update)
        return block

    def _report(self, block: Block, update: Update) -> None:
        self._losses.append(check_finite(update.loss, applied=update.applied))
        self._channel.send(
            "step",
            kind="optimizer",
            seconds=block.step_seconds,
            host_wait_seconds=block.data_wait_seconds,
            units=block.units,
            skipped=not update.applied,
            loss=self._losses[-1],
            micro_steps=self._micro_steps,
        )

    def warm_up(self) -> float:
        """Runs blocks until their times have settled and the asked load is over; returns the seconds it took.

        At most as long as the longest window, beside the load. Asked to stop, its last block is all that is measured.
        """
        begun, seconds, blocks = time.perf_counter(), [], []
        load = self._plan.warm_load_seconds
        while not self._channel.stop_requested:
            blocks = [self._block()]
            seconds.append(blocks[0].step_seconds)
            elapsed = time.perf_counter() - begun
            if elapsed >= load and (is_warm(seconds) or elapsed >= load + self._plan.max_seconds):
                break
        self._warm_up_seconds = seconds
        self._window = blocks if self._channel.stop_requested else []
        self._losses = self._losses[len(self._losses) - len(self._window) :]
        return time.perf_counter() - begun

    def measure(self, *, between: Callable[[], None] = lambda: None) -> float:
        """Runs the window, calling ``between`` after each block; returns its seconds.

        Raises:
            NumericalFault: The scaler skipped more than a fifth of the updates.
        """
        held = workers_bytes(self._setup)
        begun = time.perf_counter()
        while not (self._channel.stop_requested and self._window):
            self._window.append(self._block())
            between()
            if narrow_enough(self._window, self._plan, time.perf_counter() - begun):
                break
        elapsed = time.perf_counter() - begun
        self._workers_bytes = (held, workers_bytes(self._setup))
        self._drop_late_warm_up()
        skipped = self._skipped
        if skipped > LARGEST_SKIPPED_SHARE * len(self._window):
            raise NumericalFault(
                f"{skipped} of {len(self._window)} updates in the window were skipped by the loss scaler"
            )
        return elapsed

    def _drop_late_warm_up(self) -> None:
        """Moves blocks to the warm-up that, seen with the whole series, belong to it: at most half the window."""
        series = [*self._warm_up_seconds, *(block.step_seconds for block in self._window)]
        late = min(find_warm_up(series) - len(self._warm_up_seconds), len(self._window) // 2)
        if late > 0:
            self._warm_up_seconds = series[: len(self._warm_up_seconds) + late]
            self._window, self._losses = self._window[late:], self._losses[late:]

    @property
    def _skipped(self) -> int:
        return sum(not block.applied for block in self._window)

    def stall(self) -> float | None:
        """Share of a micro-step that waits for its data: the window's last block against its own batches, in place.

        None when the run was asked to stop: it ends at once.
        """
        if self._channel.stop_requested:
            return None
        loaded = self._window[-1].micro_seconds
        self._timer.start()
        for placed in self._placed:
            self._trainer.micro_step(placed)
            self._timer.mark()
        in_place = self._timer.resolve()
        self._trainer.drop()
        return stall_share(loaded, in_place)

    def measurement(self) -> dict[str, Any]:
        """The window's numbers as the ``measurement`` event carries them."""
        return {
            **summarise(self._window).to_mapping(),
            **self._data.to_mapping(),
            "grouped_padding_share": grouped_padding_share(self._setup),
            "workers_bytes_before": self._workers_bytes[0],
            "workers_bytes_after": self._workers_bytes[1],
            "step_seconds": [block.step_seconds for block in self._window],
            "micro_steps_in_block": self._micro_steps,
            "composed": self._window[0].composed,
            "skipped_steps": self._skipped,
            "warm_up_steps": len(self._warm_up_seconds),
            "first_loss": self._losses[0],
            "last_loss": self._losses[-1],
            "stop_reason": self._channel.stop_reason,
        }
