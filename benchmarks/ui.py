"""How fast are the screens on a large store, and what do ten people watching cost? In a real browser, on PostgreSQL.

    python -m benchmarks.ui [--json] [--trials 10000] [--studies 1000] [--people 10] [--no-peer] [--dashboard DIR]

Needs Chromium and takes some minutes. optuna-dashboard is measured on the same study in the same run: pip installs it
into a virtual environment of its own (``--dashboard DIR`` names where; made once). Targets: warm 2.5 s, cold 4 s, list
1.5 s, selection 1 s, server 500 MB; ten watching: refresh 2 s, the writer's 95th percentile within 20 % of alone. The
ten speak the browser's protocol and draw nothing: ten browsers on the same cores would measure the browsers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import print_json, say
from benchmarks.ui_parts import browse, crowd, peer
from benchmarks.ui_parts.store import LARGE, large_store

TARGETS: Mapping[str, float] = {
    "cold_seconds": 4.0,
    "warm_seconds": 2.5,
    "list_seconds": 1.5,
    "selection_seconds": 1.0,
    "server_memory_bytes": 500e6,
    "refresh_p95_seconds": 2.0,
    "write_p95_ratio": 1.2,
}
"""What each figure may be at most."""


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Runs all of it and returns the document."""
    asked = _parser().parse_args(arguments)
    from screens import browser, environment, free_test_port, serving

    with large_store(trials=asked.trials, studies=asked.studies) as (url, database), browser() as chromium:
        say(f"{asked.studies} studies, {asked.studies * 90 + asked.trials} trials, {asked.trials} of them in {LARGE!r}")
        folder = Path(tempfile.mkdtemp(prefix="tightfit-bench-"))
        found: dict[str, Any] = {}
        if not asked.only_crowd:
            found = _browsed(chromium, environment(folder, TUNER_DATABASE_URL=url), asked.repeats)
            say(str(found))
        with serving(environment(folder, TUNER_DATABASE_URL=url)) as server:
            found |= crowd.watched(
                database, server.address, server.process.pid, people=asked.people, seconds=asked.seconds
            )
            found["server_memory_bytes_watched"] = browse.resident_bytes(server.process.pid)
            say(str(found))
        beside = None
        if not asked.no_peer and (program := peer.installed(Path(asked.dashboard))) is not None:
            beside = peer.dashboard(database, url, program, chromium, free_test_port())
    return {"trials": asked.trials, "studies": asked.studies, **found, "optuna_dashboard": beside, **judged(found)}


def _browsed(chromium: Any, variables: Mapping[str, str], repeats: int) -> dict[str, Any]:
    """The large study's page and the list in a browser, on a server of their own."""
    from screens import serving

    with serving(variables) as server:
        context = chromium.new_context(viewport=browse.VIEW)
        found: dict[str, Any] = browse.study_page(context, server.address, repeats)
        found["selection_seconds"] = browse.selection(context, server.address, repeats)
        found["server_memory_bytes"] = browse.resident_bytes(server.process.pid)
        context.close()
        return found


def judged(found: Mapping[str, Any]) -> dict[str, Any]:
    """The targets, and which of them are met; a figure that is missing is not met."""
    met = {name: found.get(name) is not None and found[name] <= most for name, most in TARGETS.items()}
    return {"targets": dict(TARGETS), "met": met}


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.ui", description=__doc__.splitlines()[0])
    made.add_argument("--json", action="store_true", help="as every benchmark prints: nothing else is on stdout")
    made.add_argument("--trials", type=int, default=10_000)
    made.add_argument("--studies", type=int, default=1_000)
    made.add_argument("--people", type=int, default=10)
    made.add_argument("--seconds", type=float, default=30.0, help="of each of the three parts of the crowd")
    made.add_argument("--repeats", type=int, default=5)
    made.add_argument("--only-crowd", action="store_true", help="leave the browser's part out")
    made.add_argument("--no-peer", action="store_true", help="leave optuna-dashboard out")
    made.add_argument("--dashboard", default=str(Path(tempfile.gettempdir()) / "tightfit-dashboard"))
    return made


if __name__ == "__main__":
    print_json(main())
