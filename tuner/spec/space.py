"""The knobs a spec names: their values are legal, divide the batch and stand in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from objectives.config import KNOB_NAMES, KnobValue
from objectives.knobs import knob as knob_named
from objectives.knobs.knob import Knob
from tuner.errors import SpecProblem
from tuner.spec.batch import batch_problem, divisors_between, powers_of_two_between
from tuner.spec.keys import nearest_fix
from tuner.spec.script_keys import script_ranks
from tuner.spec.shape import line_of, shown
from tuner.spec.yaml_text import KeyPath, dotted

MOST_VALUES_OF_A_RANGE = 64
DERIVED = ("accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum")
OTHER_WORDS: Mapping[str, str] = {
    "batch_size": "micro_batch_size",
    "per_device_train_batch_size": "micro_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "gradient_checkpointing": "activation_checkpointing",
    "checkpointing": "activation_checkpointing",
    "attn_implementation": "attention",
    "num_workers": "loader_workers",
    "dataloader_num_workers": "loader_workers",
    "dataloader_pin_memory": "pin_memory",
    "torch_compile": "compile",
    "optim": "optimizer",
    "mixed_precision": "precision",
    "dtype": "precision",
    "packing": "batching",
}
"""Knobs by the names other tools use."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The global batch as the spec gives it: in samples, in tokens, or (both None) wrongly."""

    samples: int | None = None
    tokens: int | None = None
    ranks: int = 1

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Batch:
        """Reads it from a spec that may still be wrong elsewhere."""
        found = {name: values.get(f"global_batch_{key}") for name, key in (("samples", "size"), ("tokens", "tokens"))}
        good = {name: value for name, value in found.items() if type(value) is int and value > 0}
        return cls(**good, ranks=script_ranks(values.get("objective")))


@dataclass(kw_only=True)
class KnobCheck:
    """Checks the knobs of one spec and gathers the problems.

    Attributes:
        batch: What micro-batch sizes must divide.
        lines: Line by path.
    """

    batch: Batch
    lines: Mapping[KeyPath, int]
    problems: list[SpecProblem] = field(default_factory=list)

    def search(self, values: Mapping[str, Any]) -> dict[str, tuple[KnobValue, ...]]:
        """Legal values by knob: knobs in the order of ``TrainingConfig``, values in the knob's own."""
        if not values:
            self._refuse(("search",), "there is nothing to search", "Name a knob, such as micro_batch_size: [1, 2, 4]")
        knobs = {name: knob for name in values if (knob := self._knob(("search",), name)) is not None}
        found = {name: self._values(knob, values[name]) for name, knob in knobs.items()}
        return {name: in_order(knobs[name], found[name]) for name in KNOB_NAMES if name in found}

    def baseline(self, values: Mapping[str, Any]) -> dict[str, KnobValue]:
        """The baseline's knob values in the order of ``TrainingConfig``. It may lie outside the space."""
        knobs = {name: knob for name in values if (knob := self._knob(("baseline",), name)) is not None}
        good = {
            name: values[name] for name, knob in knobs.items() if self._legal(knob, values[name], ("baseline", name))
        }
        return {name: good[name] for name in KNOB_NAMES if name in good}

    def _knob(self, at: KeyPath, name: str) -> Knob | None:
        if name in KNOB_NAMES:
            return knob_named(name)
        if name in DERIVED:
            self._refuse((*at, name), "accumulation is derived from the global batch, never set", "Remove the key")
            return None
        other = OTHER_WORDS.get(name)
        fix = f"Did you mean {other!r}?" if other else nearest_fix(name, KNOB_NAMES)
        self._refuse((*at, name), f"unknown knob {name!r}", fix)
        return None

    def _values(self, knob: Knob, given: Any) -> tuple[KnobValue, ...]:
        path = ("search", knob.name)
        if isinstance(given, dict):
            return self._range(knob, given, path)
        if not isinstance(given, list):
            return (given,) if self._legal(knob, given, path) else ()
        if not given:
            self._refuse(path, "the list is empty", f"Write {example(knob)} or remove the knob")
        legal = [value for index, value in enumerate(given) if self._legal(knob, value, (*path, index))]
        return self._without_doubles(legal, path)

    def _without_doubles(self, values: list[KnobValue], path: KeyPath) -> tuple[KnobValue, ...]:
        doubles = {value for value in values if values.count(value) > 1}
        for value in sorted(doubles, key=str):
            self._refuse(path, f"{shown(value)} stands in the list more than once", "Write each value once")
        return tuple(dict.fromkeys(values))

    def _range(self, knob: Knob, given: Mapping[str, Any], path: KeyPath) -> tuple[KnobValue, ...]:
        if knob.kind != "integer":
            self._refuse(path, "only integer knobs have a range", f"Write {example(knob)}")
            return ()
        if set(given) != {"low", "high"} or any(type(bound) is not int for bound in given.values()):
            self._refuse(path, "a range needs exactly two whole numbers, low and high", "Write {low: 1, high: 64}")
            return ()
        low, high = given["low"], given["high"]
        if not knob.low <= low <= high <= knob.high:
            fix = f"Use {knob.low} <= low <= high <= {knob.high}"
            self._refuse(path, f"the range {low} to {high} is not inside {knob.low} to {knob.high}", fix)
            return ()
        return self._micro_batches(low, high, path) if knob.name == "micro_batch_size" else self._all(low, high, path)

    def _micro_batches(self, low: int, high: int, path: KeyPath) -> tuple[KnobValue, ...]:
        if self.batch.samples is None:
            return self._not_empty(powers_of_two_between(low, high), path, f"no power of two lies in {low} to {high}")
        per_rank, rest = divmod(self.batch.samples, self.batch.ranks)
        sizes = () if rest else divisors_between(per_rank, low, high)
        over = f" over {self.batch.ranks} ranks" if self.batch.ranks > 1 else ""
        return self._not_empty(sizes, path, f"no size in {low} to {high} divides {self.batch.samples} samples{over}")

    def _not_empty(self, sizes: tuple[int, ...], path: KeyPath, reason: str) -> tuple[int, ...]:
        if not sizes:
            self._refuse(path, reason, "Widen the range")
        return sizes

    def _all(self, low: int, high: int, path: KeyPath) -> tuple[KnobValue, ...]:
        if high - low >= MOST_VALUES_OF_A_RANGE:
            reason = f"the range has {high - low + 1} values, more than {MOST_VALUES_OF_A_RANGE}"
            self._refuse(path, reason, "Write the values to try as a list, such as [0, 2, 4, 8]")
            return ()
        return tuple(range(low, high + 1))

    def _legal(self, knob: Knob, value: Any, path: KeyPath) -> bool:
        found = value_problem(knob, value) or self._batch_problem(knob, value)
        if found is not None:
            self._refuse(path, *found)
        return found is None

    def _batch_problem(self, knob: Knob, value: Any) -> tuple[str, str] | None:
        if knob.name == "micro_batch_size" and self.batch.samples is not None:
            return batch_problem(global_batch_size=self.batch.samples, micro_batch_size=value, ranks=self.batch.ranks)
        if (knob.name, value) == ("batching", "packed") and self.batch.tokens is None:
            return (
                "packed rows hold many samples, so a batch counted in samples would not stay the same",
                "Give global_batch_tokens instead of global_batch_size, or leave 'packed' out",
            )
        return None

    def _refuse(self, path: KeyPath, reason: str, fix: str) -> None:
        where, line = dotted(path), line_of(path, self.lines)
        self.problems.append(SpecProblem(where=where, reason=reason, fix=fix, line=line))


