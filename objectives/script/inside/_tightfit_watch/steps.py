"""Counts and times the optimizer steps of a process through torch's own global hooks.

One step runs from one call of the (first) optimizer to its next: data, forwards, backwards, logging and all. Time spent
in here is counted, too.
"""

from __future__ import annotations

import weakref
from typing import Any

from . import failures, memory
from .clocks import HostClock, clock_of, now
from .readings import Reading, real_tokens, size_of
from .spoken import leave

WINDOW_STEPS = 2
"""Applied steps of the memory window: optimizer state is there from the second on."""
LONGEST_WINDOW = 12
"""A loss scaler that still skips after so many steps does not keep the window open."""
FLUSH_SECONDS, LISTEN_SECONDS = 0.5, 0.05
LARGER = 1.02
"""A batch so many times the largest of the memory window may need more memory than was seen there."""

STEPS: Any = None
"""The one watcher of this process."""
GLOBAL: list[Any] = []
"""The handle of the hook on every module, while it is there."""


def see_root(module: Any, arguments: Any, named: Any) -> None:
    """A function of this module, not a method: models are copied and pickled with their hooks."""
    if STEPS is not None:
        STEPS.see_root(module, arguments, named)


def unhook_modules() -> None:
    """Takes the hook on every module away: it has seen what it is for, or would be compiled into a model."""
    if GLOBAL:
        GLOBAL.pop().remove()


def retire() -> None:
    """The script speaks for itself from now on."""
    if STEPS is not None:
        STEPS.retired = True


