"""The data loader: workers, prefetching, pinned memory; and what they need of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.config import TrainingConfig
from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    from objectives.trial.setup import Setup

_DOCUMENT = "PyTorch documentation, torch.utils.data.DataLoader"


def prefetched_bytes(*, workers: int, prefetch_factor: int, batch_bytes: int) -> int:
    """Host memory that ready batches take: each worker keeps ``prefetch_factor`` of them."""
    return workers * prefetch_factor * batch_bytes


def host_memory_reason(*, workers: int, prefetch_factor: int, batch_bytes: int, free_bytes: int) -> str | None:
    """Why so much prefetching cannot fit in host memory, or None (case E10)."""
    wanted = prefetched_bytes(workers=workers, prefetch_factor=prefetch_factor, batch_bytes=batch_bytes)
    if wanted <= free_bytes:
        return None
    return (
        f"{workers} workers with {prefetch_factor} batches each keep {wanted / 2**30:.2f} GiB in host memory, "
        f"{free_bytes / 2**30:.2f} GiB are free: use fewer workers or a smaller prefetch_factor"
    )


def shared_memory_reason(
    *, workers: int, prefetch_factor: int, batch_bytes: int, shared_memory_bytes: int | None
) -> str | None:
    """Why so much prefetching cannot fit in /dev/shm, through which workers hand over batches, or None (case E12).

    Args:
        workers: Loader workers; 0 uses no shared memory.
        prefetch_factor: Batches each worker keeps ready.
        batch_bytes: Bytes of the largest batch's tensors.
        shared_memory_bytes: Size of /dev/shm; None where there is none (then nothing is refused).
    """
    wanted = prefetched_bytes(workers=workers, prefetch_factor=prefetch_factor, batch_bytes=batch_bytes)
    if shared_memory_bytes is None or wanted <= shared_memory_bytes:
        return None
    return (
        f"{workers} workers with {prefetch_factor} batches each need {wanted / 2**20:.0f} MiB of shared memory; "
        f"there are {shared_memory_bytes / 2**20:.0f} MiB (/dev/shm): start the container with a larger --shm-size "
        "(or --ipc=host), or use fewer workers"
    )


def _refuse_workers(value: int, facts: Facts) -> str | None:
    if value <= facts.cores:
        return None
    return f"{value} loader workers on {facts.cores} usable cores (affinity and control group) get in each other's way"


def _refuse_pinning(value: bool, facts: Facts) -> str | None:
    return "pinned memory speeds up copies to a GPU; there is none" if value and facts.device_kind == "cpu" else None


def _has_workers(config: TrainingConfig) -> bool:
    return config.loader_workers > 0


def _apply_workers(setup: Setup, value: int) -> None:
    setup.loader_options["num_workers"] = value
    if value:
        setup.loader_options["persistent_workers"] = True
    if value and setup.device.type == "cpu":
        setup.loader_options["multiprocessing_context"] = (
            "fork"  # the other ways import torch again: 2.4 s against 0.1 s
        )


def _apply_prefetch(setup: Setup, value: int) -> None:
    if _has_workers(setup.config):
        setup.loader_options["prefetch_factor"] = value


def _apply_pinning(setup: Setup, value: bool) -> None:
    setup.loader_options["pin_memory"] = value


def _read_workers(setup: Setup) -> int | None:
    return None if setup.loader is None else setup.loader.num_workers


def _read_prefetch(setup: Setup) -> int | None:
    return None if setup.loader is None else setup.loader.prefetch_factor


def _read_pinning(setup: Setup) -> bool | None:
    return None if setup.loader is None else bool(setup.loader.pin_memory)


LOADER_WORKERS = Knob(
    name="loader_workers",
    kind="integer",
    summary="Processes that make batches beside the training process; 0 makes them in it.",
    default=0,
    low=0,
    high=256,
    refuse=_refuse_workers,
    apply=_apply_workers,
    read_back=_read_workers,
)

PREFETCH_FACTOR = Knob(
    name="prefetch_factor",
    kind="integer",
    summary="Batches each loader worker keeps ready; acts only with workers.",
    default=2,
    low=1,
    high=64,
    apply=_apply_prefetch,
    read_back=_read_prefetch,
    acts=_has_workers,
)

PIN_MEMORY = Knob(
    name="pin_memory",
    kind="boolean",
    summary="Whether batches wait in page-locked memory, from which the GPU copies while it computes.",
    default=False,
    choices=(
        Choice(value=False, meaning="Batches in ordinary memory.", source=_DOCUMENT),
        Choice(
            value=True,
            meaning="Batches in page-locked memory: copies overlap with computing, host memory is held.",
            source=_DOCUMENT + ", section on memory pinning",
        ),
    ),
    refuse=_refuse_pinning,
    apply=_apply_pinning,
    read_back=_read_pinning,
)
