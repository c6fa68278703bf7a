"""The body of a ``verify`` run: whether this configuration trains what the baseline trains.

On the user's own workload with dropout off: the gradient of one global batch at the examined split against that of a
reference split, in fp32 and in the configuration's own precision; where they differ, why; then a short loss curve of
both configurations from the same seed. The model stays eager: compilation changes no accumulation.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.contract import load_objective
from objectives.measure.gradients import Gradient, bound_of, by_parameter, distance, gradient_of
from objectives.trial.loss_curve import Curve, CurveOrder, Curves, run_curve
from objectives.trial.separable import Explanation, explain, probe
from objectives.trial.settled import reseed, without_chance
from objectives.trial.setup import Setup
from objectives.trial.splits import (
    Split,
    collated,
    indices_of,
    lengths_of,
    reference_split,
    uneven_batch,
    unlike_groups,
)
from objectives.trial.trainer import Trainer
from objectives.trial.training_loop import open_device

if TYPE_CHECKING:
    from objectives.contract import Objective
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest

CURVE_UPDATES = 12
CURVE_SECONDS = 30.0
"""One loss curve ends after so long."""
PLAIN = {"compile": "off", "loader_workers": 0, "pin_memory": False}
"""What a verified run leaves out: it changes no number, and costs time."""
INFINITE = float("inf")


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"baseline": config, "whole_fits": bool, "curve_updates": n, "curve_seconds": s}``.

    ``request.config`` is the examined configuration. Sends one ``answer`` with the fields of
    :class:`tuner.doctor.evidence.Verified` and, beside them, ``gradients`` (all comparisons), ``fault`` (``kind`` and
    ``text``, or null), ``without_chance`` and ``notes``.
    """
    channel.phase("import")
    device = open_device(request)
    objective = load_objective(request.objective)
    channel.phase("build")
    examination = Examination(request, channel, objective, device)
    channel.phase("measure")
    found = examination.gradients()
    channel.phase("eval")
    found |= examination.curves()
    channel.send("answer", **found, notes=examination.notes)
    channel.phase("done")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Both gradients in one precision."""

    precision: str
    examined: Gradient
    reference: Gradient

    @property
    def distance(self) -> float:
        """Of the examined from the reference."""
        return distance(self.examined, self.reference)


class Examination:
    """Everything one run looks at. Builds the workload anew for each precision and each curve: one model at a time."""

    def __init__(self, request: RunRequest, channel: Channel, objective: Objective, device: torch.device) -> None:
        self._request, self._channel, self._objective, self._device = request, channel, objective, device
        self._config = TrainingConfig.from_mapping(request.config).with_values(**PLAIN)
        self._baseline = TrainingConfig.from_mapping(request.answer["baseline"]).with_values(**PLAIN)
        self._split = Split(
            micro_batch_size=self._config.micro_batch_size, accumulation_steps=self._config.accumulation_steps
        )
        self.notes: list[str] = []

    def _open(self, config: TrainingConfig, *, clipped: bool) -> tuple[Setup, Trainer, tuple[str, ...]]:
        """A model as training would have it, but for its chance."""
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        reseed(self._request.seed)
        workload = self._objective.build(self._device, self._request.seed)
        reseed(self._request.seed)
        setup = Setup(device=self._device, workload=workload, config=config, learning_rate=self._request.learning_rate)
        knobs.apply_all(setup)
        trainer = Trainer(setup, max_grad_norm=self._request.max_grad_norm if clipped else INFINITE)
        return setup, trainer, without_chance(setup.model)

    # Gradients

    def gradients(self) -> dict[str, Any]:
        """The comparisons, what explains a difference, and what else one global batch shows."""
        reference = reference_split(
            self._split,
            baseline=self._baseline.micro_batch_size,
            whole_fits=bool(self._request.answer.get("whole_fits")),
        )
        precise, told, facts = self._exact(reference)
        compared = [told] if told else []
        if reference is not None and self._config.precision != "fp32":
            own = self._own_precision(reference, precise)
            compared.append(own)
        worst = max(compared, key=lambda each: each["distance"] / each["bound"], default=None)
        return {**facts, "gradient": worst, "gradients": compared}

    def _exact(self, reference: Split | None) -> tuple[Compared | None, dict[str, Any] | None, dict[str, Any]]:
        """In fp32, where a fault stands orders of magnitude above rounding."""
        setup, trainer, chance = self._open(self._config.with_values(precision="fp32"), clipped=False)
        facts: dict[str, Any] = {"without_chance": list(chance), **_data_facts(setup, self._split)}
        indices = self._indices(setup)
        examined = self._gradient(setup, trainer, indices)
        facts["without_gradient"] = [
            name for name, p in setup.model.named_parameters() if p.requires_grad and name not in examined
        ]
        if reference is None:
            self.notes.append("a global batch of one sample has one split: there is nothing to compare")
            return None, None, facts
        parts = self._gradient(setup, trainer, _resplit(indices, reference))
        compared = Compared(precision="fp32", examined=examined, reference=parts)
        told = self._told(compared, reference, scale=None)
        if told["distance"] > told["bound"]:
            facts |= self._explained(setup, trainer, indices, examined)
        return compared, told, facts

    def _indices(self, setup: Setup) -> list[list[int]]:
        """The samples of the examined split; the global batch with the most unequal micro-batches near the start."""
        lengths, samples = lengths_of(setup.workload), len(setup.workload.dataset())
        index = uneven_batch(lengths, samples, self._split)
        return indices_of(setup.workload, self._split, self._config.batching, index)

    def _gradient(self, setup: Setup, trainer: Trainer, indices: Sequence[Sequence[int]], seed: int = 0) -> Gradient:
        reseed(self._request.seed + seed)
        return gradient_of(setup, trainer, collated(setup.workload, indices))

    def _own_precision(self, reference: Split, precise: Compared | None) -> dict[str, Any]:
        """In the configuration's own precision; its scale is the reference split's distance from fp32."""
        setup, trainer, _chance = self._open(self._config, clipped=False)
        indices = self._indices(setup)
        compared = Compared(
            precision=self._config.precision,
            examined=self._gradient(setup, trainer, indices),
            reference=self._gradient(setup, trainer, _resplit(indices, reference)),
        )
        scale = None if precise is None else distance(compared.reference, precise.reference)
        return self._told(compared, reference, scale=scale)

    def _told(self, compared: Compared, reference: Split, scale: float | None) -> dict[str, Any]:
        return {
            "precision": compared.precision,
            "micro_batch_size": self._split.micro_batch_size,
            "accumulation_steps": self._split.accumulation_steps,
            "reference_micro_batch_size": reference.micro_batch_size,
            "reference_accumulation_steps": reference.accumulation_steps,
            "distance": min(compared.distance, 1e9),
            "bound": bound_of(compared.precision, scale),
            "scale": scale,
            "parameters": [
                {"name": name, "distance": min(off, 1e9)}
                for name, off in by_parameter(compared.examined, compared.reference)
            ],
        }

    def _explained(
        self, setup: Setup, trainer: Trainer, indices: Sequence[Sequence[int]], examined: Gradient
    ) -> dict[str, Any]:
        again = distance(self._gradient(setup, trainer, indices, seed=1), examined)
        groups = unlike_groups(list(chain.from_iterable(indices)), lengths_of(setup.workload))
        probed = None if groups is None else probe(setup, trainer, groups, self._request.seed)
        why: Explanation = explain(setup.model, probed, again=again, bound=bound_of("fp32", None))
        if why.not_comparable is not None:
            return {"not_comparable": why.not_comparable}
        return {"fault": {"kind": why.fault, "text": why.text}}

    # Loss curves

    def curves(self) -> dict[str, Any]:
        """Winner against baseline; the baseline once more with its sums in another order."""
        if (reason := self._no_curves()) is not None:
            self.notes.append(reason)
            return {"loss_curve": None}
        examined = self._curve(self._config)
        count = len(examined.losses)
        made = Curves(
            examined=examined,
            reference=self._curve(self._baseline, updates=count),
            again=self._curve(self._baseline, updates=count, mirrored=True),
        )
        updates = len(examined.losses)
        schedules = examined.schedules / updates if examined.schedules else None
        lost = examined.rounded_away
        return {
            "loss_curve": made.to_mapping((self._config.precision, self._baseline.precision)),
            "scheduler_steps_per_update": schedules,
            "lost_update_shares": {} if lost is None else {"bf16-true": lost},
        }

    def _no_curves(self) -> str | None:
        if not self._updates:
            return "no loss curve was asked for"
        if (self._config.batching == "packed") != (self._baseline.batching == "packed"):
            return "packed and unpacked batches hold other samples: their loss curves are not comparable"
        if self._channel.stop_requested:
            return "stopped before the loss curves"
        return None

    @property
    def _updates(self) -> int:
        return int(self._request.answer.get("curve_updates", CURVE_UPDATES))

    def _curve(self, config: TrainingConfig, *, updates: int | None = None, mirrored: bool = False) -> Curve:
        setup, trainer, _chance = self._open(config, clipped=True)
        order = CurveOrder(
            updates=self._updates if updates is None else updates,
            seconds=float(self._request.answer.get("curve_seconds", CURVE_SECONDS)) if updates is None else INFINITE,
            mirrored=mirrored,
            look_at_rounding=updates is None,
        )
        return run_curve(setup, trainer, order, lambda: self._channel.stop_requested)


def _resplit(indices: Sequence[Sequence[int]], split: Split) -> list[list[int]]:
    """The same samples in the same order, in other micro-batches."""
    flat = list(chain.from_iterable(indices))
    size = split.micro_batch_size
    return [flat[start : start + size] for start in range(0, len(flat), size)]


def _data_facts(setup: Setup, split: Split) -> Mapping[str, int]:
    """Samples of one pass, and those behind the last whole window."""
    samples = len(setup.workload.dataset())
    return {"samples": samples, "lost_samples": samples % split.samples}
