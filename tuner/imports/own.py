"""Our own exports: ``configuration.json``, the ``training_config.json`` beside a launcher, and shell files."""

from __future__ import annotations

from collections.abc import Mapping

from objectives.config import KNOB_NAMES
from objectives.knobs.allocator import SETTINGS, VARIABLES
from tuner.export.environment import TF32_ON
from tuner.export.problems import nearest
from tuner.imports.imported import Imported, Reading
from tuner.imports.source import Source
from tuner.spec.variables import OURS

NAME = "tightfit"
MARKS = frozenset(
    {"accumulation_steps", "loader_workers", "activation_checkpointing", "micro_batch_size", "world_size"}
)
SHELL = "environment"
SET_BY_US = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM", TF32_ON)
"""Variables that trials have anyway, or that a knob stands for."""
TOP = ("study", "trial", "config", "world_size", "global_batch_size", "global_batch_tokens", "max_grad_norm")


def read(source: Source) -> Imported:
    """Knobs under their own names, at the top or under ``config``."""
    reading = Reading(source, NAME)
    inside = isinstance(source.values.get("config"), Mapping)
    place = "config." if inside else ""
    knobs = source.values["config"] if inside else source.values
    for name in KNOB_NAMES:
        reading.knob(name, reading.value(f"{place}{name}"))
    known = (*KNOB_NAMES, "accumulation_steps", *(() if inside else TOP))
    reading.problems([(f"{place}{key}", nearest(key, known)) for key in knobs if key not in known])
    given = source.values.get("environment")
    reading.put(
        accumulation_steps=reading.count(f"{place}accumulation_steps"),
        ranks=reading.count("world_size"),
        global_batch_size=reading.count("global_batch_size"),
        max_grad_norm=reading.number("max_grad_norm"),
        device="cpu" if source.values.get("device_kind") == "cpu" else None,
        environment={str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else None,
    )
    reading.use(source.values)
    return reading.done()


def read_shell(source: Source) -> Imported:
    """The variables of a shell file, and the ranks of a launcher in it."""
    reading = Reading(source, SHELL)
    reading.put(environment=dict(source.environment) or None, ranks=source.ranks)
    reading.use(source.values)
    return reading.done()


def split_environment(given: Mapping[str, str]) -> tuple[dict[str, str], str | None, bool]:
    """Variables for the spec, what they say of the knob ``allocator``, and whether they allow TF32.

    The allocator is None where nothing is said, or where no value of the knob says it: then the variables stay.
    """
    kept = {name: text for name, text in given.items() if name not in SET_BY_US and name not in OURS}
    texts = {kept[name] for name in VARIABLES if name in kept}
    knob = next((value for value, text in SETTINGS.items() if texts == {text}), None) if texts else None
    if knob is not None:
        kept = {name: text for name, text in kept.items() if name not in VARIABLES}
    return kept, knob, given.get(TF32_ON) == "1"