def value_problem(knob: Knob, value: Any) -> tuple[str, str] | None:
    """Why a value is not legal for a knob on any machine, and what to write; None when it is legal.

    Types are strict: ``true`` is not 1, ``"8"`` is not 8, 8.0 is not 8.
    """
    if knob.kind == "integer":
        return _integer_problem(knob, value)
    if any(type(value) is type(legal) and value == legal for legal in knob.values):
        return None
    if value is None or isinstance(value, (dict, list)):
        return f"{shown(value)} is not a value of {knob.name}", f"Write {example(knob)}"
    words = tuple(shown(legal).strip("'") for legal in knob.values)
    return f"{shown(value)} is not a value of {knob.name}", _choice_fix(value, words)


def _choice_fix(value: Any, words: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return f"Known: {', '.join(words)}"
    said = str(value).lower()
    near = [word for word in words if len(said) > 2 and (said in word or word in said)]
    return f"Did you mean {' or '.join(near)}?" if near else nearest_fix(said, words)


def _integer_problem(knob: Knob, value: Any) -> tuple[str, str] | None:
    if type(value) is int:
        if knob.low <= value <= knob.high:
            return None
        return f"{shown(value)} is out of range", f"Use a whole number from {knob.low} to {knob.high}"
    if isinstance(value, float) and value.is_integer() and abs(value) <= knob.high:
        return f"{shown(value)} is not a whole number", f"Write {int(value)}"
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return f"{shown(value)} is text, not a number", f"Write {shown(value.strip())[1:-1]} without quotes"
    return f"{shown(value)} is not a whole number", f"Write {example(knob)}"


def in_order(knob: Knob, values: tuple[KnobValue, ...]) -> tuple[KnobValue, ...]:
    """The values in the knob's own order, so that the order of writing means nothing."""
    return tuple(sorted(values)) if knob.kind == "integer" else tuple(v for v in knob.values if v in values)


def example(knob: Knob) -> str:
    """A legal way to write a list of the knob's values."""
    if knob.kind == "integer":
        return f"{knob.name}: [{', '.join(str(2**n) for n in range(3) if knob.low <= 2**n <= knob.high)}]"
    return f"{knob.name}: [{', '.join(shown(value).strip(chr(39)) for value in knob.values)}]"
