"""Times a trainer from outside: its optimizer steps, what goes on inside them, and what is the trainer's own.

The end of an optimizer step is seen through PyTorch's global optimizer hooks. Nothing of the trainer is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

if TYPE_CHECKING:
    import torch

PARTS = ("compute", "optimizer", "data")
"""Forward and backward; ``optimizer.step()``; waiting for the next batch. The rest of the wall is the trainer's own."""


class Stopwatch:
    """Counts and times the steps after the warm-up, while the block runs.

    Args:
        device: Waited for at the end of every part: on a GPU the parts would else be those of the queue.
        warm_up_steps: Optimizer steps that are not timed.
        on_warm: Called once after them.

    Attributes:
        longest: A placed worst-case micro-batch, taken in place of the data's during the warm-up; None takes the data.
    """

    def __init__(self, *, device: torch.device, warm_up_steps: int, on_warm: Callable[[], None]) -> None:
        self._device, self._warm_up, self._on_warm = device, warm_up_steps, on_warm
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._steps = self._micro_steps = self._units = 0
        self._micro_of_step: list[int] = []
        self._begun = self._ended = self._step_at = self._inside = 0.0
        self._hooks: list[Any] = []
        self.longest: Any = None

    def __enter__(self) -> Stopwatch:
        self._hooks = [
            register_optimizer_step_pre_hook(lambda *_args: self._before_step()),
            register_optimizer_step_post_hook(lambda *_args: self._after_step()),
        ]
        return self

    def __exit__(self, *_error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    @property
    def warm(self) -> bool:
        """Whether the steps are timed now."""
        return self._steps >= self._warm_up

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a part."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            if self.warm:
                self._seconds[name] += time.perf_counter() - begun

    def batches(self, loader: Any) -> Iterator[Any]:
        """The loader's batches, waiting for each timed."""
        source = iter(loader)
        while True:
            with self.part("data"):
                try:
                    batch = next(source)
                except StopIteration:
                    return
            yield batch

    def batch(self, given: Any) -> Any:
        """What is trained on: the worst case during the warm-up, else what was given. One call a micro-batch."""
        self._micro_of_step = self._micro_of_step or [0]
        self._micro_of_step[-1] += 1
        return given if self.warm or self.longest is None else self.longest

    def count(self, units: int) -> None:
        """Real units of a micro-batch."""
        if self.warm:
            self._units += units
            self._micro_steps += 1

    def _before_step(self) -> None:
        self._wait()
        self._step_at, self._inside = time.perf_counter(), self._seconds["compute"]

    def _after_step(self) -> None:
        self._wait()
        now = time.perf_counter()
        if self.warm:
            inside = self._seconds["compute"] - self._inside  # Lightning computes in the optimizer's closure
            self._seconds["optimizer"] += now - self._step_at - inside
            self._ended = now
        self._steps += 1
        self._micro_of_step.append(0)
        if self._steps == self._warm_up:
            self._on_warm()
            self.longest = None
            self._begun = time.perf_counter()

    def _wait(self) -> None:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)

    def figures(self) -> dict[str, Any]:
        """What was counted: ``steps``, ``micro_batches`` of each timed step, ``units``, ``wall_seconds``, the parts."""
        steps = self._steps - self._warm_up
        wall = self._ended - self._begun if steps > 0 else None
        spent = sum(self._seconds.values())
        return {
            "steps": max(steps, 0),
            "micro_batches": self._micro_of_step[self._warm_up : self._steps],
            "units": self._units,
            "wall_seconds": wall,
            **{f"{name}_seconds": seconds for name, seconds in self._seconds.items()},
            "trainer_seconds": None if wall is None else max(wall - spent, 0.0),
        }
