"""A loop with Hugging Face Accelerate on made-up text, on one process or several. It knows nothing of the tuner."""

import argparse
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH = 1024, 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--mixed-precision", default="no")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--clock", default="", help="write when each step ends to this file")
    options = parser.parse_args()

    accelerator = Accelerator(
        cpu=True, mixed_precision=options.mixed_precision, gradient_accumulation_steps=options.accumulate
    )
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, VOCABULARY, (8192, LENGTH)))
    loader = DataLoader(data, batch_size=options.batch, num_workers=options.workers, shuffle=True, drop_last=True)
    layer = nn.TransformerEncoderLayer(192, 4, 768, batch_first=True, norm_first=True, dropout=0.0)
    blocks = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 192), blocks, nn.Linear(192, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    clock = open(options.clock, "w") if options.clock and accelerator.is_main_process else None
    for _ in range(100):
        for (tokens,) in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if clock is not None and accelerator.sync_gradients:
                print(time.perf_counter(), file=clock, flush=True)


if __name__ == "__main__":
    main()
