"""Recompiling is counted: a ragged batch costs a compilation, and after eight the compiler gives up without a word."""

from __future__ import annotations

import logging

import pytest
import torch
import torch._dynamo
from torch import nn

from objectives.trial.compiled import Compiled, compilations


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.linear(values).relu()


@pytest.mark.case("H05", "D08")
@pytest.mark.parametrize(("sizes", "graphs", "limit"), [((8, 8, 8, 5), 2, False), (tuple(range(2, 16)), 8, True)])
def test_graphs_are_counted_and_the_limit_is_seen(sizes: tuple[int, ...], graphs: int, limit: bool) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    layer = Layer()
    layer.compile(backend="eager", dynamic=False)
    for size in sizes:
        layer(torch.ones(size, 4))
    seen = compilations()
    assert (seen.graphs, seen.limit_reached) == (graphs, limit)
    assert Compiled(seconds=1.0).to_mapping()["graphs"] == graphs


def test_an_eager_model_has_no_figures() -> None:
    assert Compiled().to_mapping() == {
        "seconds": 0.0,
        "peak_memory_bytes": None,
        "graphs": None,
        "limit_reached": None,
    }
