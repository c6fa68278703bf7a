"""The commands of a study's longer runs: verify, soak, profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from tuner.cli.options import answer, debug_option, json_option

Asked = Callable[..., Mapping[str, Any]]
STUDY = click.argument("study")


@click.command()
@STUDY
@json_option
@debug_option
def verify(study: str, as_json: bool) -> int:
    """Verify that STUDY's winner trains what the baseline trains.

    With dropout off: the gradient of one global batch at the winner's micro-batch and accumulation against another
    split of the same batch, and a short loss curve of both. Exit status 1 where they differ beyond rounding.
    """
    from tuner import api
    from tuner.cli.longer_printing import print_verified

    found, status = carried_out(lambda **asked: api.verify(study, **asked))
    answer(found, as_json=as_json, show=print_verified)
    return status or int(found["verdict"] == "broken")


def carried_out(work: Asked) -> tuple[Mapping[str, Any], int]:
    """Runs it with progress on stderr; Ctrl-C ends it. Returns what it answers and the status a signal asked for."""
    import sys

    from tuner.cli.display import display
    from tuner.cli.running import stop_on_signals

    with stop_on_signals() as stop, display(sys.stderr, quiet=False) as on_progress:
        return work(on_progress=on_progress, stop=stop), stop.status


LONGER_COMMANDS = (verify,)
"""What longer runs add to ``tuner``."""
