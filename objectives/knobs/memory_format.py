"""Order of the dimensions of pictures and convolution weights in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    import torch

    from objectives.trial.setup import Setup


def _refuse(value: str, facts: Facts) -> str | None:
    if value == "channels_last" and not facts.has_convolutions:
        return "the model has no 2-d convolution for channels_last to act on"
    return None


def _apply(setup: Setup, value: str) -> None:
    import torch

    layout = torch.channels_last if value == "channels_last" else torch.contiguous_format
    move: Any = setup.model.to  # its stub lacks this argument
    move(memory_format=layout)  # acts on 4-d tensors alone


def _tells(weight: torch.Tensor) -> bool:
    """Whether the two orders differ for this weight at all: more than one channel and more than one pixel."""
    return weight.dim() == 4 and weight.shape[1] > 1 and weight.shape[2] * weight.shape[3] > 1


def _read_back(setup: Setup) -> str | None:
    """From the strides of the convolution weights; None where no weight can tell."""
    import torch

    weights = [parameter for parameter in setup.model.parameters() if _tells(parameter)]
    if not weights:
        return None
    last = [weight.is_contiguous(memory_format=torch.channels_last) for weight in weights]
    if all(last):
        return "channels_last"
    return "partly channels_last" if any(last) else "contiguous"


def convert_batch(batch: Any, config: TrainingConfig) -> Any:
    """The batch as the configuration's model takes it; everything else in it is left as it is.

    4-d tensors get the memory format; under ``bf16-true`` 32-bit floating tensors (pictures) become bfloat16, as
    the parameters they meet.
    """
    if config.memory_format != "channels_last" and config.precision != "bf16-true":
        return batch
    return _convert(batch, config)


def _convert(item: Any, config: TrainingConfig) -> Any:
    import torch

    if isinstance(item, torch.Tensor):
        return _convert_tensor(item, config)
    if isinstance(item, Mapping):
        return type(item)({name: _convert(value, config) for name, value in item.items()})  # type: ignore[call-arg]
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_convert(value, config) for value in item))
    if isinstance(item, (list, tuple)):
        return type(item)(_convert(value, config) for value in item)
    return item


def _convert_tensor(tensor: torch.Tensor, config: TrainingConfig) -> torch.Tensor:
    import torch

    if config.precision == "bf16-true" and tensor.dtype == torch.float32:
        tensor = tensor.to(torch.bfloat16)
    if config.memory_format == "channels_last" and tensor.dim() == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor


MEMORY_FORMAT = Knob(
    name="memory_format",
    kind="choice",
    summary="Order of the dimensions of pictures and convolution weights in memory.",
    default="contiguous",
    choices=(
        Choice(
            value="contiguous",
            meaning="Channels before rows and columns (NCHW), PyTorch's order.",
            source="PyTorch documentation, tutorial 'Channels Last Memory Format'",
        ),
        Choice(
            value="channels_last",
            meaning="Channels last in memory (NHWC), the order that tensor cores and oneDNN convolve in.",
            source="PyTorch documentation, tutorial 'Channels Last Memory Format'; NVIDIA convolution guide",
        ),
    ),
    refuse=_refuse,
    apply=_apply,
    read_back=_read_back,
)
