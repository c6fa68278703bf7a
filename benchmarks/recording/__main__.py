"""Records the tables, or goes on where a recording stopped.

    python -m benchmarks.recording [--set dev|eval] [--grid NAME ...] [--data FOLDER] [--out FOLDER]

Each grid takes about ten minutes on a machine that does nothing else. It runs on as many cores as it is meant for, the
last ones this process may use. Its tables are written when it is complete; Ctrl-C keeps what has been measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.recording.cpu import Recording, read_spec, record
from benchmarks.recording.grids import GRIDS, TABLES, Grid, grid_named
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
            with _on_cores(grid.cores):
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
    """The grids named, else those of the set."""
    named = [grid_named(name) for name in arguments.grid]
    return named or [grid for grid in GRIDS if arguments.set in (None, grid.set)]


@contextmanager
def _on_cores(wanted: int) -> Iterator[None]:
    """Keeps this process, and what it starts meanwhile, on so many cores (all there are, if fewer)."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[-wanted:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("dev", "eval"), help="only this set")
    parser.add_argument("--grid", action="append", default=[], help="only this grid; may be given more than once")
    parser.add_argument("--data", type=Path, default=Path("build/tables"), help="store, caches, material")
    parser.add_argument("--out", type=Path, default=TABLES, help="where the tables go, below it dev/ and eval/")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
