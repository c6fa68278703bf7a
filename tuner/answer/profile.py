"""The tools of ``tuner profile``: command lines, needs, files; and the command's document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

Tool = Literal["torch", "memory", "nsys", "ncu"]
TOOLS: tuple[Tool, ...] = ("torch", "memory", "nsys", "ncu")
NSYS_FILE, NCU_FILE = "profile.nsys-rep", "profile.ncu-rep"
NCU_LAUNCHES = 200
"""Kernels that Nsight Compute replays at most: each is run many times."""


@dataclass(frozen=True, kw_only=True)
class Nsight:
    """One of NVIDIA's tools, which starts the process it looks at.

    Attributes:
        program: Looked for on PATH.
        title: Its full name.
        get: How to get it.
    """

    program: str
    title: str
    get: str


NSIGHT: Mapping[str, Nsight] = {
    "nsys": Nsight(
        program="nsys",
        title="Nsight Systems",
        get="it comes with the CUDA toolkit, as the package nsight-systems of NVIDIA's repositories for your "
        "distribution, or from developer.nvidia.com/nsight-systems; then put `nsys` on PATH",
    ),
    "ncu": Nsight(
        program="ncu",
        title="Nsight Compute",
        get="it comes with the CUDA toolkit, as the package nsight-compute of NVIDIA's repositories for your "
        "distribution, or from developer.nvidia.com/nsight-compute; then put `ncu` on PATH. Counters need permission: "
        "see developer.nvidia.com/ERR_NVGPUCTRPERM",
    ),
}


def command_of(tool: str, program: str, folder: PurePath) -> tuple[str, ...]:
    """The command that starts the child's interpreter under a tool; empty for the tools inside the child.

    Only what happens between the child's own start and stop of the profiler is kept: import, build and warm-up are not.

    Args:
        tool: One of :data:`TOOLS`.
        program: Path of its program.
        folder: Where its file goes.
    """
    if tool == "nsys":
        return (
            program, "profile", "--trace=cuda,nvtx,cudnn,cublas", "--sample=none", "--cpuctxsw=none",
            "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--kill=none", "--wait=primary",
            "--force-overwrite=true", f"--output={folder / NSYS_FILE.removesuffix('.nsys-rep')}",
        )  # fmt: skip
    if tool == "ncu":
        return (
            program, "--target-processes=application-only", "--profile-from-start=off", "--nvtx", "--set=basic",
            f"--launch-count={NCU_LAUNCHES}", "--force-overwrite",
            f"--export={folder / NCU_FILE.removesuffix('.ncu-rep')}",
        )  # fmt: skip
    return ()


def reading(name: str) -> str:
    """How a person opens a file that was kept."""
    if name.endswith(".json.gz"):
        return "open it at https://ui.perfetto.dev (drag it in; it stays on your machine)"
    if name.endswith(".pickle"):
        return "open it at https://pytorch.org/memory_viz; it is a pickle: do not load it yourself"
    if name.endswith(".nsys-rep"):
        return "nsys-ui FILE, or `nsys stats --report cuda_gpu_kern_sum,nvtx_sum FILE`"
    return "ncu-ui FILE, or `ncu --import FILE --page details`" if name.endswith(".ncu-rep") else ""


def document(
    found: Mapping[str, Any], files: Sequence[Mapping[str, Any]], *, study: str, trial: int, run: str, folder: str
) -> dict[str, Any]:
    """What ``tuner profile`` answers."""
    return {
        "study": study,
        "trial": trial,
        "run": run,
        "tool": found["tool"],
        "step_seconds": found.get("step_seconds"),
        "phases": dict(found.get("phases") or {}),
        "shares": dict(found.get("shares") or {}),
        "operators": list(found.get("operators") or ()),
        "findings": list(found.get("findings") or ()),
        "synchronisations": list(found.get("waits") or ()),
        "memory_by_category": dict(found.get("memory_by_category") or {}),
        "memory_by_module": dict(found.get("memory_by_module") or {}),
        "operator_at_peak": found.get("operator_at_peak"),
        "allocator": found.get("allocator"),
        "folder": folder,
        "files": [dict(each) for each in files],
        "notes": list(found.get("notes") or ()),
    }
