"""An objective whose ``build`` ends its process, or does not, in the way its settings say."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path


class Recovered(RuntimeError):
    """Raised while another error was being handled."""


class Misbehaving:
    unit = "samples"

    def __init__(self, do: str = "nothing", **settings):
        self.do = do
        self.settings = settings

    def build(self, device, seed):
        getattr(self, self.do)(**self.settings)
        raise LookupError(f"build of {self.do} is over")

    def nothing(self):
        pass

    def raise_chain(self, text="disk full"):
        try:
            try:
                raise OSError(text)
            except OSError as cause:
                raise ValueError("could not load") from cause
        except ValueError:
            raise Recovered("outermost") from None

    def raise_group(self):
        raise ExceptionGroup("several", [KeyError("one"), MemoryError("two")])

    def raise_text(self, megabytes=5):
        raise RuntimeError("start\0\ud800" + "x" * (megabytes << 20) + "end")

    def raise_unreadable(self):
        class Unreadable(RuntimeError):
            def __str__(self):
                raise TypeError("no text")

        raise Unreadable

    def memory_error(self):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (data_segment_bytes() + (8 << 20), resource.RLIM_INFINITY))
        kept = []
        while True:
            kept.append(bytearray(1 << 20))

    def send_self(self, number):
        os.kill(os.getpid(), number)
        time.sleep(60)

    def segfault(self):
        ctypes.string_at(0)

    def abort(self):
        os.abort()

    def exit_python(self, code):
        sys.exit(code)

    def exit_now(self, code):
        sys.stdout.write("last words without a newline")
        sys.stdout.flush()
        os._exit(code)

    def sleep(self):
        say("sleeping")
        time.sleep(600)

    def hang_at_exit(self):
        import atexit

        atexit.register(time.sleep, 600)

    def hang_in_thread(self):
        threading.Thread(target=time.sleep, args=(600,)).start()

    def grandchildren(self, pids, then="sleep"):
        """Leaves an exec'd and two forked grandchildren in sessions of their own that ignore SIGTERM."""
        script = "import os,signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        clean = {"PATH": os.environ["PATH"]}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        marked = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, **quiet)
        unmarked = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, env=clean, **quiet)
        started = [marked.pid, unmarked.pid, fork_away(), fork_away(twice=True)]
        Path(pids).write_text(" ".join(map(str, started)))
        if then == "sleep":
            time.sleep(600)
        if then == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    def peer_hangs(self, pids):
        """A run of two processes, of which one fails while the other waits for it."""
        Path(pids).write_text(str(fork_away()))
        raise RuntimeError("the other waits for ever")

    def loader_like(self, pids):
        """Forks a worker as a DataLoader does, which outlives its parent's interest."""
        pid = fork_away()
        Path(pids).write_text(str(pid))
        say("FORKED FILES", open_files(pid))
        os._exit(7)

    def show(self):
        say("FILES", open_files(os.getpid()))
        say("ENV", sorted(os.environ))
        say("VALUES", sorted(os.environ.values()))
        say("INITIAL", Path("/proc/self/environ").read_bytes())
        say("SIGNALS", signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        say("CWD", Path.cwd(), sys.path[-1])
        say("GROUP", os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())

    def dirty(self, megabytes=5):
        sys.stdout.buffer.write(b"HEAD \x00 \xff\xfe \x1b[31mred\x1b[0m\r 10%\r 20%\n")
        sys.stdout.buffer.write(b"x" * (megabytes << 20))
        sys.stdout.buffer.write(b"\nCUDA out of memory (a warning only)\nTAIL\n")
        sys.stdout.buffer.flush()

    def flood(self, megabytes):
        for _ in range(megabytes):
            sys.stdout.buffer.write(b"y" * 1023 + b"\n" * 1)
            sys.stdout.buffer.write((b"y" * 1023 + b"\n") * 1023)
        sys.stdout.buffer.write(b"FLOOD OVER\n")
        sys.stdout.buffer.flush()


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def open_files(pid):
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.append(str(entry.readlink()))
    return sorted(found)


def data_segment_bytes():
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmData:") + 1]) * 1024


def fork_away(*, twice=False):
    """A forked process in a session of its own that ignores SIGTERM; forked twice, its parent is gone at once."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        if twice and os.fork():
            os._exit(0)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(writing, str(os.getpid()).encode())
        os.close(writing)
        time.sleep(600)
        os._exit(0)
    os.close(writing)
    found = int(os.read(reading, 100))
    os.close(reading)
    return found
