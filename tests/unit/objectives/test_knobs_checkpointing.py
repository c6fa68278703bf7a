"""Checkpointing on a library's model, an older library's, one with adapters, a user's own; and models that cannot."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.knobs.checkpointing import can_checkpoint
from objectives.trial.setup import Setup

sys.path.append(str(Path(__file__).parents[2] / "workloads"))
from tests_tiny_lm import ConvolutionNet, PictureWorkload, TinyWorkload, make_llama

CPU = torch.device("cpu")
KINDS = ["none", "selective", "full"]


def checkpointed(workload: Any, value: str) -> Setup:
    setup = Setup(device=CPU, workload=workload, config=TrainingConfig(activation_checkpointing=value))
    knobs.apply_all(setup)
    return setup


def gradients(setup: Setup) -> dict[str, torch.Tensor]:
    batch = setup.workload.collate([setup.workload.dataset()[i] for i in (0, 3)])
    setup.model.train()
    torch.manual_seed(0)
    loss, units = setup.workload.loss(setup.model, batch)
    (loss / units).backward()
    named = [(name, p.grad) for name, p in setup.model.named_parameters() if p.requires_grad]
    assert all(grad is not None for _, grad in named)
    return {name: grad for name, grad in named if grad is not None}


def lora(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
        return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def frozen_embeddings(model: Any) -> Any:
    model.get_input_embeddings().weight.requires_grad_(False)
    return model


@pytest.mark.case("I11")
@pytest.mark.parametrize("value", ["selective", "full"])
@pytest.mark.parametrize("change", [lambda model: model, lora, frozen_embeddings], ids=["plain", "lora", "frozen"])
def test_checkpointing_changes_no_gradient_and_loses_none(change: Any, value: str) -> None:
    found = {}
    for kind in ("none", value):
        torch.manual_seed(0)
        setup = checkpointed(TinyWorkload(change(make_llama())), kind)
        assert knobs.read_back(setup)["activation_checkpointing"] == kind
        found[kind] = gradients(setup)
    assert found["none"].keys() == found[value].keys()
    for name, wanted in found["none"].items():
        torch.testing.assert_close(found[value][name], wanted)


@pytest.mark.case("I11")
def test_the_cache_of_keys_and_values_is_off_and_the_kind_is_never_reentrant() -> None:
    setup = checkpointed(TinyWorkload(make_llama()), "full")
    assert setup.model.config.use_cache is False
    options = [
        m._gradient_checkpointing_func.keywords
        for m in setup.model.modules()
        if getattr(m, "gradient_checkpointing", 0)
    ]
    assert options
    assert all(option["use_reentrant"] is False for option in options)


@pytest.mark.parametrize("value", KINDS)
def test_a_user_s_blocks_are_wrapped_and_give_the_same_gradients(value: str) -> None:
    torch.manual_seed(0)
    plain = gradients(checkpointed(PictureWorkload(ConvolutionNet()), "none"))
    torch.manual_seed(0)
    setup = checkpointed(PictureWorkload(ConvolutionNet()), value)
    assert knobs.read_back(setup)["activation_checkpointing"] == value
    for name, wanted in gradients(setup).items():
        torch.testing.assert_close(wanted, plain[name])


def recomputed(value: str, operator: str) -> int:
    """How often an operator runs in forward and backward of the convolution net."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Count.seen += str(func) == operator
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    setup = checkpointed(PictureWorkload(ConvolutionNet()), value)
    with Count():
        gradients(setup)
    return Count.seen


def test_selective_keeps_convolutions_and_recomputes_what_is_cheap() -> None:
    assert [recomputed(kind, "aten.convolution.default") for kind in KINDS] == [2, 2, 4]
    relu = [recomputed(kind, "aten.relu.default") for kind in KINDS]
    assert relu[0] == 2
    assert relu[1] == relu[2] == 4


class OlderModel(nn.Module):
    """Knows only the name that transformers had before 5.2x."""

    supports_gradient_checkpointing = True

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        import functools

        self.gradient_checkpointing = True
        self._gradient_checkpointing_func = functools.partial(print, **gradient_checkpointing_kwargs)


@pytest.mark.parametrize("value", ["selective", "full"])
def test_an_older_library_s_name_is_used_where_the_newer_is_missing(value: str) -> None:
    workload = TinyWorkload(OlderModel())
    workload.set_attention = lambda name: None  # type: ignore[method-assign]
    workload.optimizer = lambda parameters: None  # type: ignore[attr-defined]
    assert knobs.read_back(checkpointed(workload, value))["activation_checkpointing"] == value


def test_a_model_that_cannot_is_told_so() -> None:
    class Cannot(nn.Linear):
        supports_gradient_checkpointing = False

    workload = TinyWorkload(Cannot(2, 2))
    workload.set_attention = lambda name: None  # type: ignore[method-assign]
    assert not can_checkpoint(workload)
    assert can_checkpoint(PictureWorkload(ConvolutionNet()))
    with pytest.raises(ValueError, match="Cannot needs checkpoint_blocks"):
        checkpointed(workload, "full")


def test_a_reentrant_switch_made_elsewhere_shows_as_a_difference() -> None:
    setup = checkpointed(TinyWorkload(make_llama()), "none")
    setup.model.activation_checkpointing_enable({"use_reentrant": True})  # type: ignore[operator]
    (difference,) = knobs.differences(setup)
    assert difference == {"knob": "activation_checkpointing", "asked": "none", "found": "reentrant"}
