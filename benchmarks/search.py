"""How fast does a search find the best? Every strategy replayed on tables of real measurements.

python -m benchmarks.search --table FILE [--table FILE ...] [--seeds N] [--json] [--plot FILE.svg]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import print_json, say
from benchmarks.replay.grid import Table
from benchmarks.replay.play import one_thread, play
from benchmarks.replay.report import Played, document
from benchmarks.replay.strategies import STRATEGIES, Strategy
from benchmarks.replay.table import TableError, read
from benchmarks.replay.text import render

SEEDS = 20


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--table", action="append", required=True, metavar="FILE", help="a replay table; repeatable")
    parser.add_argument("--seeds", type=_positive, default=SEEDS, help=f"searches a strategy and table ({SEEDS})")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--plot", metavar="FILE.svg", help="regret over device-seconds, as a picture")
    parser.add_argument("--only", action="append", metavar="NAME", help="this strategy alone; repeatable")
    parser.add_argument("--without-predictions", action="store_true", help="take the predicted peaks out of the tables")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="processes at once")
    return parser.parse_args(given)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def chosen(names: Sequence[str] | None) -> tuple[Strategy, ...]:
    """The strategies of these names; all for None.

    Raises:
        ValueError: There is none of that name; the message lists those there are.
    """
    unknown = set(names or ()) - {each.name for each in STRATEGIES}
    if unknown:
        known = ", ".join(repr(each.name) for each in STRATEGIES)
        raise ValueError(f"no strategy {sorted(unknown)[0]!r}: there are {known}")
    return tuple(each for each in STRATEGIES if not names or each.name in names)


def tables_of(files: Sequence[str], *, predictions: bool = True) -> list[Table]:
    """The tables of the files.

    Raises:
        TableError: A file is no table, or two have the same name.
    """
    tables = [read(Path(file)) for file in files]
    twice = [name for name, count in Counter(table.name for table in tables).items() if count > 1]
    if twice:
        raise TableError(f"two files hold a table named {twice[0]!r}: each table needs its own name")
    return tables if predictions else [table.without_predictions() for table in tables]


def main(given: Sequence[str]) -> int:
    """Replays and prints. Returns the exit code: 2 for unusable arguments or tables."""
    told = arguments(given)
    try:
        tables = tables_of(told.table, predictions=not told.without_predictions)
        strategies = chosen(told.only)
    except ValueError as error:
        say(f"error: {error}")
        return 2
    one_thread()
    results = play(tables, strategies, told.seeds, jobs=told.jobs, report=say)
    found = Played(tables=tables, strategies=strategies, results=results)
    answer = document(found)
    if told.plot:
        from benchmarks.replay.plot import draw

        Path(told.plot).write_text(draw(found), encoding="utf-8")
    if told.json:
        print_json(answer)
    else:
        print(render(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
