"""CUDA's allocator, recorded: a file for PyTorch's viewer, and a summary as plain data.

The file is a pickle, as the viewer (pytorch.org/memory_viz) wants it. It is written here and never read again by us:
what we keep of it is summarised in the process that made it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

MOST_ENTRIES = 200_000
"""Allocations and frees that the history keeps."""
MOST_PLACES = 15
Segments = Sequence[Mapping[str, Any]]


@contextmanager
def recorded_history(path: Path) -> Iterator[list[Mapping[str, Any]]]:
    """Records allocations with their Python stacks meanwhile, then writes the file and fills the list with segments."""
    segments: list[Mapping[str, Any]] = []
    torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES)
    try:
        yield segments
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
        segments.extend(torch.cuda.memory._snapshot()["segments"])
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def summary_of_snapshot(segments: Segments) -> dict[str, Any]:
    """What the segments hold. Pure.

    Returns:
        ``reserved_bytes``, ``allocated_bytes``, ``largest_free_block_bytes``, ``segments``, ``free_blocks`` and
        ``places``: bytes that live, by the line of Python that made them, largest first.
    """
    blocks = [block for segment in segments for block in segment.get("blocks", ())]
    live = [block for block in blocks if block["state"] == "active_allocated"]
    free = [block for block in blocks if block["state"] == "inactive"]
    places: dict[str, int] = defaultdict(int)
    for block in live:
        places[place_of(block)] += int(block["size"])
    ranked = sorted(places.items(), key=lambda each: (-each[1], each[0]))[:MOST_PLACES]
    return {
        "segments": len(segments),
        "reserved_bytes": sum(int(segment["total_size"]) for segment in segments),
        "allocated_bytes": sum(int(block["size"]) for block in live),
        "free_blocks": len(free),
        "largest_free_block_bytes": max((int(block["size"]) for block in free), default=0),
        "places": [{"place": place, "bytes": size} for place, size in ranked],
    }


def place_of(block: Mapping[str, Any]) -> str:
    """The innermost line of Python outside PyTorch that made a block; ``?`` where no stack was recorded."""
    frames = [frame for frame in block.get("frames", ()) if str(frame.get("filename", "")).endswith(".py")]
    own = [frame for frame in frames if "/torch/" not in str(frame["filename"])]
    chosen = next(iter(own or frames), None)
    return "?" if chosen is None else f"{chosen['filename']}:{chosen['line']} ({chosen['name']})"
