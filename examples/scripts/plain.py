"""A plain PyTorch training loop on made-up text, as anybody might write it. It knows nothing of the tuner."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH = 2048, 64


class Model(nn.Module):
    def __init__(self, width: int = 192, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.blocks(self.embed(tokens), mask=mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--clock", default="", help="write when each step ends to this file")
    options = parser.parse_args()

    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, VOCABULARY, (4096, LENGTH + 1)))
    loader = DataLoader(data, batch_size=options.micro_batch, num_workers=options.workers, shuffle=True, drop_last=True)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batches = iter(loader)
    clock = open(options.clock, "w") if options.clock else None
    for step in range(options.steps):
        for _ in range(options.accumulate):
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            (tokens,) = batch
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
                logits = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            (loss / options.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        if clock is not None:
            print(time.perf_counter(), file=clock, flush=True)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
