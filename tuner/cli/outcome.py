"""How a command ends: its exit status, and an error said in one line instead of a traceback."""

from __future__ import annotations

import json
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from tuner.errors import SpecError, SpecProblem, TightfitError

DONE = 0
FAILED = 1
UNUSABLE = 2
INTERRUPTED = 130
TERMINATED = 143

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (DONE, "done"),
    (FAILED, "the work failed; also: nothing fits, the store cannot be reached"),
    (UNUSABLE, "unusable arguments or spec, or no such study"),
    (INTERRUPTED, "ended by Ctrl-C; what is done is kept, and the same command goes on"),
    (TERMINATED, "ended by SIGTERM, in the same way"),
)
"""Exit status and meaning, in the order of the reference."""

_OPTIONS = {
    "limits.trials": "--trials",
    "limits.time": "--time",
    "limits.memory": "--memory",
    "sampler": "--sampler",
}
"""The option behind a key that the command line replaced (such a problem has no line)."""


class ReaderLeftError(Exception):
    """The reader of our output has gone. Not a ``BrokenPipeError``, which click would turn into exit status 1."""


class OutputLostError(Exception):
    """What was to be printed cannot be written (a full disk). Not an ``OSError``, which may come from anywhere."""


@contextmanager
def writing() -> Iterator[None]:
    """Around everything that writes to stdout: says what a failure to write means."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeftError from error
    except OSError as error:
        raise OutputLostError(str(error.strerror or error)) from error


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command.

    Args:
        arguments: What stands after ``tuner``.

    Returns:
        The exit status. Errors are on stderr; with ``--json`` they are on stdout too, as ``{"error": {...}}``.
    """
    _tolerant_output()
    try:
        return _run(arguments)
    except (ReaderLeftError, BrokenPipeError):
        return _reader_left()
    except OutputLostError as error:
        return _output_lost(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except TightfitError as error:
        return _say(arguments, _lines(error, arguments), error.exit_status, _details(error))
    except Exception as error:  # noqa: BLE001 - the last stop before a person
        text = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        return _say(arguments, [f"unexpected {text}", "run again with --debug for the traceback"], FAILED, {})


def _run(arguments: Sequence[str]) -> int:
    from tuner.cli.commands import tuner

    try:
        status = tuner.main(args=list(arguments), prog_name="tuner", standalone_mode=False)
        with writing():
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return UNUSABLE
    except click.UsageError as error:
        return _say(arguments, _usage(error), UNUSABLE, {})
    except click.ClickException as error:
        return _say(arguments, [error.format_message()], error.exit_code, {})
    except click.Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else DONE


def _usage(error: click.UsageError) -> list[str]:
    hint = f"try '{error.ctx.command_path} --help'" if error.ctx is not None else "try 'tuner --help'"
    return [error.format_message(), *_dash(error), hint]


def _dash(error: click.UsageError) -> list[str]:
    """A name that begins with a dash is taken for an option: where such a name may be meant, how it is written."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return []
    names = [each.human_readable_name for each in error.ctx.command.params if isinstance(each, click.Argument)]
    if not names:
        return []
    said = f"{error.ctx.command_path} -- {shlex.quote(error.option_name)}"
    return [f"a {names[0].lower()} whose name begins with a dash comes after two dashes: {said}"]


def _say(arguments: Sequence[str], lines: Sequence[str], status: int, details: dict[str, Any]) -> int:
    """One line per fact on stderr, and the same as a document on stdout where one was asked for."""
    if "--debug" in arguments:
        traceback.print_exc()
    try:
        for line in lines:
            print(f"tuner: {line}", file=sys.stderr)
        if "--json" in arguments:
            print(json.dumps({"error": {"message": lines[0] if lines else "", "exit_status": status, **details}}))
            sys.stdout.flush()
    except BrokenPipeError:
        _reader_left()
    except OSError as error:
        return _output_lost(str(error.strerror or error))
    return status


def _lines(error: TightfitError, arguments: Sequence[str]) -> list[str]:
    if isinstance(error, SpecError):
        return [_problem_line(problem, error.source, arguments) for problem in error.problems]
    return str(error).splitlines() or [type(error).__name__]


def _problem_line(problem: SpecProblem, source: str, arguments: Sequence[str]) -> str:
    """``file:line: key: reason. fix``; a problem of an option's value names the option instead."""
    option = _OPTIONS.get(problem.where)
    said = f"{problem.reason.rstrip('.')}. {problem.fix}".rstrip()
    if option is not None and any(argument.split("=")[0] == option for argument in arguments):
        return f"{option}: {said}"
    place = source if problem.line is None else f"{source}:{problem.line}"
    return ": ".join(part for part in (place, problem.where, said) if part)


def _details(error: TightfitError) -> dict[str, Any]:
    if not isinstance(error, SpecError):
        return {}
    return {
        "problems": [
            {"where": each.where, "reason": each.reason, "fix": each.fix, "line": each.line} for each in error.problems
        ]
    }


def _reader_left() -> int:
    """The reader of our output has gone (``tuner show x | head``): nothing failed, and nobody listens."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _output_lost(reason: str) -> int:
    """The answer is lost, whatever it was; the interpreter must not try to write it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        print(f"tuner: the output cannot be written: {reason}", file=sys.stderr)
    return FAILED


def _tolerant_output() -> None:
    """A terminal that cannot show a character shows a question mark instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
