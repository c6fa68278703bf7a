from __future__ import annotations

import torch
from torch import nn

from objectives.estimate.fakes import convert, replace_tensors
from objectives.estimate.prediction import ACTIVATIONS, PARAMETERS, TEMPORARIES
from objectives.estimate.storages import StorageCounter

KIB = 1024


def test_real_tensors_count_once_and_only_while_they_live() -> None:
    with StorageCounter("cpu") as counter:
        first = torch.zeros(256)
        view = first.view(16, 16)[2:].t()
        assert counter.live_bytes == KIB
        second = first + 1
        del first
        assert counter.live_bytes == 2 * KIB
        del view, second
        assert counter.live_bytes == 0
    assert counter.peak.total_bytes == 2 * KIB
    assert counter.peak.operator == "aten.add.Tensor"


def test_what_is_made_while_gradients_are_recorded_is_an_activation() -> None:
    with StorageCounter("cpu") as counter:
        _kept = torch.zeros(256)
        with torch.no_grad():
            _scratch = torch.zeros(512)
    assert counter.peak.categories[ACTIVATIONS] == KIB
    assert counter.peak.categories[TEMPORARIES] == 2 * KIB


def test_a_mark_moves_bytes_to_their_category_and_restart_forgets_the_past() -> None:
    with StorageCounter("cpu") as counter:
        tensor = torch.zeros(256)
        _gone = torch.zeros(4096)
        del _gone
        assert counter.mark(tensor, PARAMETERS) == KIB
        assert counter.peak.total_bytes == 17 * KIB
        counter.restart()
    assert counter.peak.total_bytes == KIB
    assert counter.peak.categories[PARAMETERS] == KIB


def test_another_devices_tensors_do_not_count() -> None:
    with StorageCounter("cuda") as counter:
        tensor = torch.zeros(256)
        assert counter.mark(tensor, PARAMETERS) == 0
    assert counter.live_bytes == 0


def test_replaced_parameters_keep_ties_types_strides_and_what_trains() -> None:
    with torch.device("meta"):
        model = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4)})
    model["two"].weight = model["one"].weight
    model["one"].bias.requires_grad_(False)
    model["norm"].to(torch.bfloat16)
    model["one"].table = torch.empty(3, device="meta")
    made = replace_tensors(model, torch.device("cpu"))
    assert model["one"].weight is model["two"].weight
    assert len(made) == 3 + 2 + 3 + 1
    assert not model["one"].bias.requires_grad
    assert model["norm"].running_mean.dtype == torch.bfloat16
    assert {tensor.device.type for tensor in made} == {"cpu"}
    assert model["one"].table.device.type == "cpu"


def test_a_batch_of_any_shape_is_converted_and_the_rest_of_it_kept() -> None:
    batch = {"ids": torch.zeros(2), "more": [(torch.zeros(3), 7), None], "units": 12}
    made = convert(batch, lambda tensor: torch.ones(len(tensor)))
    assert made["ids"].tolist() == [1, 1]
    assert made["more"][0][0].tolist() == [1, 1, 1]
    assert made["more"][0][1] == 7
    assert made["more"][1] is None
    assert made["units"] == 12
