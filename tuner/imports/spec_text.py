"""A spec as text, with a comment wherever something has to be filled in or checked. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.imports.imported import Imported
from tuner.imports.ranges import OFFERED, ranges

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")
_WORDS_OF_YAML = ("true", "false", "null", "yes", "no", "on")


@dataclass(frozen=True, kw_only=True)
class Place:
    """What nobody can know from the file: ``tuner run`` refuses the spec and names it.

    Attributes:
        where: Dotted key of the spec.
        what: What to write there.
    """

    where: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The spec's text, and the places that are left to fill in."""

    text: str
    places: tuple[Place, ...]


def draft(imported: Imported, *, study: str, origin: str) -> Draft:
    """The spec of an imported configuration.

    Args:
        imported: What the files say.
        study: The study's name.
        origin: The files' names, for the first line.
    """
    pen = _Pen()
    packed = imported.knobs.get("batching") == "packed"
    pen.line(f"# Made by `tuner init` from {origin} ({imported.format}).")
    pen.line(f"study: {scalar(study)}")
    pen.lines(_objective(pen, imported))
    pen.lines(_batch(pen, imported, packed=packed))
    pen.lines(_baseline(imported))
    pen.lines(_search(imported, packed=packed))
    pen.lines(_rest(imported))
    return Draft(text="\n".join(pen.written) + "\n", places=tuple(pen.places))


class _Pen:
    def __init__(self) -> None:
        self.written: list[str] = []
        self.places: list[Place] = []

    def line(self, text: str) -> None:
        self.written.append(text)

    def lines(self, texts: Iterator[str]) -> None:
        self.written.extend(texts)

    def place(self, where: str, what: str) -> None:
        self.places.append(Place(where=where, what=what))


def _objective(pen: _Pen, imported: Imported) -> Iterator[str]:
    yield "objective:"
    yield '  kind: causal_lm               # image_classifier, script, or your own "package.module:name"'
    if imported.model is not None:
        yield f"  model: {flow(imported.model)}"
    else:
        pen.place("objective.model", "the model: {path: ./folder}, {hub: name} or {config: {model_type: ...}}")
        yield "  # FILL IN the model: one of these three"
        yield "  # model: {path: ./my-model}              # a local transformers folder (safetensors)"
        yield "  # model: {hub: organisation/name}        # only this downloads"
        yield "  # model: {config: {model_type: llama, hidden_size: 2048}}"
    yield from _data(pen, imported)
    if imported.lora is not None:
        yield f"  lora: {flow(imported.lora)}"


def _data(pen: _Pen, imported: Imported) -> Iterator[str]:
    yield "  data:"
    data = imported.data
    if "path" in data:
        yield f"    path: {flow(data['path'])}"
    else:
        pen.place("objective.data.path", "the training text: a file, folder or pattern")
        yield '    # FILL IN the training text:  path: "corpus/*.jsonl"'
    if "sequence_length" in data:
        yield f"    sequence_length: {data['sequence_length']}"
    else:
        pen.place("objective.data.sequence_length", "tokens per sample at most")
        yield "    # FILL IN the tokens per sample at most:  sequence_length: 2048"
    for name in ("tokenizer", "text_field"):
        if name in data:
            yield f"    {name}: {scalar(data[name])}"
    if "tokenizer" not in data:
        yield "    # tokenizer: ./my-model      # left out: the model folder's own"


def _batch(pen: _Pen, imported: Imported, *, packed: bool) -> Iterator[str]:
    total, length = imported.global_batch_size, imported.data.get("sequence_length")
    if packed and total is not None and length is not None:
        yield f"global_batch_tokens: {total * length}   # {total} packed rows of {length} tokens: measure yours"
    elif packed:
        pen.place("global_batch_size", "real tokens per optimizer step, as global_batch_tokens")
        yield "# FILL IN the real tokens per optimizer step:  global_batch_tokens: 65536"
    elif total is not None:
        yield f"global_batch_size: {total}{_product(imported)}"
    else:
        pen.place("global_batch_size", "samples per optimizer step over all ranks")
        yield "# FILL IN the samples per optimizer step over all ranks:  global_batch_size: 64"
    if (imported.ranks or 1) > 1:
        yield f"# One device is tuned; `tuner export ... --world-size {imported.ranks}` gives the job its accumulation."


def _product(imported: Imported) -> str:
    micro, steps, ranks = imported.knobs.get("micro_batch_size"), imported.accumulation_steps, imported.ranks
    if micro is None or steps is None:
        return ""
    unsaid = " (the file does not say how many: `tuner init --world-size N`)" if ranks is None else ""
    return f"   # micro-batch {micro} x accumulation {steps} x ranks {ranks or 1}{unsaid}"


def _baseline(imported: Imported) -> Iterator[str]:
    if not imported.knobs:
        yield "# baseline: the file sets no knob; trial 0 takes PyTorch's defaults"
        return
    yield "baseline:                       # what the file says: trial 0"
    for name, value in imported.knobs.items():
        why = imported.uncertain.get(name)
        yield f"  {name}: {scalar(value)}" + (f"   # CHECK: {why}" if why else "")


def _search(imported: Imported, *, packed: bool) -> Iterator[str]:
    yield "search:"
    found = ranges(
        imported.knobs, global_batch_size=imported.global_batch_size, ranks=imported.ranks or 1, packed=packed,
        on_cpu=imported.device == "cpu",
    )  # fmt: skip
    for name, values in found.items():
        yield f"  {name}: {flow(values)}"
    for text in OFFERED:
        yield f"  {text}"


def _rest(imported: Imported) -> Iterator[str]:
    given = {"seed": imported.seed, "max_grad_norm": imported.max_grad_norm or None,
             "learning_rate": imported.learning_rate or None, "device": imported.device}  # fmt: skip
    for name, value in given.items():
        if value is not None:
            yield f"{name}: {scalar(value)}"
    if imported.environment:
        yield f"environment: {flow({key: str(text) for key, text in imported.environment.items()})}"
    yield "limits: {memory: 92%, trials: 40, time: 20m}"


def flow(value: Any) -> str:
    """A value in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(name))}: {flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def scalar(value: Any) -> str:
    """A word as it is where YAML 1.1 and 1.2 read it as the same text; quoted otherwise."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 10**9:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)
