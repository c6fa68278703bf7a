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
    from tuner import examining
    from tuner.cli.longer_printing import print_verified

    found, status = carried_out(lambda **asked: examining.verify(study, **asked))
    answer(found, as_json=as_json, show=print_verified)
    return status or int(found["verdict"] == "broken")


@click.command()
@STUDY
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True,
              metavar="N", help="Of the plain run; each remedy adds a third.")  # fmt: skip
@click.option("--no-remedies", is_flag=True, help="Only look; try nothing against growth.")
@json_option
@debug_option
def soak(study: str, minutes: float, no_remedies: bool, as_json: bool) -> int:
    """Run STUDY's winner for minutes, with changing lengths and evaluation breaks, and see how its memory grows.

    Where it grows, or sits near the limit, remedies are tried, with their cost; what helps goes into the export. A leak
    (kept tensors) is told apart from fragmentation.
    """
    from tuner import examining
    from tuner.cli.longer_printing import print_soaked

    found, status = carried_out(
        lambda **asked: examining.soak(study, minutes=minutes, remedies=not no_remedies, **asked)
    )
    answer(found, as_json=as_json, show=print_soaked)
    return status


@click.command()
@STUDY
@click.option("--trial", type=click.IntRange(0), metavar="N", help="Its number; the winner without it.")
@click.option("--with", "tool", type=click.Choice(["torch", "memory", "nsys", "ncu"]), default="torch",
              show_default=True, help="The tool.")  # fmt: skip
@json_option
@debug_option
def profile(study: str, trial: int | None, tool: str, as_json: bool) -> int:
    """Profile some steps of a trial of STUDY: where the time and the memory go, and what costs without need.

    torch keeps a trace for Perfetto, memory a snapshot for PyTorch's viewer (CUDA), nsys and ncu a file of NVIDIA's
    Nsight tools. A profiled run is never a measurement.
    """
    from tuner import examining
    from tuner.cli.longer_printing import print_profiled

    found, status = carried_out(lambda **asked: examining.profile(study, trial=trial, tool=tool, **asked))
    answer(found, as_json=as_json, show=print_profiled)
    return status


def carried_out(work: Asked) -> tuple[Mapping[str, Any], int]:
    """Runs it with progress on stderr; Ctrl-C ends it. Returns what it answers and the status a signal asked for."""
    import sys

    from tuner.cli.display import display
    from tuner.cli.running import stop_on_signals

    with stop_on_signals() as stop, display(sys.stderr, quiet=False) as on_progress:
        return work(on_progress=on_progress, stop=stop), stop.status


LONGER_COMMANDS = (verify, soak, profile)
"""What longer runs add to ``tuner``."""
