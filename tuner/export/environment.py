"""The environment the trials ran with, as far as it is the training's own. Pure.

Left out: what only started our processes, and allocator options that only act under a trial's memory cap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from objectives.knobs import environment as knob_environment
from objectives.knobs.allocator import VARIABLES
from tuner.export.handover import Handover

CAP_ONLY = ("garbage_collection_threshold", "per_process_memory_fraction")
"""Options of PyTorch's allocator that act only where a share of the device is set, or set it."""
TF32_OFF = "NVIDIA_TF32_OVERRIDE"
TF32_ON = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"


def environment(handover: Handover, *, tf32: bool = False) -> dict[str, str]:
    """Variables to set before the job's processes start.

    Args:
        handover: What is handed over.
        tf32: Whether TF32 has to be said here, because the target has no key for it.
    """
    given = {name: text for name, text in handover.environment.items() if name not in VARIABLES}
    made = {**_processes(handover), **given, **_allocator(handover)}
    return made | (_tf32(handover) if tf32 else {})


def left_out(handover: Handover) -> tuple[str, ...]:
    """Sentences about what the trials had and the job does not get."""
    found = [option for text in _given_allocator(handover).values() for option in _options(text) if _is_cap(option)]
    if not found:
        return ()
    options = ", ".join(dict.fromkeys(found))
    return (f"Allocator option {options} is left out: it acted only because the trials ran under a memory cap.",)


def tf32_sentence(made: Mapping[str, str]) -> tuple[str, ...]:
    """How the environment says TF32, where it does."""
    if TF32_OFF in made:
        return (f"{TF32_OFF}=0 keeps TF32 off as in the trials, whatever the code says.",)
    if TF32_ON in made:
        return (f"{TF32_ON}=1 allows TF32 in matrix products; in convolutions it is PyTorch's default.",)
    return ()


def _processes(handover: Handover) -> dict[str, str]:
    threads = {} if handover.threads is None else {"OMP_NUM_THREADS": str(handover.threads)}
    return {**threads, "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}


def _allocator(handover: Handover) -> dict[str, str]:
    """Under both names, to the same text: newer PyTorch reads the first, older the second."""
    if handover.device_kind != "cuda":
        return {}
    chosen = {name: text for name, text in knob_environment(handover.config).items() if name in VARIABLES and text}
    if chosen:
        return chosen
    given = _given_allocator(handover)
    text = next((given[name] for name in VARIABLES if name in given), "")
    kept = ",".join(option for option in _options(text) if not _is_cap(option))
    return dict.fromkeys(VARIABLES, kept) if kept else {}


def _given_allocator(handover: Handover) -> Mapping[str, str]:
    return {name: text for name, text in handover.environment.items() if name in VARIABLES}


def _options(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _is_cap(option: str) -> bool:
    return option.partition(":")[0].strip() in CAP_ONLY


def _tf32(handover: Handover) -> dict[str, str]:
    """Explicit both ways: PyTorch's own defaults differ between versions and kinds of operators."""
    if handover.device_kind != "cuda":
        return {}
    return {TF32_ON: "1"} if handover.config.precision == "tf32" else {TF32_OFF: "0"}
