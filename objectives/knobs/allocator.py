"""Settings of PyTorch's caching allocator for CUDA, against fragmentation. They hold from the first CUDA call on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    from objectives.trial.setup import Setup

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The variable's name in newer PyTorch (which looks at it first) and in older: both are set, to the same text."""
MAX_SPLIT_SIZE_MIB = 256
_DOCUMENT = "PyTorch documentation, notes on CUDA semantics, memory management, PYTORCH_ALLOC_CONF"

SETTINGS = {
    "default": "",
    "expandable_segments": "expandable_segments:True",
    "max_split_size": f"max_split_size_mb:{MAX_SPLIT_SIZE_MIB}",
}
"""The variables' text by value of the knob."""


def _environment(value: str) -> Mapping[str, str]:
    """The empty text for ``default`` too: an inherited setting would make the trial something else than it says."""
    return dict.fromkeys(VARIABLES, SETTINGS[value])


def _refuse(value: str, facts: Facts) -> str | None:
    if value != "default" and facts.device_kind == "cpu":
        return "the CUDA caching allocator does not run on a CPU"
    return None


def _read_back(setup: Setup) -> str | None:
    """From the allocator's own snapshot; None on a CPU."""
    if setup.device.type != "cuda":
        return None
    import torch

    settings: Mapping[str, Any] = torch.cuda.memory._snapshot().get("allocator_settings", {})
    return in_effect(settings)


def in_effect(settings: Mapping[str, Any]) -> str | None:
    """The choice that an allocator snapshot's ``allocator_settings`` show; None where they are missing."""
    if not settings:
        return None
    if settings.get("expandable_segments"):
        return "expandable_segments"
    limit = int(settings.get("max_split_size", -1))
    return "max_split_size" if 0 < limit < 2**62 else "default"  # no limit: -1, or the largest integer


ALLOCATOR = Knob(
    name="allocator",
    kind="choice",
    summary="How the CUDA caching allocator holds and splits memory.",
    default="default",
    choices=(
        Choice(
            value="default",
            meaning="Blocks of fixed segments, split on demand; changing shapes can leave holes.",
            source=_DOCUMENT,
        ),
        Choice(
            value="expandable_segments",
            meaning="Segments grow in place, so that freed neighbours join again: fewer holes with changing shapes.",
            source=_DOCUMENT,
        ),
        Choice(
            value="max_split_size",
            meaning=f"Blocks above {MAX_SPLIT_SIZE_MIB} MiB are never split: large requests find large blocks again.",
            source=_DOCUMENT,
        ),
    ),
    refuse=_refuse,
    environment=_environment,
    read_back=_read_back,
)


def _is_boolean(text: str) -> str | None:
    return None if text in ("True", "False") else "write True or False"


def _is_size(text: str) -> str | None:
    return None if text.isdigit() and int(text) > 0 else "write a whole number of MiB"


def _is_split_size(text: str) -> str | None:
    return None if text.isdigit() and int(text) > 20 else "write a whole number of MiB above 20"


def _is_share(text: str) -> str | None:
    try:
        return None if 0.0 < float(text) < 1.0 else "write a number between 0 and 1"
    except ValueError:
        return "write a number between 0 and 1"


def _is_backend(text: str) -> str | None:
    return None if text in ("native", "cudaMallocAsync") else "write native or cudaMallocAsync"


def _is_divisions(text: str) -> str | None:
    plain = re.fullmatch(r"\d+", text)
    listed = re.fullmatch(r"\[\s*>?\d+:\d+(\s*,\s*>?\d*:\d+)*\s*\]", text)
    return None if plain or listed else "write a power of two, or a list like [256:1,512:2,>:8]"


_OPTIONS: Mapping[str, Callable[[str], str | None]] = {
    "backend": _is_backend,
    "expandable_segments": _is_boolean,
    "garbage_collection_threshold": _is_share,
    "graph_capture_record_stream_reuse": _is_boolean,
    "large_segment_size_mb": _is_size,
    "max_non_split_rounding_mb": _is_size,
    "max_split_size_mb": _is_split_size,
    "per_process_memory_fraction": _is_share,
    "pinned_max_cached_size_mb": _is_size,
    "pinned_max_round_threshold_mb": _is_size,
    "pinned_num_register_threads": _is_size,
    "pinned_reserve_segment_size_mb": _is_size,
    "pinned_use_background_threads": _is_boolean,
    "pinned_use_cuda_host_register": _is_boolean,
    "release_lock_on_cudamalloc": _is_boolean,
    "roundup_power2_divisions": _is_divisions,
    "throw_on_cudamalloc_oom": _is_boolean,
}
"""Options of the allocator's variable in PyTorch 2.13 (its headers AllocatorConfig.h and CUDAAllocatorConfig.h)."""


def validate_allocator_setting(text: str) -> None:
    """Refuses a text for the allocator's variable that PyTorch would ignore or crash on (case D07).

    Raises:
        ValueError: With the fix: the sign between name and value, the nearest name, the form of a value, or options
            that do not go together.
    """
    names = [_check_option(part) for part in _split(text)]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"allocator option {', '.join(sorted(repeated))} is given twice: keep one")
    if {"expandable_segments", "max_split_size_mb"} <= set(names):
        raise ValueError("expandable_segments and max_split_size_mb do not go together: keep one of them")


def _split(text: str) -> list[str]:
    """The options of a setting; commas inside brackets belong to a value."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _check_option(part: str) -> str:
    name, separator, value = (piece.strip() for piece in part.partition(":"))
    if not separator:
        fixed = part.replace("=", ":", 1) if "=" in part else f"{part}:VALUE"
        raise ValueError(f"allocator option {part!r}: name and value are joined by `:`; write {fixed!r}")
    if name not in _OPTIONS:
        near = difflib.get_close_matches(name, _OPTIONS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(_OPTIONS)
        raise ValueError(f"unknown allocator option {name!r}: {hint}")
    fault = _OPTIONS[name](value)
    if fault:
        raise ValueError(f"allocator option {name}:{value}: {fault}")
    return name
