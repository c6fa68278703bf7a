"""The knobs of a table that vary, and how far apart two configurations are. Pure; knows no knob by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.replay.grid import Table
from benchmarks.replay.row import Knobs, Row


@dataclass(frozen=True, kw_only=True)
class Values:
    """The varying knobs.

    Attributes:
        varying: Values by knob, numbers ascending, others as the rows come.
        ordered: Knobs whose values are numbers.
        rows: Row by its values of the varying knobs.
    """

    varying: Mapping[str, tuple[Any, ...]]
    ordered: frozenset[str]
    rows: Mapping[tuple[Any, ...], Row] = field(repr=False)

    def row(self, wanted: Knobs) -> Row | None:
        """The row with these values; None when the table has none."""
        return self.rows.get(tuple(wanted[name] for name in self.varying))

    def to_ranks(self, row: Row) -> dict[str, Any]:
        """A row's values, numbers as their rank."""
        return {
            name: choices.index(row.config.get(name)) if name in self.ordered else row.config.get(name)
            for name, choices in self.varying.items()
        }

    def from_ranks(self, params: Knobs) -> dict[str, Any]:
        """The reverse of :meth:`to_ranks`."""
        return {
            name: choices[params[name]] if name in self.ordered else params[name]
            for name, choices in self.varying.items()
        }

    def distance(self, row: Row, wanted: Knobs) -> float:
        """1 for each word that differs, for a number its distance in ranks over the number of values."""
        return sum(self._apart(name, row.config.get(name), wanted[name]) for name in self.varying)

    def _apart(self, name: str, value: Any, wanted: Any) -> float:
        if value == wanted:
            return 0.0
        choices = self.varying[name]
        return abs(choices.index(value) - choices.index(wanted)) / len(choices) if name in self.ordered else 1.0


def values_of(table: Table) -> Values:
    """The varying knobs of a table; a knob that a row lacks has the value None there."""
    found: dict[str, list[Any]] = {
        name: list(dict.fromkeys(row.config.get(name) for row in table.rows)) for name in table.knobs
    }
    ordered = frozenset(name for name, choices in found.items() if all(map(_is_number, choices)))
    varying = {
        name: tuple(sorted(choices, key=float) if name in ordered else choices)
        for name, choices in found.items()
        if len(choices) > 1
    }
    rows = {tuple(row.config.get(name) for name in varying): row for row in table.rows}
    return Values(varying=varying, ordered=ordered & varying.keys(), rows=rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
