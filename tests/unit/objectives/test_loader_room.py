"""Loader workers whose batches have no room are refused before they are started, with the sizes and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from objectives.config import TrainingConfig
from objectives.trial import loader_room
from objectives.trial.failure import exception_chain
from objectives.trial.loader_room import LoaderRefused, batch_bytes, require_loader_room
from objectives.trial.outcome import Ending, classify

MIB = 2**20
BATCH = {"input": torch.zeros(MIB, dtype=torch.uint8), "more": [torch.zeros(MIB, dtype=torch.uint8), 3], "units": 7}


def config(workers: int) -> TrainingConfig:
    return TrainingConfig(loader_workers=workers, prefetch_factor=4)


def test_a_batch_is_all_its_tensors() -> None:
    assert batch_bytes(BATCH) == 2 * MIB
    assert batch_bytes(None) == 0


@pytest.mark.case("E12")
def test_a_small_shared_memory_is_refused_as_the_choice_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_room, "shared_memory_bytes", lambda: 16 * MIB)
    require_loader_room(config(0), BATCH)
    require_loader_room(config(2), BATCH)
    with pytest.raises(LoaderRefused, match="--shm-size") as refused:
        require_loader_room(config(4), BATCH)
    ending = Ending(exit_code=1, phase="build", chain=tuple(exception_chain(refused.value)))
    verdict = classify(ending)
    assert (verdict.outcome, verdict.cause) == ("unsupported", "invalid_config")


@pytest.mark.case("E10")
def test_more_than_the_host_has_free_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_room, "shared_memory_bytes", lambda: None)
    monkeypatch.setattr(loader_room, "memory_available_bytes", lambda: 16 * MIB)
    with pytest.raises(LoaderRefused, match="smaller prefetch_factor"):
        require_loader_room(config(4), BATCH)
    monkeypatch.setattr(loader_room, "memory_available_bytes", lambda: None)
    require_loader_room(config(4), BATCH)


def test_this_machine_has_room_for_a_small_batch() -> None:
    assert Path("/proc/meminfo").exists()
    require_loader_room(TrainingConfig(loader_workers=1), torch.zeros(8))
