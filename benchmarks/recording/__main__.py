"""Records the tables, or goes on where a recording stopped.

    python -m benchmarks.recording [--set dev|eval] [--grid NAME ...] [--cores N] [--data FOLDER] [--out FOLDER]

Each grid takes about ten minutes. Its tables are written when it is complete; Ctrl-C keeps what has been measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.recording.cpu import Recording, read_spec, record
from benchmarks.recording.grids import GRIDS, TABLES, Grid, grid_named
from objectives.measure.hardware import cores
from storage.database import Database
from tuner.settings import Settings
from tuner.stop import Stop


def main() -> int:
    """Reads the arguments and records."""
    arguments = _arguments()
    folder = arguments.data.absolute()
    settings = Settings(data_dir=folder, cache_dir=folder / "cache")
    folder.mkdir(parents=True, exist_ok=True)
    stop = Stop()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    database = Database.open(settings.store_url)
    try:
        database.prepare()
        for grid in _wanted(arguments):
            _record(grid, settings, database, stop, arguments.out)
    finally:
        database.close()
    return 1 if stop.is_set() else 0


def _record(grid: Grid, settings: Settings, database: Database, stop: Stop, out: Path) -> None:
    made = Recording(
        grid=grid, spec=read_spec(grid, settings), database=database, folder=settings.data_dir, out=out / grid.set,
        stop=stop, say=_say,
    )  # fmt: skip
    for path in record(made):
        _say(f"wrote {path}")


def _wanted(arguments: argparse.Namespace) -> list[Grid]:
    """The grids named, else those of the set; only those for as many cores as this process may use, if so asked."""
    named = [grid_named(name) for name in arguments.grid]
    grids = named or [grid for grid in GRIDS if arguments.set in (None, grid.set)]
    return [grid for grid in grids if not arguments.fitting or grid.cores == cores()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("dev", "eval"), help="only this set")
    parser.add_argument("--grid", action="append", default=[], help="only this grid; may be given more than once")
    parser.add_argument("--fitting", action="store_true", help="only grids for as many cores as this process may use")
    parser.add_argument("--data", type=Path, default=Path("build/tables"), help="store, caches, material")
    parser.add_argument("--out", type=Path, default=TABLES, help="where the tables go, below it dev/ and eval/")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
