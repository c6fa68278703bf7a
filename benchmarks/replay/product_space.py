"""The product's space over exactly the configurations of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.replay.grid import Table
from benchmarks.replay.row import Row
from objectives.config import KNOB_NAMES, KnobValue, TrainingConfig
from objectives.knobs import canonical, config_key, knob
from tuner.search.batch import GlobalBatch
from tuner.search.space import Params, Space


@dataclass(frozen=True, kw_only=True)
class TableSpace(Space):
    """A space whose configurations are a table's rows, and no others.

    Attributes:
        members: Configuration and row by key.
    """

    members: Mapping[str, tuple[TrainingConfig, Row]] = field(repr=False)

    def config(self, params: Params) -> TrainingConfig:
        """As :meth:`Space.config`; a combination that the table does not have cannot run.

        Raises:
            ValueError: The table has no such row.
        """
        key = config_key(TrainingConfig.from_mapping({**self.fixed, **params}))
        if key not in self.members:
            raise ValueError("the table has no such configuration")
        return self.members[key][0]

    def _walk(self) -> Iterator[tuple[str, TrainingConfig]]:
        return ((key, config) for key, (config, _) in self.members.items())

    @property
    def size(self) -> int:
        """Rows of the table."""
        return len(self.members)

    def row_of(self, key: str) -> Row:
        """The row of a configuration's key."""
        return self.members[key][1]

    def config_of(self, row: Row) -> TrainingConfig:
        """The configuration of a row."""
        return self.members[config_key(_plain(row))][0]


def knows(table: Table) -> bool:
    """Whether the product's configuration can hold every row, each as another one."""
    if any(name not in KNOB_NAMES for name in table.knobs):
        return False
    if any(not _typed_right(name, value) for row in table.rows for name, value in row.config.items()):
        return False
    return len({config_key(_plain(row)) for row in table.rows}) == len(table.rows)


def table_space(table: Table) -> TableSpace:
    """The space of a table that the product :func:`knows`."""
    members = {config_key(made): (made, row) for row in table.rows for made in [_config(row, table)]}
    knobs = [config.knobs() for config, _ in members.values()]
    found = {name: list(dict.fromkeys(each[name] for each in knobs)) for name in KNOB_NAMES}
    varying = {name: _in_order(name, values) for name, values in found.items() if len(values) > 1}
    return TableSpace(
        values=varying,
        fixed={name: values[0] for name, values in found.items() if name not in varying},
        batch=GlobalBatch(samples=table.global_batch_size or 1),
        members=members,
    )


def _in_order(name: str, values: list[KnobValue]) -> tuple[KnobValue, ...]:
    return tuple(sorted(values, key=int)) if knob(name).kind == "integer" else tuple(values)


def _typed_right(name: str, value: Any) -> bool:
    kind = type(knob(name).default)
    return type(value) is kind


def _plain(row: Row) -> TrainingConfig:
    return TrainingConfig.from_mapping(dict(row.config))


def _config(row: Row, table: Table) -> TrainingConfig:
    """The canonical configuration, accumulation as the global batch wants it (1 where that is not known)."""
    made = _plain(row)
    steps = max(1, (table.global_batch_size or 0) // made.micro_batch_size)
    return canonical(made.with_values(accumulation_steps=steps))
