"""Which tensors a program keeps, and in what: found through Python's own garbage collector, a few times in a run."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

MOST_ASKED = 100
"""So many of the new tensors are asked who keeps them."""
SHARE_OF_A_KEEPER = 10
"""A container that keeps one of so many is the one: what it keeps holds the others."""
LEAST_NEW = 20
"""Fewer new tensors than this are no leak's."""
CONTAINERS = (list, dict, set, tuple)


def tensor_ids() -> frozenset[int]:
    """Ids of all tensors that Python sees now."""
    gc.collect()
    return frozenset(id(one) for one in gc.get_objects() if _is_tensor(one))


def _is_tensor(one: Any) -> bool:
    try:
        return issubclass(type(one), torch.Tensor)
    except ReferenceError:  # a weak proxy whose object is gone
        return False


def keeper_of_new(before: frozenset[int]) -> str | None:
    """What keeps most of the tensors that were not there before, for people; None where there are few.

    Args:
        before: What :func:`tensor_ids` said at an earlier moment after warm-up.
    """
    gc.collect()
    new = [one for one in gc.get_objects() if _is_tensor(one) and id(one) not in before]
    if len(new) < LEAST_NEW:
        return None
    asked = random.Random(0).sample(new, min(len(new), MOST_ASKED))
    ids = {id(one) for one in asked}
    own = {id(new), id(asked)}
    counts = [
        (_kept_by(one, ids), one) for one in gc.get_referrers(*asked) if type(one) in CONTAINERS and id(one) not in own
    ]
    most, keeper = max(counts, key=lambda each: each[0], default=(0, ()))
    if most < len(asked) / SHARE_OF_A_KEEPER:
        return f"{len(new)} tensors that no one container keeps"
    return f"a {type(keeper).__name__} of {len(keeper)} entries{_name_of(keeper, (counts,))}"


def _kept_by(container: Any, ids: set[int]) -> int:
    """How many of these objects it holds."""
    held = container.values() if isinstance(container, dict) else container
    return sum(id(one) in ids for one in held)


def _named(holder: Any) -> dict[Any, Any]:
    """What it holds by name: a dictionary itself, or an object's attributes."""
    if isinstance(holder, dict):
        return holder
    return dict(getattr(holder, "__dict__", None) or {})


def _name_of(keeper: Any, own: Iterable[Any]) -> str:
    """`` named NAME`` where an attribute or a global holds it."""
    mine = {id(one) for one in own}
    for holder in gc.get_referrers(keeper):
        if id(holder) in mine or isinstance(holder, FrameType):
            continue
        for name, value in list(_named(holder).items()):
            if value is keeper and isinstance(name, str):
                return f" named `{name}`"
    return ""
