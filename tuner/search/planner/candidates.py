"""Configurations in arrays, encoded once for a space; and those that have run, in the same codes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from objectives.config import KnobValue
from tuner.search.planner.observation import Config
from tuner.search.planner.priors import ACCUMULATION, LOADER_KNOBS, MICRO_BATCH

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Flags = NDArray[np.bool_]
Value = KnobValue | None
"""A knob's value; None where a configuration does not name the knob."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """Configurations in codes.

    Attributes:
        names: The knobs, ``accumulation_steps`` left out.
        values: By knob, the values its codes stand for.
        codes: Shape (configurations, knobs).
        accumulates: Whether it makes more than one micro-batch per optimizer step, shape (configurations,).
    """

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    codes: Codes
    accumulates: Flags

    def column(self, name: str) -> int | None:
        """Number of a knob's column; None when there is no such knob."""
        return self.names.index(name) if name in self.names else None

    def numbers(self, name: str, default: float = 1.0) -> Floats:
        """A knob's values as numbers, shape (configurations,); ``default`` where it has none."""
        column = self.column(name)
        if column is None:
            return np.full(len(self.codes), default)
        table = np.array([float(value) if isinstance(value, int) else default for value in self.values[column]])
        made: Floats = table[self.codes[:, column]]
        return made

    def groups(self, left_out: Iterable[str]) -> Codes:
        """A number per combination of all knobs but these: equal numbers, equal combinations; shape (configurations,).

        The numbers are the same for every encoding with the same values.
        """
        skipped = {*left_out}
        total = np.zeros(len(self.codes), dtype=np.intp)
        for column, name in enumerate(self.names):
            if name not in skipped:
                total = total * len(self.values[column]) + self.codes[:, column]
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """All configurations that may be tried.

    Attributes:
        configs: As given.
        keys: Their names for the caller; empty when none were given.
        encoded: Their codes.
        predicted_peak_bytes: Raw predictions, shape (configurations,); not a number where there is none.
        wide: Whether the prediction called itself uncertain, shape (configurations,).
    """

    configs: tuple[Config, ...]
    keys: tuple[str, ...] = ()
    encoded: Encoded
    predicted_peak_bytes: Floats
    wide: Flags
    cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        configs: Sequence[Config],
        *,
        keys: Sequence[str] | None = None,
        predicted_peak_bytes: Sequence[int | float | None] | None = None,
        wide: Sequence[bool] | None = None,
    ) -> Candidates:
        """Encodes configurations.

        Args:
            configs: Each once, at least one; knobs may differ between them.
            keys: The caller's own names for them.
            predicted_peak_bytes: Raw prediction of each; None for those without.
            wide: Which predictions called themselves uncertain; None for no one.

        Raises:
            ValueError: There is no configuration, or the lists differ in length.
        """
        if not configs:
            raise ValueError("no configuration to choose from: give at least one candidate")
        for name, given in (("keys", keys), ("predicted_peak_bytes", predicted_peak_bytes), ("wide", wide)):
            if given is not None and len(given) != len(configs):
                raise ValueError(
                    f"{name} has {len(given)} entries for {len(configs)} configurations: give one for each"
                )
        peaks = [None] * len(configs) if predicted_peak_bytes is None else predicted_peak_bytes
        flags = [False] * len(configs) if wide is None else wide
        return cls(
            configs=tuple(configs),
            keys=tuple(keys or ()),
            encoded=_encode(configs),
            predicted_peak_bytes=np.array([np.nan if peak is None else float(peak) for peak in peaks]),
            wide=np.array(flags, dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.configs)

    @cached_property
    def places(self) -> dict[tuple[Value, ...], int]:
        """Number of each configuration by its values in the order of the knobs."""
        return {values_of(config, self.encoded.names): place for place, config in enumerate(self.configs)}

    def place(self, config: Config) -> int | None:
        """Number of this configuration; None when it is not among the candidates (a further knob makes it another)."""
        return self.places.get(values_of(config, self.encoded.names))

    @cached_property
    def memory_group(self) -> Codes:
        """Equal numbers differ in nothing that the device must hold but the micro-batch; shape (configurations,)."""
        return self.encoded.groups({MICRO_BATCH, *LOADER_KNOBS})

    def extended(self, configs: Sequence[Config]) -> tuple[Encoded, Encoded]:
        """The candidates and further configurations (with values of their own, perhaps) in the same codes."""
        values = [list(each) for each in self.encoded.values]
        known = [{_typed(value): code for code, value in enumerate(each)} for each in values]
        codes = np.zeros((len(configs), len(values)), dtype=np.intp)
        for row, config in enumerate(configs):
            for column, value in enumerate(values_of(config, self.encoded.names)):
                code = known[column].setdefault(_typed(value), len(values[column]))
                if code == len(values[column]):
                    values[column].append(value)
                codes[row, column] = code
        tables = tuple(tuple(each) for each in values)
        mine = Encoded(
            names=self.encoded.names, values=tables, codes=self.encoded.codes, accumulates=self.encoded.accumulates
        )
        theirs = Encoded(names=mine.names, values=tables, codes=codes, accumulates=_accumulates(configs))
        return mine, theirs


def values_of(config: Config, names: Sequence[str]) -> tuple[Value, ...]:
    """The values of these knobs; None for one it does not name."""
    return tuple(config.get(name) for name in names)


def _encode(configs: Sequence[Config]) -> Encoded:
    names = tuple(dict.fromkeys(name for config in configs for name in config if name != ACCUMULATION))
    columns, tables = [], []
    for name in names:
        codes, table = _column([config.get(name) for config in configs])
        columns.append(codes)
        tables.append(table)
    stacked = np.stack(columns, axis=1) if columns else np.zeros((len(configs), 0), dtype=np.intp)
    return Encoded(names=names, values=tuple(tables), codes=stacked, accumulates=_accumulates(configs))


def _column(values: Sequence[Value]) -> tuple[Codes, tuple[Value, ...]]:
    known: dict[tuple[type, Value], int] = {}
    codes = np.array([known.setdefault(_typed(value), len(known)) for value in values], dtype=np.intp)
    return codes, tuple(value for _, value in known)


def _typed(value: Value) -> tuple[type, Value]:
    """True is not 1 here."""
    return type(value), value


def _accumulates(configs: Sequence[Config]) -> Flags:
    return np.array([int(config.get(ACCUMULATION, 1)) > 1 for config in configs], dtype=np.bool_)
