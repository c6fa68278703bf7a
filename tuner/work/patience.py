"""Work on a store that may be away for a while: tried again until it is back, or until nobody wants to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from storage.errors import StoreUnavailable
from tuner.stop import wait_for

Result = TypeVar("Result")
PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""Between attempts; the last one repeats. The store's own short attempts come before each."""


def patiently(
    work: Callable[[], Result],
    *,
    give_up: Callable[[], bool] = lambda: False,
    on_wait: Callable[[str], None] = lambda _cause: None,
    on_back: Callable[[float], None] = lambda _seconds: None,
) -> Result:
    """Does the work as soon as the store can be reached.

    Args:
        work: May be called any number of times.
        give_up: Asked while waiting; True ends it with the store's own error.
        on_wait: Called once with the cause when there is something to wait for.
        on_back: Called with the seconds waited when the store was away and is back.

    Raises:
        StoreUnavailable: It is away, and whoever asked gave up.
    """
    begun, failures = time.monotonic(), 0
    while True:
        try:
            result = work()
        except StoreUnavailable as error:
            if failures == 0:
                on_wait(str(error))
            if wait_for(give_up, PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS) - 1)]):
                raise
            failures += 1
            continue
        if failures:
            on_back(time.monotonic() - begun)
        return result
