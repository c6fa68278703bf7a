"""Becomes the script's command: ``python -I -S start.py PARENT COMMAND...``. Dies with its parent, whatever happens.

The kernel keeps the parent-death signal over an exec, so the script needs to know nothing of it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_FOUND, NOT_STARTED = 127, 126
"""Exit statuses of a shell for the same."""


def main(parent: int, command: list[str]) -> None:
    """Replaces this process by the command."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died in between
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell: that is the point
    except OSError as error:
        os.write(2, f"tightfit: cannot start {command[0]!r}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
