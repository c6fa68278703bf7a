"""The grids there are: which spec each is recorded from, for what it serves, and on how many cores. One tuple."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TABLES = Path(__file__).parent.parent / "tables"
SPECS = TABLES / "specs"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One uncut grid on a CPU.

    Attributes:
        name: Of its spec, its study and its tables.
        set: ``dev`` for choosing constants, ``eval`` never.
        cores: Cores it is recorded on; a recording on another number is refused.
        material: What :mod:`benchmarks.recording.material` makes for it; empty for none.
    """

    name: str
    set: Literal["dev", "eval"]
    cores: int = 1
    material: str = ""

    @property
    def spec_file(self) -> Path:
        """The spec of the uncut grid."""
        return SPECS / f"{self.name}.yaml"


GRIDS: tuple[Grid, ...] = (
    Grid(name="llama-dev", set="dev"),
    Grid(name="gpt2-dev", set="dev"),
    Grid(name="convnext-dev", set="dev", cores=2, material="pictures-dev"),
    Grid(name="llama-eval", set="eval", material="docstrings"),
    Grid(name="gpt2-eval", set="eval", material="docstrings"),
    Grid(name="vit-eval", set="eval", cores=2, material="pictures-eval"),
)


def grid_named(name: str) -> Grid:
    """The grid of that name.

    Raises:
        LookupError: There is none; the message lists those there are.
    """
    for grid in GRIDS:
        if grid.name == name:
            return grid
    raise LookupError(f"no grid {name!r}; there are {', '.join(grid.name for grid in GRIDS)}")
