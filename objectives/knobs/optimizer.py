"""Which AdamW: the same mathematics in three kernels, or with its state in eight bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    import torch

    from objectives.trial.setup import Setup

_DOCUMENT = "PyTorch documentation, torch.optim.AdamW, arguments `foreach` and `fused`"
_KERNELS: dict[str, dict[str, Any]] = {
    "adamw": {"foreach": False, "fused": False},
    "adamw-foreach": {"foreach": True, "fused": False},
    "adamw-fused": {"foreach": False, "fused": True},
}


def _refuse(value: str, facts: Facts) -> str | None:
    if "optimizer" in facts.workload_methods:
        return None if value == "adamw" else "the workload brings its own optimizer"
    if value == "adamw-8bit" and "bitsandbytes" not in facts.libraries:
        return "needs the package bitsandbytes, which is not installed"
    return None


def _offer(value: str, _facts: Facts) -> bool:
    return value != "adamw-8bit"  # its updates are not the same numbers: only on request


def _apply(setup: Setup, value: str) -> None:
    trainable = [parameter for parameter in setup.model.parameters() if parameter.requires_grad]
    if hasattr(setup.workload, "optimizer"):
        setup.optimizer = setup.workload.optimizer(trainable)
    else:
        setup.optimizer = _make(value, trainable, setup.learning_rate)


def _make(value: str, parameters: list[Any], learning_rate: float) -> torch.optim.Optimizer:
    import torch

    if value == "adamw-8bit":
        from bitsandbytes.optim import AdamW8bit

        made: torch.optim.Optimizer = AdamW8bit(parameters, lr=learning_rate)
        return made
    return torch.optim.AdamW(parameters, lr=learning_rate, **_KERNELS[value])


def _read_back(setup: Setup) -> str | None:
    """From the class and the parameter groups; None for a workload's own optimizer."""
    optimizer = setup.optimizer
    if optimizer is None or hasattr(setup.workload, "optimizer"):
        return None
    name = type(optimizer).__name__
    if name == "AdamW8bit":
        return "adamw-8bit"
    kernels = {(bool(group.get("foreach")), bool(group.get("fused"))) for group in optimizer.param_groups}
    for value, wanted in _KERNELS.items():
        if name == "AdamW" and kernels == {(wanted["foreach"], wanted["fused"])}:
            return value
    return f"{name} {sorted(kernels)}"


OPTIMIZER = Knob(
    name="optimizer",
    kind="choice",
    summary="Which implementation of AdamW makes the update.",
    default="adamw",
    choices=(
        Choice(
            value="adamw",
            meaning="A loop over the parameters: the least memory for temporaries, the most kernel launches.",
            source=_DOCUMENT,
        ),
        Choice(
            value="adamw-foreach",
            meaning="All parameters in few multi-tensor calls: fast, with a temporary as large as the parameters.",
            source=_DOCUMENT,
        ),
        Choice(
            value="adamw-fused",
            meaning="The whole update in one kernel per group: fast, and without that temporary.",
            source=_DOCUMENT,
        ),
        Choice(
            value="adamw-8bit",
            meaning="Keeps both moments in blocks of eight bits: a quarter of the state's memory, rounded updates.",
            source="Dettmers et al. 2022, '8-bit Optimizers via Block-wise Quantization'; bitsandbytes documentation",
        ),
    ),
    refuse=_refuse,
    offer=_offer,
    apply=_apply,
    read_back=_read_back,
)
