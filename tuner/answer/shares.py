"""A joint gain split over the knobs that made it, by a model. Pure.

Each knob gets the mean of what it adds over the orders in which the knobs can be changed (Shapley 1953, "A value for
n-person games"): the only split that is symmetric and adds up. What model and measurement differ by is shared evenly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from statistics import fmean

EXACT_ORDERS = 5
"""Up to so many knobs every order is looked at (120 of five), above it :data:`DRAWN_ORDERS` drawn ones."""

DRAWN_ORDERS = 60

Worth = Callable[[frozenset[str]], float]
"""What a configuration with these knobs changed, and no other, is worth (log throughput; bytes)."""


def shares(names: Sequence[str], worth: Worth, total: float) -> Mapping[str, float]:
    """The part of ``total`` that each knob made.

    Args:
        names: The knobs changed together; not empty.
        worth: The model's word on every subset of them.
        total: What was measured for all of them together; the parts add up to it.
    """
    known: dict[frozenset[str], float] = {}

    def ask(changed: frozenset[str]) -> float:
        if changed not in known:
            known[changed] = worth(changed)
        return known[changed]

    added: dict[str, list[float]] = {name: [] for name in names}
    for order in _orders(names):
        changed = frozenset[str]()
        for name in order:
            added[name].append(ask(changed | {name}) - ask(changed))
            changed |= {name}
    parts = {name: fmean(each) for name, each in added.items()}
    rest = (total - sum(parts.values())) / len(parts)
    return {name: part + rest for name, part in parts.items()}


def _orders(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if len(names) <= EXACT_ORDERS:
        yield from permutations(names)
        return
    chance = random.Random(0)
    for _ in range(DRAWN_ORDERS // 2):
        order = tuple(chance.sample(list(names), len(names)))
        yield order
        yield order[::-1]
