"""How many loader workers a machine carries, and what their batches need."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectives import knobs
from objectives.knobs import Facts
from objectives.knobs.loader import (
    host_memory_reason,
    prefetched_bytes,
    shared_memory_reason,
)
from objectives.measure.host import cores

MIB = 2**20


def machine(folder: Path, own: str, **files: str) -> str:
    """A fake root with 16 cores in the affinity: texts of control-group files by path, and of /proc/self/cgroup."""
    texts = {"proc/self/cgroup": own, "proc/self/status": "Cpus_allowed_list:\t0-15\n"}
    texts |= {"sys/fs/cgroup/" + name: text for name, text in files.items()}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def largest_workers(root: str) -> int:
    facts = Facts(cores=cores(root))
    legal, _ = knobs.legal_values(knobs.knob("loader_workers"), facts, range(33))
    return max(int(value) for value in legal)


@pytest.mark.case("E01")
@pytest.mark.parametrize(
    ("quota", "bound"),
    [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 16), ("6400000 100000", 16)],
)
def test_a_quota_of_version_2_bounds_the_workers(tmp_path: Path, quota: str, bound: int) -> None:
    assert largest_workers(machine(tmp_path, "0::/\n", **{"cpu.max": quota + "\n"})) == bound


@pytest.mark.case("E01")
def test_the_tightest_level_of_our_own_path_counts(tmp_path: Path) -> None:
    levels = {"cpu.max": "max 100000", "jobs/cpu.max": "300000 100000", "jobs/run-7/cpu.max": "800000 100000"}
    assert largest_workers(machine(tmp_path, "0::/jobs/run-7\n", **levels)) == 3


@pytest.mark.case("E01")
def test_a_quota_of_version_1_bounds_the_workers(tmp_path: Path) -> None:
    files = {
        "cpu/docker/abc/cpu.cfs_quota_us": "400000",
        "cpu/docker/abc/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
    }
    own = "4:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n"
    assert largest_workers(machine(tmp_path, own, **files)) == 4


@pytest.mark.case("E01")
def test_more_workers_than_cores_are_left_out_with_the_bound_in_the_reason() -> None:
    facts = Facts(cores=2)
    legal, reasons = knobs.legal_values(knobs.knob("loader_workers"), facts, (0, 1, 2, 4, 8))
    assert legal == (0, 1, 2)
    assert "2 usable cores" in reasons[8]


@pytest.mark.case("E12")
@pytest.mark.parametrize(("workers", "fits"), [(0, True), (1, True), (4, True), (8, False), (16, False)])
def test_a_small_shared_memory_is_named_before_the_run(workers: int, fits: bool) -> None:
    reason = shared_memory_reason(workers=workers, prefetch_factor=2, batch_bytes=8 * MIB, shared_memory_bytes=64 * MIB)
    assert (reason is None) == fits
    assert fits or ("--shm-size" in str(reason) and "64 MiB" in str(reason))


def test_a_machine_without_shared_memory_is_not_refused() -> None:
    assert shared_memory_reason(workers=8, prefetch_factor=8, batch_bytes=2**40, shared_memory_bytes=None) is None


@pytest.mark.case("E10")
def test_prefetched_batches_are_counted_against_host_memory() -> None:
    assert prefetched_bytes(workers=8, prefetch_factor=4, batch_bytes=MIB) == 32 * MIB
    fitting = [
        (micro, workers)
        for micro in (16, 64, 256)
        for workers in (1, 4, 16)
        if host_memory_reason(workers=workers, prefetch_factor=2, batch_bytes=micro * MIB, free_bytes=512 * MIB) is None
    ]
    assert fitting == [(16, 1), (16, 4), (16, 16), (64, 1), (64, 4), (256, 1)]
    assert "fewer workers" in str(
        host_memory_reason(workers=16, prefetch_factor=2, batch_bytes=64 * MIB, free_bytes=512 * MIB)
    )
