"""torch.compile: off, or one of its modes. The training loop compiles after every other knob has been applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    from objectives.trial.setup import Setup

_DOCUMENT = "PyTorch documentation, torch.compile, argument `mode`"


def _refuse(value: str, facts: Facts) -> str | None:
    if value == "reduce-overhead" and facts.device_kind == "cpu":
        return "reduce-overhead records CUDA graphs: on a CPU it is the same as default"
    return None


def _offer(value: str, facts: Facts) -> bool:
    return value == "off" or facts.device_kind == "cuda"  # on a small CPU one compilation outlasts a whole study


def _clash(config: TrainingConfig, facts: Facts) -> str | None:
    graphs = config.compile in ("reduce-overhead", "max-autotune") and facts.device_kind == "cuda"
    if graphs and config.batching == "length-grouped":
        return "a CUDA graph is recorded per shape, and length-grouped batches change shape: use compile default or off"
    return None


def _apply(setup: Setup, value: str) -> None:
    setup.compile_options = None if value == "off" else {"mode": value}


def _read_back(setup: Setup) -> str | None:
    """``off`` unless the model calls a compiled function; its mode from the compiler's own configuration."""
    compiled = getattr(setup.model, "_compiled_call_impl", None)
    if compiled is None:
        return "off"
    configuration: dict[str, Any] | None = compiled.get_compiler_config()
    return None if configuration is None else _mode(configuration)


def _mode(configuration: dict[str, Any]) -> str:
    if configuration.get("max_autotune"):
        return "max-autotune"
    return "reduce-overhead" if configuration.get("triton.cudagraphs") else "default"


COMPILE = Knob(
    name="compile",
    kind="choice",
    summary="Whether the model's forward and backward are compiled. Pays back over a long job; new shapes cost again.",
    default="off",
    choices=(
        Choice(value="off", meaning="Every operator is launched by Python as it comes.", source=_DOCUMENT),
        Choice(
            value="default",
            meaning="Fuses operators; a balance between the time to compile and the speed.",
            source=_DOCUMENT,
        ),
        Choice(
            value="reduce-overhead",
            meaning="As default, and replays CUDA graphs: no Python in the step, memory of their own.",
            source=_DOCUMENT,
        ),
        Choice(
            value="max-autotune",
            meaning="As reduce-overhead, and times several kernels for each matrix product: minutes to compile.",
            source=_DOCUMENT,
        ),
    ),
    refuse=_refuse,
    clash=_clash,
    offer=_offer,
    apply=_apply,
    read_back=_read_back,
)
