"""A launcher without torchrun's manners: starts two ranks that meet over gloo, and waits for both.

``--fault KIND`` lets rank 1 fail at its fifth step; rank 0 would wait for it for an hour.
"""

import datetime
import os
import signal
import socket
import subprocess
import sys
import time


def rank() -> None:
    import torch
    import torch.distributed as dist
    from torch import nn

    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100_000):
        if dist.get_rank() == 1 and step == 5:
            if fault == "oom":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02 if dist.get_rank() == 1 else 0.01)
        model(torch.randn(2, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if "RANK" in os.environ:
    rank()
else:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**shared, "RANK": str(number)}, start_new_session=True)
        for number in range(2)
    ]
    codes = [one.wait() for one in ranks]
    if any(codes):
        for number, code in enumerate(codes):
            print(f"rank {number} exitcode : {code}", file=sys.stderr)
        sys.exit(1)
