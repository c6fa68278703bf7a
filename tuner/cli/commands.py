"""The commands. Each calls one function of ``tuner.api`` and prints what it answers; heavy imports stay inside."""

from __future__ import annotations

import click

from tuner.cli.doctor_commands import DOCTOR_COMMANDS
from tuner.cli.longer_commands import LONGER_COMMANDS
from tuner.cli.options import answer, debug_option, json_option
from tuner.cli.screens import ui
from tuner.cli.service_commands import COMMANDS, rebuild_optuna
from tuner.cli.trainer_commands import TRAINER_COMMANDS


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tightfit", prog_name="tuner")
@debug_option
def tuner() -> None:
    """Find the training configuration that trains fastest inside the memory of your GPU, by short, real trials."""


@tuner.command()
@click.argument("spec", type=click.Path(), metavar="SPEC")
@click.option("--trials", type=int, metavar="N", help="Trials at most, instead of the spec's.")
@click.option("--time", metavar="TIME", help="Wall time at most, such as 4m or 1h30m, instead of the spec's.")
@click.option("--sampler", metavar="NAME", help="Who proposes: auto, tpe, gp, nsga2, random or grid.")
@click.option("--memory", metavar="LIMIT", help="Memory limit, such as 92% or 40GiB, instead of the spec's.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--ui", "with_screens", is_flag=True, help="Open the screens on the study; their address is on stderr.")
@json_option
@debug_option
def run(
    spec: str,
    trials: int | None,
    time: str | None,
    sampler: str | None,
    memory: str | None,
    quiet: bool,
    with_screens: bool,
    as_json: bool,
) -> int:
    """Run the study of SPEC on this machine: trials, front, confirmed winner.

    Ctrl-C keeps what is done; the same command goes on. Limits and sampler may change in between.
    """
    from tuner.cli.running import run_study

    given = {"limits.trials": trials, "limits.time": time, "sampler": sampler, "limits.memory": memory}
    return run_study(spec, given, quiet=quiet, as_json=as_json, with_screens=with_screens)


@tuner.command()
@click.argument("spec", type=click.Path(), metavar="SPEC")
@click.option("--memory", metavar="LIMIT", help="Memory limit, such as 92% or 40GiB, instead of the spec's.")
@json_option
@debug_option
def estimate(spec: str, memory: str | None, as_json: bool) -> int:
    """Predict the peak memory of every configuration of SPEC, without a trial.

    The study is kept in the store; `tuner run SPEC` goes on from it, with the predictions beside its measurements.
    """
    from tuner.cli.running import estimate_study

    return estimate_study(spec, {"limits.memory": memory}, as_json=as_json)


@tuner.command("list")
@json_option
@debug_option
def list_studies(as_json: bool) -> None:
    """List the studies in the store."""
    from tuner import api
    from tuner.cli.tables import print_list

    answer(api.list_studies(), as_json=as_json, show=print_list)


@tuner.command()
@click.argument("study")
@json_option
@debug_option
def show(study: str, as_json: bool) -> None:
    """Show STUDY: its front, its baseline beside the winner, what was refused."""
    from tuner import api
    from tuner.cli.tables import print_result

    answer(api.show(study).to_json(), as_json=as_json, show=print_result)


@tuner.command()
@click.argument("study")
@json_option
@debug_option
def front(study: str, as_json: bool) -> None:
    """Show the Pareto front of STUDY: throughput against peak memory."""
    from tuner import api
    from tuner.cli.tables import print_front

    answer(api.front(study), as_json=as_json, show=print_front)


@tuner.command()
@click.argument("study")
@click.option("--to", required=True, metavar="FORMAT", help="Target; the formats are listed below.")
@click.option("--pick", metavar="WHICH", default="fastest", show_default=True, help="fastest, knee or smallest.")
@click.option("--memory", metavar="SIZE", help="Only what was measured to need at most so much, such as 40GiB.")
@click.option("--world-size", type=int, metavar="N", help="Ranks of the job: accumulation is derived again.")
@click.option("--output", type=click.Path(), metavar="DIR", help="Write the files there; without it, to stdout.")
@click.option("--diff", type=click.Path(), metavar="FILE", help="Show a configuration of yours beside it.")
@json_option
@debug_option
def export(
    study: str,
    to: str,
    pick: str,
    memory: str | None,
    world_size: int | None,
    output: str | None,
    diff: str | None,
    as_json: bool,
) -> None:
    """Write the best configuration of STUDY as files for a training job, or the whole study as a replay table.

    Formats: hf-trainer, accelerate, deepspeed, lightning, torchtitan, torchrun, slurm, json, table. Micro-batch x
    accumulation x ranks is the global batch exactly, or nothing is written. What a format cannot hold is listed with
    the reason.
    """
    from tuner import api
    from tuner.cli.exporting import print_export

    made = api.export(study, to, pick=pick, memory=memory, world_size=world_size, output=output, diff=diff)
    answer(made, as_json=as_json, show=print_export)


@tuner.command()
@json_option
@debug_option
def devices(as_json: bool) -> None:
    """Show what this machine has to train on."""
    from tuner import api
    from tuner.cli.tables import print_devices

    answer(api.devices(), as_json=as_json, show=print_devices)


@tuner.group()
@debug_option
def db() -> None:
    """Look after the store."""


@db.command()
@json_option
@debug_option
def migrate(as_json: bool) -> None:
    """Bring the store's schema to this version. Safe to run twice, and from several machines at once."""
    from tuner import api
    from tuner.cli.tables import print_facts

    answer(api.migrate(), as_json=as_json, show=print_facts)


@db.command()
@json_option
@debug_option
def check(as_json: bool) -> None:
    """Say whether the store can be reached and has this version's schema."""
    from tuner import api
    from tuner.cli.tables import print_facts

    answer(api.check(), as_json=as_json, show=print_facts)


db.add_command(rebuild_optuna)
for _command in (*COMMANDS, *DOCTOR_COMMANDS, *LONGER_COMMANDS, *TRAINER_COMMANDS, ui):
    tuner.add_command(_command)
