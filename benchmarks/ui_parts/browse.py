"""A real browser with a clock: from an address to what is drawn, and from a box on the front to its selection."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.ui_parts.store import LARGE

VIEW = {"width": 1280, "height": 1000}
WAIT_MS = 180_000
DRAWN = ".js-plotly-plot .points path, .js-plotly-plot canvas.gl-canvas"
ROW = "[class*='st-key-study-']"
AREA = ".js-plotly-plot .nsewdrag"
CHOSEN = r"() => Number((document.body.innerText.match(/Selected only \((\d+)\)/) || [0, 0])[1])"
"""How many trials are selected, as the trials table's switch says it."""
SELECTION_PATIENCE_SECONDS = 30.0
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"


def seconds_to(page: Any, address: str, sign: str) -> float:
    """From asking for an address to the first element of a sign, in seconds."""
    begun = time.perf_counter()
    page.goto(address)
    page.locator(sign).first.wait_for(state="attached", timeout=WAIT_MS)
    return time.perf_counter() - begun


def study_page(context: Any, address: str, repeats: int) -> dict[str, float]:
    """The page of the large study and the list, cold (the server's and the browser's first look), then warm."""
    study, listed = f"{address}/study?study={LARGE}", f"{address}/studies"
    page = context.new_page()
    cold = seconds_to(page, study, DRAWN)
    page.close()
    list_cold = _fresh(context, listed, ROW)
    warm = [_fresh(context, study, DRAWN) for _ in range(repeats)]
    lists = [_fresh(context, listed, ROW) for _ in range(repeats)]
    return {
        "cold_seconds": cold, "warm_seconds": median(warm), "list_cold_seconds": list_cold,
        "list_seconds": median(lists),
    }  # fmt: skip


def _fresh(context: Any, address: str, sign: str) -> float:
    page = context.new_page()
    try:
        return seconds_to(page, address, sign)
    finally:
        page.close()


def selection(context: Any, address: str, repeats: int) -> float:
    """From letting go of a box on the front to the selection under it and the page at rest, in seconds."""
    page = context.new_page()
    page.goto(f"{address}/study?study={LARGE}")
    page.locator(DRAWN).first.wait_for(state="attached", timeout=WAIT_MS)
    page.locator(IDLE).wait_for(timeout=WAIT_MS)
    page.wait_for_timeout(1500)
    took = [_select(page, share) for share in _shares(repeats)]
    page.close()
    return median(took)


def _shares(repeats: int) -> list[float]:
    return [0.6 + 0.38 * number / max(repeats, 1) for number in range(repeats)]


def _select(page: Any, share: float) -> float:
    """A box of the whole height from the left edge; another share of the width selects other points."""
    area = page.locator(AREA).first
    area.scroll_into_view_if_needed()
    box, before = area.bounding_box(), page.evaluate(CHOSEN)
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * share / 2, box["y"] + box["height"] / 2, steps=3)
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] - 4, steps=3)
    page.mouse.up()
    begun = time.perf_counter()
    while (now := page.evaluate(CHOSEN)) == before:
        page.wait_for_timeout(10)
        if time.perf_counter() - begun > SELECTION_PATIENCE_SECONDS:
            raise RuntimeError(f"the box selected nothing: {now} trials before and after")
    page.locator(IDLE).wait_for(timeout=WAIT_MS)
    took = time.perf_counter() - begun
    page.wait_for_timeout(700)
    return took


def resident_bytes(process: int) -> int:
    """Peak resident memory of a process so far, bytes (``VmHWM``)."""
    with open(f"/proc/{process}/status", encoding="ascii") as status:  # noqa: PTH123 - procfs
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
