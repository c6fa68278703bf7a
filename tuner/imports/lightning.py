"""Keyword arguments of ``lightning.Trainer``, and those of the ``DataLoader`` beside them."""

from __future__ import annotations

from collections.abc import Mapping

from objectives.config import KnobValue
from tuner.export.problems import not_counts, unknown
from tuner.imports.imported import Imported, Reading
from tuner.imports.source import Source

NAME = "lightning"
MARKS = frozenset({
    "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "accelerator", "strategy", "max_epochs",
    "log_every_n_steps", "enable_checkpointing", "devices", "num_nodes", "limit_train_batches",
})  # fmt: skip
"""Keys by which the format is known."""
LOADER_MARKS = frozenset({"batch_size", "num_workers", "pin_memory", "prefetch_factor", "persistent_workers", "shuffle",
                          "drop_last"})  # fmt: skip
PRECISIONS: Mapping[str, KnobValue] = {
    **dict.fromkeys(("32-true", "32", "64-true"), "fp32"),
    **dict.fromkeys(("16-mixed", "16"), "fp16-mixed"),
    **dict.fromkeys(("bf16-mixed", "bf16"), "bf16-mixed"),
    "bf16-true": "bf16-true",
}


def read(source: Source) -> Imported:
    """The Trainer's arguments in our words; a ``trainer`` section of Lightning's own command line too."""
    reading = Reading(source, NAME)
    place = "trainer." if isinstance(source.values.get("trainer"), Mapping) else ""
    values = source.values["trainer"] if place else source.values
    reading.problems(unknown(values, NAME))
    reading.problems(not_counts(values, ("accumulate_grad_batches",)))
    reading.chosen("precision", PRECISIONS, f"{place}precision")
    if reading.word(f"{place}precision") in ("32-true", "32"):
        reading.knob("precision", "fp32", unless_sure="TF32 is set in code or in the environment, not here")
    if reading.word(f"{place}precision") == "64-true":
        reading.note("precision 64-true: trials have no double precision; fp32 stands in for it")
    devices, nodes = reading.value(f"{place}devices"), reading.count(f"{place}num_nodes") or 1
    steps = reading.value(f"{place}accumulate_grad_batches")
    reading.put(
        accumulation_steps=reading.count(f"{place}accumulate_grad_batches") if not isinstance(steps, Mapping) else None,
        ranks=_ranks(devices, nodes),
        max_grad_norm=reading.number(f"{place}gradient_clip_val"),
        device="cpu" if reading.word(f"{place}accelerator") == "cpu" else None,
    )
    if isinstance(steps, Mapping):
        reading.problem("accumulate_grad_batches", "a schedule of accumulation has no one global batch: give a number")
    _strategy(reading, place)
    return reading.done()


def _ranks(devices: object, nodes: int) -> int | None:
    if isinstance(devices, list):
        return len(devices) * nodes
    return devices * nodes if isinstance(devices, int) and devices > 0 else None


def _strategy(reading: Reading, place: str) -> None:
    word = (reading.word(f"{place}strategy") or "auto").lower()
    if word.startswith(("fsdp", "deepspeed", "model_parallel")):
        reading.note(f"strategy {word}: sharding is no knob; trials run on one device with whole parameters")


def read_loader(source: Source) -> Imported:
    """Keyword arguments of a ``DataLoader`` in our words."""
    reading = Reading(source, NAME)
    reading.knob("micro_batch_size", reading.count("batch_size"))
    reading.knob("loader_workers", reading.count("num_workers", least=0))
    reading.knob("prefetch_factor", reading.count("prefetch_factor"))
    reading.knob("pin_memory", reading.flag("pin_memory"))
    reading.use(("persistent_workers",))
    if reading.flag("persistent_workers") and not reading.count("num_workers", least=0):
        reading.problem("persistent_workers", "needs num_workers above 0")
    return reading.done()
