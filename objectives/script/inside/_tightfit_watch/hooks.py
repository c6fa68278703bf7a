"""Where the watcher takes hold of torch. Called once, right after torch's own import."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from . import memory, steps
from .clocks import now


def install(torch: Any, wish: dict[str, Any], line: Any) -> None:
    """Hooks everything in. Called right after torch's own import."""
    seen = steps.STEPS = steps.Steps(torch, wish, line)
    os.register_at_fork(after_in_child=_forked)
    modules, optimizers = torch.nn.modules.module, importlib.import_module("torch.optim.optimizer")
    optimizers.register_optimizer_step_post_hook(lambda optimizer, _args, _named: seen.stepped(optimizer))
    steps.GLOBAL.append(modules.register_module_forward_pre_hook(lambda module, _args: seen.see_module(module)))
    _hook_first_parameter(modules, seen)
    _hook_backward(torch, seen)
    _hook_loader(torch, seen)
    _hook_scaler(torch, seen)
    _hook_compile(torch, seen)


def _forked() -> None:
    if steps.STEPS is not None:
        memory.lift()
        steps.STEPS.reset()


def _hook_first_parameter(modules: Any, seen: steps.Steps) -> None:
    handles: list[Any] = []

    def first(_module: Any, _name: str, _parameter: Any) -> None:
        if handles:
            handles.pop().remove()
        seen.begin()

    handles.append(modules.register_module_parameter_registration_hook(first))


def _hook_backward(torch: Any, seen: steps.Steps) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **named: Any) -> Any:
        seen.see_backward(args[0] if args else named.get("tensors"))
        return original(*args, **named)

    torch.autograd.backward = backward


def _hook_loader(torch: Any, seen: steps.Steps) -> None:
    iterators = torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterators.__next__

    @functools.wraps(original)
    def following(iterator: Any) -> Any:
        begun = now()
        batch = original(iterator)
        seen.see_batch(iterator, batch, now() - begun)
        return batch

    iterators.__next__ = following


def _hook_scaler(torch: Any, seen: steps.Steps) -> None:
    """An ordinary optimizer is not called in a step that the scaler skips: the scaler is."""
    scaler = torch.amp.grad_scaler.GradScaler
    original = scaler.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **named: Any) -> Any:
        before = seen.index
        result = original(self, optimizer, *args, **named)
        if seen.index == before:
            seen.end(optimizer, applied=False)
        return result

    scaler.step = step


def _hook_compile(torch: Any, seen: steps.Steps) -> None:
    """A hook on every module would be compiled into the model: where something is compiled, its own calls are seen."""
    compiling, in_place = torch.compile, torch.nn.Module.compile

    @functools.wraps(compiling)
    def compile_(model: Any = None, *args: Any, **named: Any) -> Any:
        made = compiling(model, *args, **named)
        if isinstance(model, torch.nn.Module):
            seen.reading.compiled = True
            steps.unhook_modules()
            made.register_forward_pre_hook(steps.see_root, with_kwargs=True)
        return made

    @functools.wraps(in_place)
    def compile_in_place(self: Any, *args: Any, **named: Any) -> Any:
        seen.reading.compiled = True
        steps.unhook_modules()
        return in_place(self, *args, **named)

    torch.compile, torch.nn.Module.compile = compile_, compile_in_place
