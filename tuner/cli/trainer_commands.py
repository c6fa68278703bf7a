"""The commands between Tightfit and a training job: take its configuration over, find an answer again."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.longer_commands import carried_out
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
@click.option("--study", metavar="NAME", help="The study's name; without it, that of the output (or of your file).")
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


@click.command()
@click.option("--model", required=True, metavar="MODEL", help="A folder or config.json, a hub name, or a model type.")
@click.option("--device", metavar="NAME", help="Its name, or words of it, such as H100; without it, any.")
@click.option("--sequence-length", type=int, metavar="TOKENS", help="Tokens per sample at most.")
@click.option("--global-batch", type=int, metavar="SAMPLES", help="Samples per optimizer step over all ranks.")
@click.option("--world-size", type=int, default=1, show_default=True, metavar="N", help="Ranks of the job.")
@click.option("--memory", metavar="SIZE", help="Only what was measured to need at most so much, such as 40GiB.")
@json_option
@debug_option
def lookup(
    model: str,
    device: str | None,
    sequence_length: int | None,
    global_batch: int | None,
    world_size: int,
    memory: str | None,
    as_json: bool,
) -> int:
    """Find the best confirmed configuration for a model, device, sequence length and batch, from all studies.

    The answer says whether it is exactly what was asked for, else what is different, and what has changed on this
    machine since it was measured. Exit status 1 where nothing comes near.
    """
    from tuner.cli.handing import print_lookup
    from tuner.lookup import lookup as find

    found = find(
        model=model, device=device, sequence_length=sequence_length, global_batch_size=global_batch,
        world_size=world_size, memory=memory,
    )  # fmt: skip
    answer(found, as_json=as_json, show=print_lookup)
    return 0 if found["answer"] is not None else 1


@click.command()
@click.argument("study")
@click.option("--with", "trainer", metavar="TRAINER", help="hf-trainer or lightning: the exported files in it instead.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Optimizer steps timed in the trainer.")
@json_option
@debug_option
def confirm(study: str, trainer: str | None, steps: int | None, as_json: bool) -> int:
    """Confirm STUDY again: the winner, the baseline and its rivals in new long runs, on this machine as it is now.

    The old confirmation stops counting when the new one is done; stopped before, everything stays as it was.
    With --with the winner's exported files run in the real trainer on the study's own model and data, and its
    throughput and peak stand beside the study's, the trainer's own overhead apart; the confirmation stays as it is.
    """
    from tuner import confirming
    from tuner.cli.handing import print_in_trainer
    from tuner.cli.tables import print_result

    if trainer is not None:
        told, status = carried_out(lambda **asked: confirming.confirm_in_trainer(study, trainer, steps=steps, **asked))
        answer(told, as_json=as_json, show=print_in_trainer)
        return status or int(not told["as_exported"])
    if steps is not None:
        raise click.UsageError("--steps is of --with: the confirmation's own length follows from the spec")
    found, status = carried_out(lambda **asked: confirming.confirm(study, **asked).to_json())
    answer(found, as_json=as_json, show=print_result)
    return status


TRAINER_COMMANDS = (init, lookup, confirm)
"""All of them; :mod:`tuner.cli.commands` adds them to the group."""
