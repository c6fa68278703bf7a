"""``tuner ui`` and ``tuner run --ui``: the screens' server, a process of its own beside the command line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import click

from tuner.cli.options import debug_option
from tuner.errors import TightfitError

SERVER = Path(__file__).resolve().parent.parent.parent / "ui" / "serve.py"
LOOPBACK = "127.0.0.1"
FIRST_PORT = 8501
PORTS_TRIED = 50
START_SECONDS = 30.0
END_SECONDS = 5.0


@click.command("ui")
@click.option("--host", default=LOOPBACK, show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT",
              help="Port; 0 for any. Without it, the first free one from 8501.")  # fmt: skip
@click.option("--allow-unauthenticated", is_flag=True, help="Listen for others although nobody has to sign in.")
@click.option("--read-only", is_flag=True, help="Nobody may change anything.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A further host name that people reach it by.")
@click.option(
    "--secrets", type=click.Path(), metavar="FILE", help="TOML with [auth] (OIDC) and [roles]; see the guide."
)
@debug_option
def ui(
    host: str,
    port: int | None,
    allow_unauthenticated: bool,
    read_only: bool,
    allow_host: tuple[str, ...],
    secrets: str | None,
) -> None:
    """Open the screens: studies, the live front, new studies, export, workers.

    They listen on this machine alone. For others they need people to sign in (--secrets), or --allow-unauthenticated.
    The store is that of every other command; Ctrl-C ends the screens and nothing else.
    """
    words = ["--host", host, *(["--port", str(port)] if port is not None else [])]
    words += ["--allow-unauthenticated"] if allow_unauthenticated else []
    words += ["--read-only"] if read_only else []
    words += [word for name in allow_host for word in ("--allow-host", name)]
    words += ["--secrets", secrets] if secrets is not None else []
    command = _command(words)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - no shell; signals reach the server itself


def _command(words: Sequence[str]) -> list[str]:
    """``-P`` keeps modules of the working folder out; the server finds our packages by where its own file is."""
    if not SERVER.is_file():
        raise TightfitError(f"the screens are not installed: there is no {SERVER}")
    return [sys.executable, "-P", str(SERVER), *words]


@contextmanager
def screens_beside(study: str) -> Iterator[None]:
    """The screens on a study while it runs here; their address is on stderr. They end with the block, or with us.

    Raises:
        TightfitError: They cannot be started.
    """
    port = _free_port()
    words = ["--host", LOOPBACK, "--port", str(port), "--with-parent", str(os.getpid())]
    server = subprocess.Popen(_command(words), start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(server, port)
        place = f"http://{LOOPBACK}:{port}/study?study={quote(study, safe='')}"
        print(f"tuner: the screens are at {place}", file=sys.stderr, flush=True)
        yield
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(END_SECONDS)
        if server.poll() is None:
            server.kill()


def stay_open() -> None:
    """After the study a person may go on looking: until Ctrl-C, where one sits at a terminal."""
    if not sys.stderr.isatty() or not sys.stdin.isatty():
        return
    print("tuner: the study has ended; the screens stay open until Ctrl-C", file=sys.stderr)
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < give_up_at:
        with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.05)
    raise TightfitError("the screens could not be started; `tuner ui` says why, and `tuner run` works without --ui")


def _free_port() -> int:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return port
    raise TightfitError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is free for the screens")
