"""Which choices probably do not run here at all, learned from failures that belong to the configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.search.planner.candidates import Codes, Encoded, Floats
from tuner.search.planner.observation import CHOICE_FAILS, LOADER_FAILS, MEASURED, Seen
from tuner.search.planner.priors import LOADER_KNOBS

WEIGHT = 3.0
"""One failure that can only be this value's fault leaves it a chance of 1 in 1 + this."""


def chance_of_running(mine: Encoded, theirs: Encoded, seen: Sequence[Seen]) -> Floats:
    """Chance that each candidate runs (memory left aside), shape (candidates,).

    A failure is blamed on the failing configuration's values that have never worked, in equal parts; when each of them
    has, on its pairs of values that have not. Failures for lack of host memory blame the loader's knobs alone.
    """
    failed = [row for row, run in enumerate(seen) if run.outcome in CHOICE_FAILS | LOADER_FAILS]
    chance = np.ones(len(mine.codes))
    if not failed:
        return chance
    worked = theirs.codes[
        [row for row, run in enumerate(seen) if run.outcome in MEASURED or run.outcome == "device_oom"]
    ]
    for blamed, share in _blame(theirs, seen, failed, worked).items():
        alike = np.ones(len(mine.codes), dtype=np.bool_)
        for column, code in blamed:
            alike &= mine.codes[:, column] == code
        chance = np.where(alike, chance / (1 + WEIGHT * share), chance)
    return chance


_Blamed = tuple[tuple[int, int], ...]


def _blame(theirs: Encoded, seen: Sequence[Seen], failed: Sequence[int], worked: Codes) -> dict[_Blamed, float]:
    total: dict[_Blamed, float] = {}
    loader = {column for column, name in enumerate(theirs.names) if name in LOADER_KNOBS}
    for row in failed:
        columns = loader if seen[row].outcome in LOADER_FAILS else range(len(theirs.names))
        for guilty in (suspects := _suspects(theirs.codes[row], list(columns), worked)):
            total[guilty] = total.get(guilty, 0.0) + 1 / len(suspects)
    return total


def _suspects(code: Codes, columns: Sequence[int], worked: Codes) -> list[_Blamed]:
    singles: list[_Blamed] = [
        ((column, int(code[column])),) for column in columns if not (worked[:, column] == code[column]).any()
    ]
    if singles:
        return singles
    return [
        ((one, int(code[one])), (other, int(code[other])))
        for position, one in enumerate(columns)
        for other in columns[position + 1 :]
        if not ((worked[:, one] == code[one]) & (worked[:, other] == code[other])).any()
    ]
