"""Mistake 4, planted: two ranks over gloo that do not do the same. ``--fault`` says how; without it they do.

The words after the script are those of a trainer that splits models; the planted ones split what does not divide.
"""

import os
import socket
import subprocess
import sys
import time

FAULT = sys.argv[sys.argv.index("--fault") + 1] if "--fault" in sys.argv else ""


def rank() -> None:
    import torch
    import torch.distributed as dist
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(4, 8), nn.Linear(8, 1)

        def forward(self, input_ids, attention_mask):
            return self.head(self.embedding(input_ids)) * attention_mask.unsqueeze(-1)

    def sentence(real):
        return {"input_ids": torch.ones(12, dtype=torch.long), "attention_mask": (torch.arange(12) < real).long()}

    dist.init_process_group("gloo")
    heavy = dist.get_rank() == 1
    rows = [sentence(12 if heavy and FAULT == "long-sentences" else 6) for _ in range(20_000)]
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in torch.utils.data.DataLoader(rows, batch_size=2):
        time.sleep(0.06 if heavy and FAULT == "slow-rank" else 0.02)
        model(**batch).square().mean().backward()
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
    sys.exit(max(one.wait() for one in ranks))
