"""Records growth curves of the planted workloads on this CPU: ``python tests/recordings/growth/record.py [NAME ...]``.

Each file holds a header line (workload, seconds, library versions) and a line a reading, as a soak's child sends them.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 10.0
WORKLOADS = {
    "flat": "planted_accumulation:Right",
    "flat_with_a_log_of_numbers": "planted_growth:KeepsNumbers",
    "saturating": "planted_growth:Fills",
    "saturating_early": "planted_growth:KeepsLast",
    "leak_of_losses": "planted_growth:KeepsLosses",
    "leak_of_outputs": "planted_growth:KeepsBatches",
    "steps": "planted_growth:GrowsInSteps",
    "holes": "planted_growth:Holes",
}


def record(name: str) -> None:
    sys.path.append(str(HERE.parents[1]))
    import torch
    from longer_runs import run_body

    from objectives.trial.soaking import run

    torch.set_num_threads(1)
    found = run_body(
        run, WORKLOADS[name], {"micro_batch_size": 2, "accumulation_steps": 2}, {"seconds": SECONDS},
        purpose="soak", name="measurement",
    )  # fmt: skip
    head = {"workload": WORKLOADS[name], "seconds": SECONDS, "torch": torch.__version__, "libc": platform.libc_ver()[1],
            "updates": found["updates"], "evaluations": found["evaluations"]}  # fmt: skip
    lines = [head, *({key: each[key] for key in ("seconds", "updates", "reserved_bytes", "allocated_bytes")}
                     for each in found["series"])]  # fmt: skip
    for line in lines[1:]:
        line["seconds"] = round(line["seconds"], 4)
    (HERE / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        record(sys.argv[1])
    else:
        for each in sys.argv[1:] or WORKLOADS:
            subprocess.run([sys.executable, __file__, each], check=True)  # a process each: a heap of its own
