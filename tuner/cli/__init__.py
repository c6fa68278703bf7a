"""The command line. Importing it loads next to nothing, so that ``tuner --help`` answers at once."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line with this process's arguments and exits with its status."""
    from tuner.cli.packages import keep_own_packages_first

    keep_own_packages_first()
    from tuner.cli.outcome import run_command

    sys.exit(run_command(sys.argv[1:]))
