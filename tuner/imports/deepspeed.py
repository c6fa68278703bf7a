"""A DeepSpeed file: its batch triangle, its sections for precision, its sharding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.export.problems import DEEPSPEED_BATCH, mistyped, of_deepspeed, unknown
from tuner.imports.imported import Imported, Reading
from tuner.imports.source import Source

NAME = "deepspeed"
MARKS = frozenset({
    "train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "torch_autocast", "steps_per_print",
    "zero_allow_untested_optimizer", "wall_clock_breakdown",
})  # fmt: skip
"""Keys by which the format is known."""


def read(source: Source) -> Imported:
    """The file in our words. ``auto`` says nothing: the Trainer's arguments do."""
    reading = Reading(source, NAME)
    values = {key: _plain(value) for key, value in source.values.items()}
    reading.problems(unknown(source.values, NAME))
    reading.problems([(key, reason) for key, reason in of_deepspeed(values, source.ranks) if not _is_auto(values, key)])
    reading.problems(_texts(source.values))
    _batch(reading)
    _precision(reading)
    _rest(reading)
    return reading.done()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.strip().isdigit() else value


def _is_auto(values: Mapping[str, Any], key: str) -> bool:
    return values.get(key) == "auto"


def _texts(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Numbers and booleans in quotes, at any depth."""
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _texts(value, f"{prefix}{key}.")
        elif isinstance(value, str) and (reason := mistyped(value)) is not None:
            found.append((f"{prefix}{key}", reason))
    return found


def _batch(reading: Reading) -> None:
    total, micro, steps = (reading.count(key) for key in DEEPSPEED_BATCH)
    ranks = reading.source.ranks
    if micro is None and total is not None:
        share = total // ((steps or 1) * (ranks or 1))
        why = "only train_batch_size is given: DeepSpeed takes the whole share of a rank as one micro-batch"
        reading.knob("micro_batch_size", max(share, 1), unless_sure=why)
    reading.knob("micro_batch_size", micro)
    if total and micro and steps and ranks is None and total % (micro * steps) == 0:
        ranks = total // (micro * steps)
    if total and micro and steps is None and total % (micro * (ranks or 1)) == 0:
        steps = total // (micro * (ranks or 1))
    reading.put(global_batch_size=total, accumulation_steps=steps, ranks=ranks)


def _precision(reading: Reading) -> None:
    """``torch_autocast`` is autocast; ``bf16`` and ``fp16`` keep 16-bit parameters over a 32-bit copy."""
    half, brain = reading.flag("fp16.enabled"), reading.flag("bf16.enabled")
    casting = reading.flag("torch_autocast.enabled")
    if half and brain:
        return
    if half or brain:
        why = (
            "DeepSpeed's section keeps 16-bit parameters over a 32-bit copy: autocast is the nearest, needs more memory"
        )
        reading.knob("precision", "fp16-mixed" if half else "bf16-mixed", unless_sure=why)
    elif casting:
        word = reading.word("torch_autocast.dtype") or "bfloat16"
        reading.knob("precision", "fp16-mixed" if word.removeprefix("torch.") == "float16" else "bf16-mixed")
    elif half is not None or brain is not None or casting is not None:
        reading.knob("precision", "fp32", unless_sure="the file does not say TF32, which the environment or code sets")


def _rest(reading: Reading) -> None:
    clip = reading.number("gradient_clipping")
    reading.put(max_grad_norm=clip or None)
    if (scale := reading.count("fp16.initial_scale_power", least=0)) is not None:
        reading.note(f"fp16.initial_scale_power {scale}: kept by your file; trials start at 2^16 and measure after the "
                     "first stable scale, so skipped steps at the start are not in the numbers")  # fmt: skip
    stage = reading.count("zero_optimization.stage", least=0)
    if stage:
        reading.note(
            f"zero_optimization.stage {stage}: sharding is no knob; trials run on one device with everything on it"
        )
    for part in ("offload_optimizer", "offload_param"):
        if reading.value(f"zero_optimization.{part}"):
            reading.note(f"zero_optimization.{part}: nothing is offloaded in trials; they need more device memory")
    kind = reading.word("optimizer.type")
    learning_rate = reading.number("optimizer.params.lr")
    reading.put(learning_rate=learning_rate)
    if kind is not None and kind.lower() not in ("adam", "adamw"):
        reading.note(f"optimizer.type {kind} has no value of the knob optimizer; it is not in the baseline")
    if reading.value("activation_checkpointing"):
        reading.note("activation_checkpointing: the section holds options alone; the model's code switches it on")
