"""The body of an ``estimate`` run: predicts the peak memory of many configurations. Trains nothing, needs no device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from objectives.config import TrainingConfig
from objectives.contract import load_objective
from objectives.estimate import Estimator
from objectives.estimate.estimator import families

if TYPE_CHECKING:
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"configs": [mapping of TrainingConfig, ...]}``.

    Sends one ``answer`` event each, ``config`` as it was asked for and ``prediction`` as
    :meth:`objectives.estimate.prediction.Prediction.to_mapping` makes it, family by family, the first asked for first.
    Asked to stop, it leaves the rest out.
    """
    channel.phase("import")
    torch.set_num_threads(request.threads)
    objective = load_objective(request.objective)
    channel.phase("build")
    estimator = Estimator(objective, device=request.device, seed=request.seed, max_grad_norm=request.max_grad_norm)
    for family in families(TrainingConfig.from_mapping(values) for values in request.answer["configs"]):
        for config, prediction in estimator.predict_all(family):
            channel.send("answer", config=config.to_mapping(), prediction=prediction.to_mapping())
        if channel.stop_requested:
            break
    channel.phase("done")
