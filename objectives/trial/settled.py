"""Takes the chance out of a model, so that two ways to compute its gradient can be compared: dropout and its kin off.

The model stays in training mode: in evaluation mode batch norm would use its running statistics and hide that its
gradient depends on the micro-batch.
"""

from __future__ import annotations

import torch
from torch import nn

WORDS = ("dropout", "drop_path", "drop_prob", "drop_rate", "layerdrop", "jitter")
"""Parts of the names under which models keep a probability that they hand to a function."""


def without_chance(model: nn.Module) -> tuple[str, ...]:
    """Sets every dropout probability found to zero. Returns where, as ``module.attribute``."""
    found = []
    for name, module in model.named_modules():
        for attribute in _probabilities(module):
            setattr(module, attribute, 0.0)
            found.append(f"{name}.{attribute}".lstrip("."))
    _settle_config(model)
    return tuple(found)


def _probabilities(module: nn.Module) -> list[str]:
    """Attributes of this module that hold a probability of dropping something."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return ["p"] if module.p > 0 else []
    return [name for name, value in vars(module).items() if _is_probability(name, value)]


def _is_probability(name: str, value: object) -> bool:
    return isinstance(value, float) and 0 < value <= 1 and any(word in name.lower() for word in WORDS)


def _settle_config(model: nn.Module) -> None:
    """Transformers' models read some of theirs from the configuration at each call."""
    for module in model.modules():
        config = getattr(module, "config", None)
        for name, value in list(vars(config).items()) if hasattr(config, "__dict__") else []:
            if _is_probability(name, value):
                setattr(config, name, 0.0)


def statistics_modules(model: nn.Module) -> tuple[str, ...]:
    """Names of modules that in training compute with statistics of the whole micro-batch (batch norm)."""
    kinds: tuple[type[nn.Module], ...] = (nn.modules.batchnorm._BatchNorm,)
    return tuple(
        name for name, module in model.named_modules()
        if isinstance(module, kinds) and (module.training or not module.track_running_stats)
    )  # fmt: skip


def reseed(seed: int) -> None:
    """Whatever chance is left starts from here."""
    torch.manual_seed(seed)
