"""The commands of the service: studies handed to workers, and the workers."""

from __future__ import annotations

import sys

import click

from tuner.cli.options import answer, debug_option, json_option

STUDY = click.argument("study")


@click.command()
@click.argument("spec", type=click.Path(), metavar="SPEC")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher is served first.")
@click.option("--device-kind", type=click.Choice(["cpu", "cuda"]), help="Only on such devices.")
@click.option("--device-memory", metavar="SIZE", help="Only on devices with at least so much memory, such as 40GiB.")
@click.option("--trials", type=int, metavar="N", help="Trials at most, instead of the spec's.")
@click.option("--time", metavar="TIME", help="Wall time at most, such as 4m or 1h30m, instead of the spec's.")
@json_option
@debug_option
def submit(
    spec: str,
    priority: int,
    device_kind: str | None,
    device_memory: str | None,
    trials: int | None,
    time: str | None,
    as_json: bool,
) -> None:
    """Hand the study of SPEC to the workers. An idle one takes it within a second.

    A study that is paused, failed or cancelled goes on; a finished one does with other limits.
    """
    from pathlib import Path

    from tuner import service
    from tuner import spec as specs
    from tuner.cli.tables import print_submitted

    asked = specs.read(Path(spec), overrides={"limits.trials": trials, "limits.time": time})
    made = service.submit(asked, priority=priority, device_kind=device_kind, device_memory=device_memory)
    answer(made, as_json=as_json, show=print_submitted)


@click.command()
@click.option("--device", metavar="DEVICE", help="auto, cpu, cuda:0, an index or a UUID.")
@click.option("--devices", type=click.Choice(["all"]), help="One worker process a visible GPU, kept alive.")
@click.option("--slots", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Divide the CPU among so many workers: for testing the service, never for measuring.")  # fmt: skip
@click.option("--allowed", type=click.Path(), metavar="FILE", help="The operator's list; see the reference.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT",
              help="Answer /healthz and /metrics there; with --devices all, on the ports from there.")  # fmt: skip
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address of that port.")
@click.option("--supervised", is_flag=True, hidden=True)
@debug_option
def worker(
    device: str | None,
    devices: str | None,
    slots: int,
    allowed: str | None,
    metrics_port: int | None,
    metrics_host: str,
    supervised: bool,
) -> int:
    """Serve the queue on one device of this machine, or on all of them.

    The first SIGTERM lets the run in progress end within TUNER_DRAIN_SECONDS and hands its trial back; the second one
    ends it at once. Logs go to stderr: JSON lines, unless that is a terminal.
    """
    from tuner.cli.serving import WorkerOptions, end_with_parent, serve, serve_all

    if device and devices:
        raise click.UsageError("--device and --devices are both given: keep one of them")
    options = WorkerOptions(slots=slots, allowed=allowed, metrics_port=metrics_port, metrics_host=metrics_host)
    if supervised:
        end_with_parent()
    return serve_all(options) if devices else serve(device or "auto", options)


@click.command()
@STUDY
@json_option
@debug_option
def watch(study: str, as_json: bool) -> int:
    """Follow STUDY as the store sees it, a line a fact, until it ends. With --json, a JSON document a line.

    On a terminal the last line says how far each run in progress has come.
    """
    from tuner.cli.serving import watch_study

    return watch_study(study, as_json=as_json)


@click.command()
@STUDY
@json_option
@debug_option
def pause(study: str, as_json: bool) -> None:
    """Let whoever works on STUDY leave it; what is done stays."""
    from tuner import service
    from tuner.cli.tables import print_facts

    answer(service.pause(study), as_json=as_json, show=print_facts)


@click.command()
@STUDY
@json_option
@debug_option
def resume(study: str, as_json: bool) -> None:
    """Put STUDY back into the workers' queue."""
    from tuner import service
    from tuner.cli.tables import print_facts

    answer(service.resume(study), as_json=as_json, show=print_facts)


@click.command()
@STUDY
@json_option
@debug_option
def cancel(study: str, as_json: bool) -> None:
    """End STUDY; its measurements stay."""
    from tuner import service
    from tuner.cli.tables import print_facts

    answer(service.cancel(study), as_json=as_json, show=print_facts)


@click.command()
@STUDY
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also a running one; its workers end their runs.")
@json_option
@debug_option
def delete(study: str, yes: bool, force: bool, as_json: bool) -> None:
    """Remove STUDY with everything it measured."""
    from tuner import service
    from tuner.cli.tables import print_facts

    if not yes and not sys.stdin.isatty():
        raise click.UsageError("deleting cannot be undone: say --yes where nobody can be asked")
    if not yes:
        click.confirm(f"Remove study {study!r} with everything it measured?", abort=True, err=True)
    answer(service.delete(study, force=force), as_json=as_json, show=print_facts)


@click.command()
@click.option("--all", "ended", is_flag=True, help="Also those that are gone.")
@click.option("--release", metavar="WORKER", help="Put the quarantined device of WORKER back into service.")
@json_option
@debug_option
def workers(ended: bool, release: str | None, as_json: bool) -> None:
    """List the workers: device, state, what they work on; or release a quarantined device."""
    from tuner import service
    from tuner.cli.tables import print_facts, print_workers

    if release is not None:
        answer(service.release_worker(release), as_json=as_json, show=print_facts)
    else:
        answer(service.list_workers(ended=ended), as_json=as_json, show=print_workers)


@click.command("rebuild-optuna")
@click.argument("study", required=False)
@json_option
@debug_option
def rebuild_optuna(study: str | None, as_json: bool) -> None:
    """Make what Optuna's own tools see of STUDY (of all studies without one) anew from ours."""
    from tuner import service
    from tuner.cli.tables import print_facts

    answer(service.rebuild_optuna(study), as_json=as_json, show=print_facts)


COMMANDS = (submit, worker, watch, pause, resume, cancel, delete, workers)
"""What the service adds to ``tuner``."""
