"""A worker for tests that kill it: ``python tests_worker.py FOLDER LEASE_SECONDS`` polls one run for ever."""

import json
import sys
from pathlib import Path

from objectives.contract import ObjectiveReference
from objectives.trial.protocol import RunRequest
from tuner.work.device_lock import DeviceLock
from tuner.work.launcher import Launcher


def main() -> None:
    folder, lease = Path(sys.argv[1]), float(sys.argv[2])
    lock = DeviceLock(folder, "cpu")
    lock.acquire()
    reference = ObjectiveReference(
        kind="tests_misbehaving:Misbehaving",
        settings={"do": "grandchildren", "pids": str(folder / "grandchildren")},
        folder=str(Path(__file__).parent),
    )
    request = RunRequest(run=f"run-of-{folder.name}", purpose="search", objective=reference, keepalive_seconds=lease)
    launcher = Launcher()
    process = launcher.start(request, folder / "log", lock=lock)
    said = folder / "said.partial"
    said.write_text(json.dumps({"template": launcher.template_pid, "child": process.pid}))
    said.rename(folder / "said")
    while process.ended is None:
        process.poll(0.1)


if __name__ == "__main__":
    main()
