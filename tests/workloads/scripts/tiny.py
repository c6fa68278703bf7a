"""A tiny training loop for tests; ``--fault`` says what goes wrong."""

import argparse
import atexit
import os
import signal
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--seconds", type=float, default=0.01)
parser.add_argument("--fault", default="")
parser.add_argument("--at", type=int, default=3)
parser.add_argument("--left", default="", help="a file that finally blocks and exit handlers write to")
options = parser.parse_args()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if options.checkpoint:
            return self.second(torch.utils.checkpoint.checkpoint(self.first, rows, use_reentrant=False).relu())
        return self.second(self.first(rows).relu())


def fail(step: int) -> None:
    if step != options.at:
        return
    if options.fault == "raise":
        raise ValueError("the data is broken")
    if options.fault == "oom":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    if options.fault == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if options.fault == "exit":
        sys.exit(3)
    if options.fault == "memory":
        torch.ones(1 << 30).sum()
    if options.fault == "smaller":
        raise SystemExit(0)


def note(word: str) -> None:
    if options.left:
        with open(options.left, "a") as file:
            file.write(word + "\n")


def main() -> None:
    atexit.register(note, "exit handler")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 64), torch.randn(512, 1))
    loader = DataLoader(data, batch_size=options.batch, num_workers=options.workers, drop_last=True)
    model = Net()
    scaler = torch.amp.GradScaler("cpu", enabled=options.fault == "skip")
    optimizer = torch.optim.AdamW(model.parameters())
    step = micro = 0
    while step < options.steps:
        for rows, wanted in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
                loss = nn.functional.mse_loss(model(rows).float(), wanted)
            if options.fault == "nan" and step >= options.at:
                loss = loss * float("nan")
            if options.fault == "skip":
                loss = loss * float("inf")
            scaler.scale(loss / options.accumulate).backward()
            micro += 1
            time.sleep(options.seconds)
            if micro % options.accumulate == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                step += 1
                fail(step)
                if step >= options.steps:
                    break
    note("after training")


try:
    main()
finally:
    note("finally")
