"""optuna-dashboard on the same study in the same run, from an environment of its own (it needs other versions)."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.ui_parts.browse import DRAWN, resident_bytes, seconds_to
from benchmarks.ui_parts.store import LARGE
from tuner.search.projection import Projection

VERSION = "0.21.0"
PACKAGES = (f"optuna-dashboard=={VERSION}", "psycopg2-binary")
PLOT = f"{DRAWN}, .js-plotly-plot .scatterlayer path"
"""Something drawn from data: it shows empty axes much earlier."""
START_SECONDS = 60.0


def installed(folder: Path) -> Path | None:
    """The program, installed into a virtual environment in the folder if need be; None where pip cannot."""
    program = folder / "bin" / "optuna-dashboard"
    if program.is_file():
        return program
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *PACKAGES], check=False)
    return program if done.returncode == 0 and program.is_file() else None


def dashboard(database: Any, url: str, program: Path, chromium: Any, port: int) -> dict[str, Any]:
    """Its time to the first plot of the large study, cold and warm, and its memory."""
    from storage import studies

    study = studies.find(database, LARGE)
    assert study is not None
    Projection(database).rebuild(study.id)
    place = f"{url}?options=-csearch_path%3Doptuna"
    process = subprocess.Popen(
        [str(program), place, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(address)
        context = chromium.new_context(viewport={"width": 1280, "height": 1000})
        page = context.new_page()
        cold = seconds_to(page, f"{address}/dashboard/studies/1", PLOT)
        warm = seconds_to(page, f"{address}/dashboard/studies/1", PLOT)
        context.close()
        return {
            "version": VERSION, "cold_seconds": cold, "warm_seconds": warm,
            "server_memory_bytes": resident_bytes(process.pid),
        }  # fmt: skip
    finally:
        process.terminate()
        process.wait(20)


def _wait(address: str) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at:
        with suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"optuna-dashboard does not answer at {address}")
