"""Training with a Lightning Trainer on made-up pictures; numbers from a JSON file. It knows nothing of the tuner."""

import json
import sys
import time
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10),
        )  # fmt: skip

    def training_step(self, batch, index: int) -> torch.Tensor:
        pictures, labels = batch
        return nn.functional.cross_entropy(self.layers(pictures), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Clock(lightning.Callback):
    """Writes when each optimizer step ends, for whoever wants to compare."""

    def __init__(self, path: str) -> None:
        self.file, self.last = open(path, "w"), 0

    def on_train_batch_end(self, trainer, *arguments) -> None:
        if trainer.global_step != self.last:
            self.last = trainer.global_step
            print(time.perf_counter(), file=self.file, flush=True)


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
    loader = DataLoader(
        data, batch_size=options["data"]["batch_size"], num_workers=options["data"]["workers"], drop_last=True
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=100,
        precision=options["trainer"]["precision"],
        accumulate_grad_batches=options["trainer"]["accumulate_grad_batches"],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[Clock(sys.argv[2])] if len(sys.argv) > 2 else [],
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()
