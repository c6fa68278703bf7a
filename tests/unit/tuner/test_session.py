"""What a study asks of a child: its device, its limit, and an environment in which the spec's own words stand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from storage.records import StudyRecord
from tuner.spec.model import Limits, StudySpec
from tuner.stop import Stop
from tuner.work.lane import Device, Lane, choose_devices
from tuner.work.leaving import Leaving
from tuner.work.outbox import Outbox
from tuner.work.session import Session

GPU = {"kind": "cuda", "name": "NVIDIA H100", "uuid": "GPU-1", "total_memory_bytes": 80 * 2**30, "visible": True}
CPU = {"kind": "cpu", "name": "EPYC", "uuid": "", "total_memory_bytes": 16 * 2**30, "cores": 8, "visible": True}


def session(tmp_path: Path, device: Device, **spec: Any) -> Session:
    study = StudyRecord(
        id=1, name="s", status="running", spec={}, identity={}, memory_limit_bytes=2**30, created_at=datetime.now(UTC)
    )
    made = StudySpec(study="s", objective=ObjectiveReference(kind="causal_lm"), global_batch_size=8, **spec)
    lane = Lane(device, preload=(), path="", folder=tmp_path)
    database: Any = SimpleNamespace(safe_url="sqlite:///nowhere")
    outbox = Outbox(tmp_path, database)
    return Session(database=database, study=study, spec=made, lanes=(lane,), stop=Leaving(Stop()), outbox=outbox)


def request_of(session: Session, **config: Any) -> Any:
    return session.request("search", session.lane, config=TrainingConfig(**config).to_mapping())


def test_a_gpu_is_pinned_by_uuid_and_the_limit_travels(tmp_path: Path) -> None:
    (device,) = choose_devices("auto", [GPU, CPU])
    asked = request_of(session(tmp_path, device))
    assert (asked.device, asked.device_uuid) == ("cuda", "GPU-1")
    assert asked.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert asked.memory_limit_bytes == 2**30


def test_the_specs_own_allocator_setting_is_not_blanked_by_the_idle_knob(tmp_path: Path) -> None:
    (device,) = choose_devices("cuda", [GPU, CPU])
    name = "PYTORCH_CUDA_ALLOC_CONF"
    asked = request_of(session(tmp_path, device, environment={name: "max_split_size_mb:128"}))
    assert name not in asked.environment
    chosen = request_of(session(tmp_path, device), allocator="expandable_segments")
    assert chosen.environment[name] == "expandable_segments:True"


def test_a_window_may_stop_early_unless_it_is_fixed(tmp_path: Path) -> None:
    (device,) = choose_devices("cpu", [GPU, CPU])
    made = session(tmp_path, device, limits=Limits(window_seconds=8.0, target_half_width=0.0))
    assert (made.window().min_seconds, made.window().max_seconds) == (8.0, 8.0)
    early = session(tmp_path, device, limits=Limits(window_seconds=8.0))
    assert (early.window().min_seconds, early.window(factor=2).max_seconds) == (4.0, 16.0)


def test_devices_of_one_kind_share_the_cores(tmp_path: Path) -> None:
    other = GPU | {"name": "NVIDIA L4", "uuid": "GPU-3"}
    devices = choose_devices("auto", [GPU, GPU | {"uuid": "GPU-2"}, other, CPU])
    assert [device.uuid for device in devices] == ["GPU-1", "GPU-2"]
    assert {device.threads for device in devices} == {4}
    assert choose_devices("cpu", [GPU, CPU])[0].threads == 8
