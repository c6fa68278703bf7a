"""The body of an ``estimate`` run: predicts the peak memory of many configurations. Trains nothing, needs no device.

Families are independent, and playing them is one thread's work: on several cores a process each shares them out. The
processes are forked before any of them has touched a device.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from objectives.config import TrainingConfig
from objectives.contract import Objective, load_objective
from objectives.estimate import Estimator
from objectives.estimate.estimator import families

if TYPE_CHECKING:
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest

MOST_PROCESSES = 8
"""More would each build what the others have built, too."""
FAMILIES_FOR_TWO = 4
"""Fewer families are done before a second process would have begun."""

Answer = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A configuration and its prediction, both as plain data."""


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"configs": [mapping of TrainingConfig, ...]}``.

    Sends one ``answer`` event each, ``config`` as it was asked for and ``prediction`` as
    :meth:`objectives.estimate.prediction.Prediction.to_mapping` makes it, family by family: not in the order asked.
    Asked to stop, it leaves the rest out.
    """
    channel.phase("import")
    torch.set_num_threads(1)
    objective = load_objective(request.objective)
    channel.phase("build")
    asked = families(TrainingConfig.from_mapping(values) for values in request.answer["configs"])
    processes = min(request.threads, len(asked) // 2, MOST_PROCESSES) if len(asked) >= FAMILIES_FOR_TWO else 1
    player = _Player(request, objective)
    for config, prediction in player.alone(asked) if processes == 1 else player.together(asked, processes):
        channel.send("answer", config=config, prediction=prediction)
        if channel.stop_requested:
            break
    channel.phase("done")


class _Player:
    """Plays families in this process or in several."""

    def __init__(self, request: RunRequest, objective: Objective) -> None:
        self._request, self._objective = request, objective
        self._estimator: Estimator | None = None

    def alone(self, asked: Sequence[Sequence[TrainingConfig]]) -> Iterator[Answer]:
        """One family after the other."""
        for family in asked:
            yield from self.play(family)

    def together(self, asked: Sequence[Sequence[TrainingConfig]], processes: int) -> Iterator[Answer]:
        """Each process takes the next family when it is done with one; its processes end with the iteration."""
        global _player
        _player = self
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            for answers in pool.imap_unordered(_play, asked):
                yield from answers

    def play(self, family: Sequence[TrainingConfig]) -> list[Answer]:
        """The answers of one family. Nothing is built before the first: a forked process must do that itself."""
        request = self._request
        self._estimator = self._estimator or Estimator(
            self._objective, device=request.device, seed=request.seed, max_grad_norm=request.max_grad_norm
        )
        found = self._estimator.predict_all(family)
        return [(config.to_mapping(), prediction.to_mapping()) for config, prediction in found]


_player: _Player | None = None
"""What the forked processes inherit."""


def _play(family: Sequence[TrainingConfig]) -> list[Answer]:
    assert _player is not None, "set before the processes are forked"
    return _player.play(family)