class Steps:
    """The state between two steps, and what was found."""

    def __init__(self, torch: Any, wish: dict[str, Any], line: Any) -> None:
        self._torch, self._wish, self._line = torch, wish, line
        self.retired = False
        self.reset()

    def reset(self) -> None:
        """A process that trains nothing yet (also: a forked one)."""
        self._memory = memory.memory_of(self._torch, self._wish)
        self.reading = Reading(self._torch)
        self._clock: HostClock | None = None
        self._optimizer: Any = None
        self.index = self._applied = 0
        self._last: Any = None
        self._rows: list[Any] = []
        self._unsettled: list[tuple[int, Any]] = []
        self._flushed = self._listened = 0.0
        self._open, self._begun, self._armed = True, False, True
        self._pending: tuple[int | None, int] | None = None
        self._loss: Any = None
        self._handle: Any = None
        self._largest, self._larger = 0, False
        self.micro: list[tuple[int, int | None]] = []
        self._clear()

    def _clear(self) -> None:
        self._micro = self._calls = self._tokens = 0
        self._samples: int | None = 0
        self._wait = self._own = 0.0
        self._evaluated = False
        self._backward_at: float | None = None

    @property
    def watching(self) -> bool:
        """Whether a call now is training's own: not ours to count inside a backward, or once the script speaks."""
        return not self.retired and self._torch._C._current_graph_task_id() == -1

    # Before the first step

    def begin(self) -> None:
        """The first parameter is about to exist: the memory window begins."""
        if not self._begun:
            self._begun = True
            self._memory.begin()
            failures.FACTS[:] = [self._facts]
            self._line.send(began=True)

    def _facts(self) -> dict[str, Any]:
        return {**self._memory.facts(), "applied_steps": self._applied}

    # Within a step

    def see_module(self, module: Any) -> None:
        """Any module is called, in the first steps only: the first one after a backward is the root."""
        if self.retired or not self._torch.is_grad_enabled():
            return
        if self._torch._C._current_graph_task_id() != -1:
            self.reading.recomputed = True
        elif self._armed and self.reading.root is None:
            self._armed, self._pending = False, (None, 0)
            self.reading.take_root(module)
            self._handle = module.register_forward_pre_hook(see_root, with_kwargs=True)
        else:
            self.reading.see_leaf(module)

    def see_root(self, module: Any, arguments: Any, named: Any) -> None:
        """The root is called: a micro-batch, or evaluation."""
        begun = now()
        if not self._torch.is_grad_enabled():
            self._evaluated = self._evaluated or module is self.reading.root
        elif self._armed and self.watching:
            if self.reading.root is None:
                self.reading.take_root(module)
            self._armed = False
            samples, size = size_of(arguments, named)
            self._pending = (samples or self.reading.loader_samples, size)
        self._own += now() - begun

    def see_batch(self, iterator: Any, batch: Any, seconds: float) -> None:
        """A loader has delivered; it took so long."""
        begun = now()
        if not self.retired and self._torch.is_grad_enabled():
            self._wait += seconds
            self.reading.see_batch(iterator, batch, count=self._open or self.reading.root is None)
            self._tokens += real_tokens(batch) or 0
        self._own += now() - begun

    def see_backward(self, tensors: Any) -> None:
        """A backward begins: the micro-batch before it counts."""
        if not self.watching:
            return
        begun = now()
        self._calls += 1
        pending, self._pending = self._pending, None
        if pending is None and self.reading.root is None:
            pending = (self.reading.loader_samples, 0)
        if pending is not None:
            self._count(*pending)
        self._armed, self._backward_at = True, begun
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        self._loss = loss.detach() if hasattr(loss, "numel") and loss.numel() == 1 else None
        self._own += now() - begun

    def _count(self, samples: int | None, size: int) -> None:
        self._micro += 1
        self._samples = None if samples is None or self._samples is None else self._samples + samples
        if self._open:
            self._largest = max(self._largest, size)
        elif size > LARGER * self._largest:
            self._larger = True

    # At its end

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped. A fused one is called even where the loss scaler found infinities: it says so."""
        found = getattr(optimizer, "found_inf", None)
        if found is None or found.device.type != "cpu":
            self.end(optimizer, applied=True, unsettled=found)
        else:
            self.end(optimizer, applied=not bool(found))

    def end(self, optimizer: Any, *, applied: bool, unsettled: Any = None) -> None:
        """One step is over, if this is the optimizer that counts and something was trained since its last."""
        begun = now()
        if self.retired or not self._is_first(optimizer) or not self._calls:
            return
        if not self._micro:  # the root was the wrong one: it is not called in training
            self._micro, self._samples = self._calls, None
            self._drop_root()
        self.index += 1
        self._applied += applied
        if unsettled is not None:
            self._unsettled.append((self.index, unsettled))
        self._note(optimizer, begun, applied)
        if self._open and (self._applied >= WINDOW_STEPS or self.index >= LONGEST_WINDOW):
            self._close(optimizer)
        self._flush(begun)
        stop = self._line.stop_at
        if stop is not None and self.index >= stop:
            self._leave()
        self._own = now() - begun

    def _is_first(self, optimizer: Any) -> bool:
        known = self._optimizer() if self._optimizer is not None else None
        if known is None:
            self._optimizer = weakref.ref(optimizer)
        return known is None or known is optimizer

    def _note(self, optimizer: Any, begun: float, applied: bool) -> None:
        if self._clock is None:
            device = optimizer.param_groups[0]["params"][0].device.type
            self._clock = clock_of(self._torch, device)
        stamp = self._clock.stamp(begun)
        fields = (self._micro, self._samples, self._tokens or None, self._wait, self._own, applied, self._evaluated)
        self._rows.append((self.index, begun, self._last, stamp, fields, self._backward_at))
        self.micro.append((self._micro, self._samples))
        del self.micro[:-LONGEST_WINDOW]
        self._last = stamp
        self._clear()

    def _close(self, optimizer: Any) -> None:
        self._open = False
        self._memory.close()
        unhook_modules()
        micro = max(count for count, _ in self.micro)
        samples = next((each for count, each in reversed(self.micro) if count == micro and each), None)
        found: dict[str, Any] = {"accumulation_steps": micro, **self.reading.applied(optimizer)}
        if samples is not None:
            found["micro_batch_size"] = samples / micro
        said = {"memory": self._memory.reading(), "device": self._device(optimizer), "window_steps": self.index}
        self._line.send(applied=found, **said)

    def _device(self, optimizer: Any) -> dict[str, Any]:
        device = optimizer.param_groups[0]["params"][0].device
        name = self._torch.cuda.get_device_name(device) if device.type == "cuda" else None
        return {"kind": device.type, "name": name, "torch": str(self._torch.__version__)}

    def _flush(self, begun: float, *, all_of_it: bool = False) -> None:
        if all_of_it or self.index < 4 or begun - self._flushed >= FLUSH_SECONDS:
            self._flushed = begun
            rows, clock = self._rows, self._clock
            assert clock is not None
            ready = [row for row in rows if clock.is_past(row[3])]
            self._rows = rows[len(ready) :]
            if ready:
                self._line.send(steps=[_row(clock, *row) for row in ready], loss=self._loss_now(all_of_it))
        if begun - self._listened >= LISTEN_SECONDS:
            self._listened = begun
            self._line.listen()

    def _loss_now(self, wait: bool) -> float | None:
        if self._loss is None or (self._loss.device.type != "cpu" and not wait):
            return None
        return float(self._loss)

    def _leave(self) -> None:
        assert self._clock is not None
        self._clock.wait()
        self._flush(now(), all_of_it=True)
        skipped = [index for index, found in self._unsettled if bool(found)]
        leave(self._line, {"memory": self._memory.reading(self._larger), "skipped": skipped})

    def _drop_root(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle = None
        self.reading.take_root(None)


def _row(clock: HostClock, index: int, ended: float, last: Any, stamp: Any, fields: Any, backward: Any) -> list[Any]:
    seconds = None if last is None else clock.seconds(last, stamp)
    return [index, ended, seconds, *fields, backward]
