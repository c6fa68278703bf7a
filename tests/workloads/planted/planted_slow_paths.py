"""Mistake 7, planted: a hidden synchronisation, an operator on the wrong path, a copy-bound layer.

All share one small classifier of rows; each fault stands beside its clean twin, which computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

WIDTH, ROWS, CLASSES = 192, 40, 16


class Block(nn.Module):
    """Two products with a nonlinearity between."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 2 * WIDTH)
        self.outer = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.outer(nn.functional.gelu(self.inner(hidden)))


class Net(nn.Module):
    def __init__(self, extra: nn.Module) -> None:
        super().__init__()
        self.first, self.extra, self.second = Block(), extra, Block()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.extra(self.first(rows))).mean(1))


class Rows:
    """Sixty-four samples of 40 rows."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(index)), index % CLASSES


class RowsWorkload:
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def dataset(self) -> Rows:
        return Rows()

    def collate(self, samples: list[tuple[torch.Tensor, int]]) -> dict[str, torch.Tensor]:
        return {"rows": torch.stack([rows for rows, _ in samples]), "labels": torch.tensor([one for _, one in samples])}

    def loss(self, model: nn.Module, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
        output = model(batch["rows"]).float()
        return nn.functional.cross_entropy(output, batch["labels"], reduction="sum"), len(batch["labels"])

    def longest(self, micro_batch_size: int) -> dict[str, torch.Tensor]:
        return self.collate([Rows()[index] for index in range(micro_batch_size)])


class Clean:
    """The clean twin of them all."""

    unit = "samples"

    def extra(self) -> nn.Module:
        return nn.Identity()

    def build(self, device: torch.device, seed: int) -> RowsWorkload:
        torch.manual_seed(seed)
        return RowsWorkload(Net(self.extra()).to(device))


class Asks(nn.Module):
    """Scales by a value that it reads from the device."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        largest = hidden.detach().abs().max().item()
        return hidden / max(largest, 1.0)


class HiddenItem(Clean):
    """FAULT: ``.item()`` in a forward pass."""

    def extra(self) -> nn.Module:
        return Asks()


class Keeps(nn.Module):
    """The same without asking: the value stays on the device."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden / hidden.detach().abs().max().clamp(min=1.0)


class ValueStays(Clean):
    """The clean twin of :class:`HiddenItem`."""

    def extra(self) -> nn.Module:
        return Keeps()


class Picks(nn.Module):
    """Adds to the rows that nonzero() finds."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        found = (hidden.detach().mean(-1) > 0).nonzero()
        made = hidden.clone()
        made[found[:, 0], found[:, 1]] += 1.0
        return made


class HiddenNonzero(Clean):
    """FAULT: ``nonzero()`` in a forward pass."""

    def extra(self) -> nn.Module:
        return Picks()


class RowByRow(nn.Module):
    """A running mean, one row at a time."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        state, made = torch.zeros_like(hidden[:, 0]), []
        for index in range(hidden.shape[1]):
            state = 0.9 * state + 0.1 * hidden[:, index]
            made.append(state)
        return torch.stack(made, 1)


class PythonLoop(Clean):
    """FAULT: a loop in Python over the rows."""

    def extra(self) -> nn.Module:
        return RowByRow()


class AllRows(nn.Module):
    """The same running mean as one product."""

    def __init__(self) -> None:
        super().__init__()
        steps = torch.arange(ROWS)
        apart = (steps[:, None] - steps[None]).float()
        self.register_buffer("weights", torch.where(apart >= 0, 0.1 * 0.9**apart, 0.0))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weights.to(hidden.dtype) @ hidden


class OneProduct(Clean):
    """The clean twin of :class:`PythonLoop`."""

    def extra(self) -> nn.Module:
        return AllRows()


class Wide(nn.Module):
    """Leaves autocast and multiplies in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.block(hidden.float())


class WidePath(Clean):
    """FAULT under bf16-mixed: a block that casts back to fp32."""

    def extra(self) -> nn.Module:
        return Wide()


class NarrowPath(Clean):
    """The clean twin of :class:`WidePath`."""

    def extra(self) -> nn.Module:
        return Block()


class Shuffler(nn.Module):
    """Mixes rows and columns by re-laying the whole tensor again and again."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            hidden = hidden.transpose(1, 2).contiguous().transpose(1, 2).contiguous()
        return hidden


class CopyBound(Clean):
    """FAULT: a layer that copies."""

    def extra(self) -> nn.Module:
        return Shuffler()


class Viewer(nn.Module):
    """The same without a copy."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            hidden = hidden.transpose(1, 2).transpose(1, 2)
        return hidden


class ViewsOnly(Clean):
    """The clean twin of :class:`CopyBound`."""

    def extra(self) -> nn.Module:
        return Viewer()


class StaysBehind(nn.Module):
    """Its layer stays on the host, and carries everything there and back."""

    def __init__(self) -> None:
        super().__init__()
        self._layer = [nn.Linear(WIDTH, WIDTH)]  # in a list: no submodule, so .to(device) does not find it

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self._layer[0](hidden.float().cpu()).to(hidden)


class LeftOnTheHost(Clean):
    """FAULT on a GPU: a layer on the wrong device."""

    def extra(self) -> nn.Module:
        return StaysBehind()
