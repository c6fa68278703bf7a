"""The commands between Tightfit and a training job: take its configuration over, find an answer again."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.options import answer, debug_option, json_option


@click.command()
@click.option(
    "--from",
    "paths",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your configuration, or a folder with it; may be given several times.",
)
@click.option("--format", "format_name", metavar="FORMAT", help="What it is, where its keys do not say it.")
@click.option("--world-size", type=int, metavar="N", help="Ranks of the job, where no file says how many.")
@click.option("--study", metavar="NAME", help="The study's name; without it, the file's.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the spec there, not to stdout.")
@json_option
@debug_option
def init(
    paths: tuple[Path, ...],
    format_name: str | None,
    world_size: int | None,
    study: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Make a spec from the configuration of a trainer: its values become the baseline, with ranges around them.

    Reads Hugging Face TrainingArguments (JSON, YAML, or a text file with the command line), DeepSpeed, accelerate,
    Lightning, axolotl and torchtitan. Unknown, misspelt and contradictory keys are listed; what no file can say is
    marked in the spec, and `tuner run` refuses it until it is filled in.
    """
    from tuner.cli.handing import print_init
    from tuner.imports.init import init as make

    made = make(paths, format_name=format_name, world_size=world_size, study=study, output=output)
    answer(made, as_json=as_json, show=print_init)


TRAINER_COMMANDS = (init,)
"""All of them; :mod:`tuner.cli.commands` adds them to the group."""
