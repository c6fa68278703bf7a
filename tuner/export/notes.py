"""What a person has to know beside the files: the sentences every format shares, and the page that holds them. Pure."""

from __future__ import annotations

from objectives.config import TrainingConfig
from tuner.export.environment import left_out
from tuner.export.handover import Export, Handover, NotCarried
from tuner.export.text import exports

PAGE = "NOTES.md"
GIB = 2**30


def sentences(handover: Handover) -> tuple[str, ...]:
    """What holds for this configuration in every trainer."""
    return (
        *_batch(handover),
        *_measured(handover),
        *_precision(handover.config),
        *_memory(handover),
        *left_out(handover),
        *handover.remarks,
        "Evaluation was not tested: its memory and time are not in these numbers.",
        "Resuming an older run with another micro-batch or accumulation: start fresh, or convert its step counters "
        "(counts of steps and of skipped samples mean another amount of data).",
        "Learning rate, schedule, weight decay and number of steps are yours; none is exported.",
    )


def _batch(handover: Handover) -> tuple[str, ...]:
    config, total = handover.config, handover.global_batch_size
    asked = f" ({handover.global_batch_tokens} tokens on average)" if handover.global_batch_tokens else ""
    said = [
        f"micro-batch {config.micro_batch_size} x accumulation {config.accumulation_steps} x {handover.ranks} "
        f"rank{'s' if handover.ranks > 1 else ''} = global batch {total}{asked}.",
        f"Steps, warm-up steps and save intervals count optimizer steps of {total} samples, not micro-batches.",
    ]
    if handover.ranks != handover.measured_ranks:
        said.append(
            f"Measured on {handover.measured_ranks} rank, not on {handover.ranks}: gradient exchange costs time and "
            "buffers (up to the size of the gradients) that these numbers do not hold."
        )
    return tuple(said)


def _measured(handover: Handover) -> tuple[str, ...]:
    if handover.throughput is None:
        return ()
    unit = (handover.throughput_unit or "units").replace("_per_second", "/s")
    low_high = handover.throughput_interval
    interval = f" (95 % interval {_rate(low_high[0])} to {_rate(low_high[1])})" if low_high else ""
    how = "confirmed in long runs" if handover.confirmed else "from short search windows, not confirmed"
    where = f" on {handover.device}" if handover.device else ""
    torch = handover.versions.get("torch")
    with_torch = f" with torch {torch}" if torch else ""
    said = f"{handover.label}: {_rate(handover.throughput)} {unit}{interval}{where}{with_torch}, {how}."
    return (said,)


def _precision(config: TrainingConfig) -> tuple[str, ...]:
    if config.precision == "bf16-true":
        return (
            "bf16-true is another training than bf16-mixed: parameters and optimizer state have 8 bits of mantissa, "
            "small updates round away (1 + 0.001 is 1). Check the loss curve.",
        )
    if config.precision == "fp16-mixed":
        return ("fp16-mixed was measured with a loss scale that starts at 65536; the first steps may be skipped.",)
    return ()


def _memory(handover: Handover) -> tuple[str, ...]:
    said = []
    if handover.peak_memory_bytes is not None:
        said.append(f"It needs {size_text(handover.peak_memory_bytes)} of device memory on the worst batch"
                    f"{_against_limit(handover.headroom_bytes)}.")  # fmt: skip
    if handover.capped:
        said.append(
            f"Found under a memory cap of {size_text(handover.memory_limit_bytes or 0)} on a device of "
            f"{size_text(handover.total_memory_bytes or 0)}: it fits a smaller card, its speed there is not known."
        )
    if handover.longest_tokens is not None:
        said.append(f"Memory was tested with rows of {handover.longest_tokens} tokens: longer ones may not fit.")
    if handover.adapters:
        said.append(f"Measured with LoRA adapters ({dict(handover.adapters)}): put the same on the model.")
    return tuple(said)


def _against_limit(free: int | None) -> str:
    if free is None:
        return ""
    if free < 0:
        return f", {size_text(-free)} more than the study's memory limit: it fits without the stated headroom"
    return f", which leaves {size_text(free)} of the memory limit"


def size_text(number_of_bytes: int) -> str:
    """GiB, below a tenth of one MiB."""
    small = number_of_bytes < GIB / 10
    return f"{number_of_bytes / 2**20:.1f} MiB" if small else f"{number_of_bytes / GIB:.2f} GiB"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def page(handover: Handover, made: Export, title: str, target: str) -> str:
    """The page beside the files, as Markdown."""
    lines = [f"# {handover.label}, for {title}", "", f"Made for {target}.", ""]
    lines += ["## Notes", "", *(f"- {each}" for each in made.notes), ""]
    lines += ["## Where each knob stands", "", *(f"- `{name}`: {where}" for name, where in made.carried.items()), ""]
    if made.not_carried:
        lines += ["## Not in the files", "", *(line for each in made.not_carried for line in _left(each)), ""]
    if made.environment:
        lines += ["## Environment", "", "```sh", *exports(made.environment), "```", ""]
    return "\n".join(lines)


def _left(each: NotCarried) -> list[str]:
    lines = [f"- `{each.knob}: {each.value}`: {each.why}"]
    if each.code:
        lines += ["", "  ```python", *(f"  {line}" for line in each.code), "  ```", ""]
    return lines
