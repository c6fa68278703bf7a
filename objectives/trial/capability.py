"""What this device, these libraries and this model can run: found by trying, in a short-lived child.

Each choice that asks for it runs one tiny training step on a fresh build of the workload. ``trying`` is sent before it
and ``tried`` after it, so that when a choice takes the whole process down, the worker knows which, and asks again with
that one in ``skip``.
"""

from __future__ import annotations

import gc
import os
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives import knobs
from objectives.config import KnobValue, TrainingConfig
from objectives.contract import load_objective
from objectives.knobs.checkpointing import can_checkpoint
from objectives.knobs.knob import Facts, Knob, facts_from_mapping, facts_to_mapping
from objectives.trial.failure import exception_chain, shortened
from objectives.trial.outcome import Ending, classify

if TYPE_CHECKING:
    import torch

    from objectives.contract import Batch, Objective, Workload
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest

__all__ = ["collect_facts", "compiler_reason", "facts_from_mapping", "facts_to_mapping", "run"]

OPTIONAL_METHODS = (
    "checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens", "optimizer", "lengths", "evaluate",
)  # fmt: skip
LIBRARIES = ("torch", "transformers", "peft", "bitsandbytes", "flash-attn", "triton")
BASE = "base"
"""Under this name the step without any choice is tried first: what the others are compared with."""
NEVER_TRIED = ("allocator", "loader_workers", "prefetch_factor", "pin_memory")
"""They act outside the model's step, or at the start of a process."""
ONLY_WHEN_ASKED = {"compile": "compile", "micro_batch_size": "shapes"}
"""Knobs whose tries are dear, and the key of the request's ``answer`` that asks for them."""
UPDATED = ("optimizer", "precision", "loss")
"""Knobs whose try includes the optimizer's step; the others spare its memory."""
TOLERANCE_EXACT = 1e-3
TOLERANCE_HALF = 2e-2
"""Largest relative difference of loss and gradient between two ways to compute one loss, in 32 and in 16 bits."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one training step showed.

    Attributes:
        loss: Mean per unit; None where the step ended before the update.
        units: Real units in the micro-batch.
        gradient_norms: Norm of the mean loss's gradient by parameter, for those that got one.
        without_gradient: Trainable parameters that got none.
    """

    loss: float | None
    units: int
    gradient_norms: Mapping[str, float]
    without_gradient: tuple[str, ...]


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"knobs": {name: [values]}, "prepare": bool, "skip": {"knob=value": reason}}``.

    Also understood there: ``base`` (configuration that each choice is tried in; the defaults otherwise), ``packable``,
    ``compile`` (try compile choices too) and ``shapes`` (try micro-batch sizes too).

    Sends ``answer`` events with one of: ``data`` (what the objective's ``prepare`` returned), ``facts``, ``trying``,
    ``tried`` with ``refused`` (a reason, or None) and ``unknown`` (why nothing was learnt, or None); last ``facts``
    again with all refusals in ``unsupported``.
    """
    import torch

    channel.phase("import")
    torch.set_num_threads(request.threads)
    objective = load_objective(request.objective)
    if request.answer.get("prepare") and hasattr(objective, "prepare"):
        channel.phase("load")
        channel.send("answer", data=objective.prepare(request.objective.cache_path))
    channel.phase("build")
    workload = objective.build(torch.device(request.device), request.seed)
    facts = collect_facts(request, workload)
    channel.send("answer", facts=facts_to_mapping(facts))
    channel.phase("load")
    first_batch(workload, 1)  # data that cannot be read is the objective's fault, not a choice's: it ends this run
    del workload
    channel.phase("warm_up")
    tries = Tries(request, channel, objective, facts)
    tries.go()
    channel.send("answer", facts=facts_to_mapping(tries.facts))
    channel.phase("done")


def collect_facts(request: RunRequest, workload: Workload) -> Facts:
    """What can be known without a step."""
    from objectives.measure.hardware import describe

    device = describe(request.device)
    methods = {name for name in OPTIONAL_METHODS if callable(getattr(workload, name, None))}
    if can_checkpoint(workload):
        methods.add("checkpoint_blocks")
    return Facts(
        device_kind=request.device,
        device_name=str(device["name"]),
        capability=device["capability"],
        cores=device["cores"],
        shared_memory_bytes=device["shared_memory_bytes"],
        libraries=installed(LIBRARIES),
        workload_methods=frozenset(methods),
        unsupported=_known_refusals(request),
        has_convolutions=has_convolutions(workload.model),
        packable=bool(request.answer.get("packable", False)),
    )


def _known_refusals(request: RunRequest) -> dict[str, str]:
    reason = compiler_reason(request.device, triton="triton" in installed(("triton",)))
    compiled = [value for value in knobs.knob("compile").values if value != "off"] if reason else []
    return {f"compile={value}": str(reason) for value in compiled} | dict(request.answer.get("skip", {}))


def installed(names: tuple[str, ...]) -> dict[str, str]:
    """Version by distribution name, for those that are installed."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def compiler_reason(device: str, *, triton: bool, headers: Path | None = None) -> str | None:
    """Why torch.compile cannot work here, or None. It needs a C++ compiler and Python's headers; on CUDA also triton.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        triton: Whether the package triton is installed.
        headers: Folder that should hold ``Python.h``; None for this interpreter's own.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"torch.compile needs a C++ compiler: {compiler!r} is not found (install g++, or set CXX)"
    folder = headers if headers is not None else Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        return f"torch.compile needs Python's headers: there is no Python.h in {folder} (install python3-dev)"
    if device == "cuda" and not triton:
        return "torch.compile needs the package triton on CUDA, which is not installed"
    return None


def has_convolutions(model: torch.nn.Module) -> bool:
    """Whether the model has a 2-d convolution, so that ``memory_format`` can act."""
    from torch import nn

    return any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in model.modules())


class Tries:
    """Tries one choice after another; ``facts.unsupported`` grows by those that do not run."""

    def __init__(self, request: RunRequest, channel: Channel, objective: Objective, facts: Facts) -> None:
        self._request, self._channel, self._objective = request, channel, objective
        base = TrainingConfig.from_mapping({"micro_batch_size": 2, **request.answer.get("base", {})})
        self._base = base.with_values(compile="off", accumulation_steps=1)
        self._reference: Step | None = None
        self._base_reason: str | None = None
        self.facts = facts

    def go(self) -> None:
        """Tries the base, then each asked choice, until all are tried or the worker asks to stop."""
        if BASE not in self.facts.unsupported:
            self._try(BASE, self._base, None)
        for item, value in self._choices():
            if self._channel.stop_requested:
                break
            self._try(f"{item.name}={value}", self._configuration(item, value), item)

    def _choices(self) -> Iterator[tuple[Knob, KnobValue]]:
        asked: Mapping[str, Any] = self._request.answer.get("knobs", {})
        for item in knobs.KNOBS:
            if item.name in NEVER_TRIED or not self._is_asked(item):
                continue
            legal, _ = knobs.legal_values(item, self.facts, asked.get(item.name, ()))
            yield from ((item, value) for value in legal if value != getattr(self._base, item.name))

    def _is_asked(self, item: Knob) -> bool:
        key = ONLY_WHEN_ASKED.get(item.name)
        return key is None or bool(self._request.answer.get(key, False))

    def _configuration(self, item: Knob, value: KnobValue) -> TrainingConfig:
        """The base with this choice, and with a 16-bit precision where the choice needs one."""
        config = self._base.with_values(**{item.name: value})
        halves, _ = knobs.legal_values(knobs.knob("precision"), self.facts, ("bf16-mixed", "fp16-mixed"))
        if item.name != "precision" and knobs.clashes(config, self.facts) and halves:
            return config.with_values(precision=halves[0])
        return config

    def _try(self, name: str, config: TrainingConfig, item: Knob | None) -> None:
        self._channel.send("answer", trying=name)
        refused, unknown = self._outcome(config, item)
        if refused is not None and refused == self._base_reason:
            refused, unknown = None, f"fails as it does without this choice: {refused}"
        self._channel.send("answer", tried=name, refused=refused, unknown=unknown)
        if refused is not None:
            self.facts = replace(self.facts, unsupported={**self.facts.unsupported, name: refused})
        if item is None:
            self._base_reason = refused

    def _outcome(self, config: TrainingConfig, item: Knob | None) -> tuple[str | None, str | None]:
        """Why this configuration is refused, or why nothing was learnt; both None when it runs."""
        try:
            step = self._step(config, updates=item is None or item.name in UPDATED)
        except Exception as error:  # noqa: BLE001 - whatever a choice raises is the answer about it
            return self._judge(error)
        finally:
            gc.collect()  # the failed step's tensors, which the exception held
        if item is None:
            self._reference = step
            return None, None
        return self._compare(step, config, item), None

    def _judge(self, error: Exception) -> tuple[str | None, str | None]:
        text = shortened(f"{type(error).__name__}: {str(error).strip()}")[:600]
        ending = Ending(exit_code=1, phase="measure", chain=tuple(exception_chain(error)), device=self._request.device)
        memory = classify(ending).outcome in ("device_oom", "host_oom", "shm")
        return (None, f"memory ran out in the try: {text}") if memory else (text, None)

    def _step(self, config: TrainingConfig, *, updates: bool) -> Step:
        """One training step of a fresh build; a knob that did not take effect raises."""
        import torch

        from objectives.trial.setup import Setup
        from objectives.trial.trainer import Trainer

        request = self._request
        torch.manual_seed(request.seed)
        device = torch.device(request.device)
        workload = self._objective.build(device, request.seed)
        setup = Setup(device=device, workload=workload, config=config, learning_rate=request.learning_rate)
        knobs.apply_all(setup)
        if setup.compile_options is not None:
            setup.model.compile(**setup.compile_options)
        trainer = Trainer(setup, max_grad_norm=request.max_grad_norm)
        batch = trainer.place(first_batch(workload, config.micro_batch_size))
        torch.manual_seed(request.seed)
        units = trainer.micro_step(batch)
        norms, without = gradient_norms(setup.model)
        _require_applied(setup)
        loss = float(trainer.update().loss) if updates else None
        return Step(loss=loss, units=units, gradient_norms=norms, without_gradient=without)

    def _compare(self, step: Step, config: TrainingConfig, item: Knob) -> str | None:
        """Why a step that ran is refused all the same: a parameter without gradient (case I11), another loss."""
        reference = self._reference
        if reference is None or item.name in ("micro_batch_size", "batching", "tokens"):
            return None
        lost = len(step.without_gradient) - len(reference.without_gradient)
        if lost > 0:
            return f"{lost} more trainable parameters get no gradient: {', '.join(step.without_gradient)}"[:600]
        return unequal(step, reference, config) if item.name == "loss" else None


def _require_applied(setup: Any) -> None:
    found = knobs.differences(setup)
    if found:
        raise RuntimeError("; ".join(f"{d['knob']}: asked {d['asked']!r}, found {d['found']!r}" for d in found))


def first_batch(workload: Workload, samples: int) -> Batch:
    """A micro-batch of the first samples of the real data."""
    dataset = workload.dataset()
    return workload.collate([dataset[index % len(dataset)] for index in range(samples)])


def gradient_norms(model: torch.nn.Module) -> tuple[dict[str, float], tuple[str, ...]]:
    """Euclidean norm of each trainable parameter's gradient by name, and the names of those without one."""
    trainable = [(name, p.grad) for name, p in model.named_parameters() if p.requires_grad]
    norms = {name: float(gradient.float().norm()) for name, gradient in trainable if gradient is not None}
    return norms, tuple(name for name, gradient in trainable if gradient is None)


def unequal(step: Step, reference: Step, config: TrainingConfig) -> str | None:
    """Why two ways to compute one loss are not the same, or None."""
    tolerance = TOLERANCE_EXACT if config.precision == "fp32" else TOLERANCE_HALF
    if step.units != reference.units:
        return f"counts {step.units} units where the full loss counts {reference.units}"
    if len(step.gradient_norms) != len(reference.gradient_norms):
        return f"gives {len(step.gradient_norms)} gradients where the full loss gives {len(reference.gradient_norms)}"
    floor = max(reference.gradient_norms.values(), default=0.0) * 1e-3  # far below the others is rounding
    for name, found, wanted in _pairs(step, reference):
        if not abs(found - wanted) <= tolerance * max(abs(wanted), floor):
            return f"differs from the full loss: {name} is {found:.6g} instead of {wanted:.6g}"
    return None


def _pairs(step: Step, reference: Step) -> Iterator[tuple[str, float, float]]:
    """What two steps found, side by side. A loss may rename a parameter (a wrapped head): those pair up by size."""
    yield "loss", float(step.loss or 0.0), float(reference.loss or 0.0)
    ours, theirs = step.gradient_norms, reference.gradient_norms
    yield from ((f"gradient norm of {name}", ours[name], theirs[name]) for name in ours if name in theirs)
    renamed = sorted((ours[name], name) for name in ours if name not in theirs)
    before = sorted(theirs[name] for name in theirs if name not in ours)
    yield from (
        (f"gradient norm of {name}", found, wanted) for (found, name), wanted in zip(renamed, before, strict=True)
    )
