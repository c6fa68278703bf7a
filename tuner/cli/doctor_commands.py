"""The commands that look for the seven mistakes: ``tuner doctor`` and ``tuner report``."""

from __future__ import annotations

import click

from tuner.cli.options import answer, debug_option, json_option


@click.command()
@click.argument("study")
@json_option
@debug_option
def doctor(study: str, as_json: bool) -> None:
    """Look for the seven mistakes in what STUDY has measured: verdict, numbers, what to change, how to check it.

    Runs nothing. What the study has not measured is said to be so, with the command that measures it.
    """
    from tuner import api
    from tuner.cli.doctoring import print_diagnosis

    answer(api.doctor(study), as_json=as_json, show=print_diagnosis)


@click.command()
@click.argument("study")
@click.option("--output", type=click.Path(), metavar="FILE.html", help="Where to write; STUDY.html here without it.")
@json_option
@debug_option
def report(study: str, output: str | None, as_json: bool) -> None:
    """Write STUDY as one HTML file: front, winner, why it won, the seven checks. It needs no network and no script."""
    from tuner import api
    from tuner.cli.tables import print_facts

    answer(api.report(study, output=output), as_json=as_json, show=print_facts)


DOCTOR_COMMANDS = (doctor, report)
"""What the doctor adds to ``tuner``."""
