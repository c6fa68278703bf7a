"""``tuner run``: reads the spec, works, and answers Ctrl-C by letting the running trial end cleanly."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tuner.cli.outcome import INTERRUPTED, TERMINATED
from tuner.stop import Stop

if TYPE_CHECKING:
    from tuner.spec.model import StudySpec


def run_study(
    spec: str, overrides: Mapping[str, Any], *, quiet: bool, as_json: bool, with_screens: bool = False
) -> int:
    """Runs the study of a spec's file and prints its result.

    Args:
        spec: The file.
        overrides: Values by dotted key that replace the spec's.
        quiet: Whether progress is kept off stderr.
        as_json: Whether the result is one JSON document on stdout.
        with_screens: Whether the screens are opened on the study.

    Returns:
        The exit status: the result's, or that of the interruption.

    Raises:
        TightfitError: The spec cannot be used, the name means another study, or the store cannot be reached.
    """
    from tuner import spec as specs

    asked = specs.read(Path(spec), overrides=overrides)
    if not with_screens:
        return _run(asked, Path(spec), quiet=quiet, as_json=as_json)
    from tuner.cli.screens import screens_beside, stay_open

    with screens_beside(asked.study):
        status = _run(asked, Path(spec), quiet=quiet, as_json=as_json)
        stay_open()
    return status


def _run(asked: StudySpec, spec: Path, *, quiet: bool, as_json: bool) -> int:
    from tuner import api
    from tuner import spec as specs
    from tuner.cli.display import display
    from tuner.cli.options import print_document
    from tuner.cli.tables import print_result

    with specs.with_lines(spec), stop_on_signals() as stop, display(sys.stderr, quiet=quiet) as on_progress:
        result = api.run(asked, on_progress=on_progress, stop=stop)
    document = result.to_json()
    if as_json:
        print_document(document)
    else:
        print_result(document)
    return stop.status or int(result.exit_status)


def estimate_study(spec: str, overrides: Mapping[str, Any], *, as_json: bool) -> int:
    """Prints the predicted peaks of a spec's space. Arguments, exit status and errors as :func:`run_study`."""
    from tuner import api
    from tuner import spec as specs
    from tuner.cli.display import display
    from tuner.cli.estimates import print_estimate
    from tuner.cli.options import print_document

    asked = specs.read(Path(spec), overrides=overrides)
    with specs.with_lines(Path(spec)), stop_on_signals() as stop, display(sys.stderr, quiet=False) as on_progress:
        document = api.estimate(asked, on_progress=on_progress, stop=stop)
    if as_json:
        print_document(document)
    else:
        print_estimate(document)
    return stop.status


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request to stop; the second SIGINT interrupts at once."""
    stop = Stop()

    def asked(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
