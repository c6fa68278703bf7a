"""Predicts the peak memory of configurations, many of them cheaply."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from objectives.config import TrainingConfig
from objectives.estimate.prediction import MicroPiece, Prediction, Unpredictable, UpdatePiece, between, worst
from objectives.estimate.rehearsal import Rehearsal

if TYPE_CHECKING:
    from objectives.contract import Objective

HOST_KNOBS = ("loader_workers", "prefetch_factor", "pin_memory", "tokens", "allocator")
"""Knobs that no tensor on the device depends on."""
UPDATE_KNOBS = ("precision", "memory_format", "optimizer")
"""What the update's memory depends on beside the model."""
STRAIGHT = 0.0005
"""A size whose peak is within this share of the line between its neighbours lies on it."""
_CUDA_ONLY = ("sdpa-efficient", "sdpa-cudnn", "flash_attention_2", "flex_attention")

Sized = tuple[int, bool]
"""A micro-batch size, and whether the configuration accumulates."""


class Estimator:
    """Predictions for one objective on one kind of device. Keeps what configurations share.

    Args:
        objective: Must build on the meta device (the built-ins do); one that cannot gets notes instead of peaks.
        device: ``cpu`` or ``cuda``. Without a CUDA device here, CUDA is predicted with the CPU's kernels, and says so.
        seed: Of the study.
        max_grad_norm: For the gradient clip.
    """

    def __init__(
        self, objective: Objective, *, device: torch.device | str, seed: int = 0, max_grad_norm: float = 1.0
    ) -> None:
        self._objective = objective
        self._wanted = torch.device(device).type
        self._device = torch.device("cuda", 0) if self._plays_cuda() else torch.device("cpu")
        self._seed, self._max_grad_norm = seed, max_grad_norm
        self._rehearsal: tuple[TrainingConfig, Rehearsal] | None = None
        self._micro: dict[tuple[TrainingConfig, Sized], MicroPiece] = {}
        self._updates: dict[tuple[object, ...], UpdatePiece] = {}
        self._failures: dict[object, str] = {}
        """Reasons by family, or by what decides an update."""

    def _plays_cuda(self) -> bool:
        return self._wanted == "cuda" and torch.cuda.is_available()

    def predict(self, config: TrainingConfig) -> Prediction:
        """The peak of one configuration. Never raises: what cannot be predicted says why in its note."""
        return next(iter(self.predict_all([config])))[1]

    def predict_all(self, configs: Iterable[TrainingConfig]) -> Iterator[tuple[TrainingConfig, Prediction]]:
        """Every configuration with its prediction, family by family (not in the order given)."""
        ordered = sorted(configs, key=lambda config: repr(self._family(config)))
        for family, members in groupby(ordered, key=self._family):
            yield from self._predict_family(family, list(members))

    def _family(self, config: TrainingConfig) -> TrainingConfig:
        family = family_of(config)
        return family.with_values(attention=self._attention(family.attention))

    def _attention(self, name: str) -> str:
        return "sdpa" if self._device.type == "cpu" and name in _CUDA_ONLY else name

    def _predict_family(
        self, family: TrainingConfig, members: Sequence[TrainingConfig]
    ) -> Iterator[tuple[TrainingConfig, Prediction]]:
        begun = time.perf_counter()
        self._try(family, lambda: self._play_sizes(family, {_sized(config) for config in members}))
        for config in members:
            made = self._predict_member(family, config)
            now = time.perf_counter()
            yield config, replace(made, seconds=now - begun)
            begun = time.perf_counter()

    def _predict_member(self, family: TrainingConfig, config: TrainingConfig) -> Prediction:
        if family not in self._failures:
            self._try(_update_key(config), lambda: self._play_update(family, config))
        failure = self._failures.get(family) or self._failures.get(_update_key(config))
        if failure is not None:
            return Prediction(peak_memory_bytes=None, note=failure, wide=True)
        return self._compose(family, config)

    def _try(self, key: object, play: Callable[[], None]) -> None:
        """Plays something, once; why that cannot be done is kept under the key."""
        if key in self._failures:
            return
        try:
            play()
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything; then there is no prediction
            self._rehearsal = None  # broken off in the middle of a step
            self._failures[key] = _reason(error)

    def _played(self, family: TrainingConfig) -> Rehearsal:
        if self._rehearsal is None or self._rehearsal[0] != family:
            self._rehearsal = None  # the old one goes first
            made = Rehearsal(self._objective, family, self._device, seed=self._seed, max_grad_norm=self._max_grad_norm)
            self._rehearsal = (family, made)
        return self._rehearsal[1]

    def _play_sizes(self, family: TrainingConfig, wanted: set[Sized]) -> None:
        for accumulates in (False, True):
            sizes = sorted(size for size, flag in wanted if flag == accumulates)
            if sizes and sizes[0] == 1:  # a single sample has no padding, so it may lie off the others' line
                self._piece(family, (sizes.pop(0), accumulates))
            self._fill(family, sizes, accumulates)

    def _fill(self, family: TrainingConfig, sizes: Sequence[int], accumulates: bool) -> None:
        """Plays the ends and the middle of ascending sizes; halves what is not straight, interpolates what is.

        The peak is the largest of several lines, so convex: where its middle lies on the line between the ends, all do.
        """
        if len(sizes) <= 3:
            for size in sizes:
                self._piece(family, (size, accumulates))
            return
        low, middle, high = sizes[0], sizes[len(sizes) // 2], sizes[-1]
        first, last = ((size, self._piece(family, (size, accumulates))) for size in (low, high))
        seen = self._piece(family, (middle, accumulates)).peak.total_bytes
        line = between(first, last, middle).peak.total_bytes
        if abs(seen - line) <= STRAIGHT * seen:
            for size in sizes:
                self._micro.setdefault((family, (size, accumulates)), between(first, last, size))
            return
        self._fill(family, sizes[: len(sizes) // 2 + 1], accumulates)
        self._fill(family, sizes[len(sizes) // 2 :], accumulates)

    def _piece(self, family: TrainingConfig, sized: Sized) -> MicroPiece:
        key = (family, sized)
        if key not in self._micro:
            self._micro[key] = self._played(family).micro_piece(sized[0], accumulates=sized[1])
        return self._micro[key]

    def _play_update(self, family: TrainingConfig, config: TrainingConfig) -> None:
        key = _update_key(config)
        if key not in self._updates:
            smallest = min(size for (known, (size, _)) in self._micro if known == family)
            self._updates[key] = self._played(family).update_piece(config.optimizer, smallest)

    def _compose(self, family: TrainingConfig, config: TrainingConfig) -> Prediction:
        micro = self._micro[family, _sized(config)]
        peak = worst(micro, self._updates[_update_key(config)])
        notes = self._notes(config, micro)
        return Prediction(
            peak_memory_bytes=peak.total_bytes,
            categories=peak.categories,
            operator_at_peak=peak.operator,
            note="; ".join(notes) or None,
            wide=bool(notes),
        )

    def _notes(self, config: TrainingConfig, micro: MicroPiece) -> list[str]:
        notes = []
        if self._wanted != self._device.type:
            notes.append(f"predicted with the {self._device.type}'s kernels: there is no {self._wanted} device here")
        if self._attention(config.attention) != config.attention:
            notes.append(f"predicted with sdpa instead of {config.attention}")
        if config.compile != "off":
            notes.append("predicted without compilation, which changes what is kept")
        if micro.guessed:
            notes.append("the loss reads a value that only a run knows; 0 was taken")
        return notes


def family_of(config: TrainingConfig) -> TrainingConfig:
    """The configuration with everything at its default that does not decide a micro-step's memory."""
    default = TrainingConfig()
    left_out = ("micro_batch_size", "accumulation_steps", "optimizer", "compile", *HOST_KNOBS)
    return replace(config, **{name: getattr(default, name) for name in left_out})


def families(configs: Iterable[TrainingConfig]) -> list[list[TrainingConfig]]:
    """The configurations by family, in the order in which the families first occur."""
    found: dict[TrainingConfig, list[TrainingConfig]] = {}
    for config in configs:
        found.setdefault(family_of(config), []).append(config)
    return list(found.values())


def predict(
    objective: Objective,
    config: TrainingConfig,
    *,
    device: torch.device | str,
    seed: int = 0,
    max_grad_norm: float = 1.0,
) -> Prediction:
    """The peak of one configuration; for several, an :class:`Estimator` shares what they have in common."""
    return Estimator(objective, device=device, seed=seed, max_grad_norm=max_grad_norm).predict(config)


def _sized(config: TrainingConfig) -> Sized:
    return config.micro_batch_size, config.accumulation_steps > 1


def _update_key(config: TrainingConfig) -> tuple[object, ...]:
    return tuple(getattr(config, name) for name in UPDATE_KNOBS)


def _reason(error: Exception) -> str:
    if isinstance(error, Unpredictable):
        return f"not predictable: {error}"
    text = " ".join(str(error).split())[:300]
    return f"not predictable: {type(error).__name__}: {text}"
