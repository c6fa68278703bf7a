"""The sizes an allocator's message names, in bytes. Best effort: wordings change with every release."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_TEXT = 262_144
"""Characters looked at from each end of a text."""
ABSURD_BYTES = 1 << 50
"""1 PiB: no device has it. Unset limits and underflows print as 17179869184 GiB (2**64 bytes)."""

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BYTES = r"(?<![\d.])(\d{1,20}(?:\.\d{1,6})?) ?((?:[kKMGT]i?)?B|bytes)\b"
_GAP = r"[ :\n]{1,40}"

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("requested_bytes", rf"(?:[Tt]ried|[Tt]rying) to (?:allocate|mmap){_GAP}{_BYTES}"),
    ("requested_bytes", rf"\bRequested{_GAP}{_BYTES}"),
    ("requested_bytes", rf"Out of memory allocating {_BYTES}"),
    ("requested_bytes", rf"(?:Unable|Failed|Could not) to allocate {_BYTES}"),
    ("requested_bytes", rf"Invalid buffer size: {_BYTES}"),
    ("capacity_bytes", rf"total capac?i?ty of {_BYTES}"),
    ("capacity_bytes", rf"{_BYTES} total capac?i?ty"),
    ("capacity_bytes", rf"Device limit{_GAP}{_BYTES}"),
    ("free_bytes", rf"{_BYTES} (?:is )?free\b"),
    ("free_bytes", rf"Free \(according to (?:CUDA|HIP)\){_GAP}{_BYTES}"),
    ("allowed_bytes", rf"{_BYTES} allowed\b"),
    ("allowed_bytes", rf"max allowed{_GAP}{_BYTES}"),
    ("allowed_bytes", rf"PyTorch limit \(set by user-supplied memory fraction\){_GAP}{_BYTES}"),
    ("allocated_bytes", rf"{_BYTES} is allocated by PyTorch"),
    ("allocated_bytes", rf"{_BYTES} already allocated"),
    ("allocated_bytes", rf"[Cc]urrently allocated{_GAP}{_BYTES}"),
    ("allocated_bytes", rf"MPS allocated{_GAP}{_BYTES}"),
    ("reserved_bytes", rf"{_BYTES} reserved in total"),
    ("unallocated_bytes", rf"{_BYTES} is reserved by PyTorch but unallocated"),
    ("unallocated_bytes", rf"{_BYTES} (?:is )?cached\b"),
    ("process_bytes", rf"this process has {_BYTES} memory in use"),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _PATTERNS)
_OTHER_PROCESS = re.compile(rf"Process \d{{1,20}} has {_BYTES} memory in use")


def extract_numbers(text: str) -> dict[str, int]:
    """The sizes an out-of-memory message names, in bytes; absent where the text does not say, or says nonsense.

    Keys: ``requested_bytes``, ``capacity_bytes``, ``free_bytes``, ``allowed_bytes`` (the allocator's limit),
    ``allocated_bytes``, ``reserved_bytes``, ``unallocated_bytes`` (reserved, not allocated), ``process_bytes`` (all
    this process uses), ``other_processes_bytes``. Never raises; looks at the two ends of very long texts.
    """
    text = _ends(text)
    found: dict[str, int] = {}
    for name, pattern in _COMPILED:
        for match in pattern.finditer(text):
            size = _in_bytes(match.group(1), match.group(2))
            if name not in found and size is not None:
                found[name] = size
                break
    _derive(found, list(_others(text)))
    return found


def names_an_absurd_request(text: str) -> bool:
    """Whether the request itself is a number no device could mean (an overflow: a fault, not a lack of memory)."""
    requests = (pattern.search(_ends(text)) for name, pattern in _COMPILED if name == "requested_bytes")
    return any(found is not None and _in_bytes(found.group(1), found.group(2)) is None for found in requests)


def _ends(text: str) -> str:
    return text if len(text) <= 2 * LONGEST_TEXT else f"{text[:LONGEST_TEXT]}\n{text[-LONGEST_TEXT:]}"


def _in_bytes(number: str, unit: str) -> int | None:
    """The size; None for a number no device could have. Decimal units are read as binary, as torch means them."""
    prefix = unit[:1].lower() if unit[:1].lower() in "kmgt" else ""
    size = float(number) * (1 << _UNITS[prefix])
    return round(size) if size < ABSURD_BYTES else None


def _others(text: str) -> Iterator[int]:
    for match in _OTHER_PROCESS.finditer(text):
        size = _in_bytes(match.group(1), match.group(2))
        if size is not None:
            yield size


def _derive(found: dict[str, int], others: list[int]) -> None:
    """Adds what follows: unallocated from reserved, and other processes' use, our own not counted among them."""
    if "reserved_bytes" in found and "allocated_bytes" in found:
        found.setdefault("unallocated_bytes", max(0, found["reserved_bytes"] - found["allocated_bytes"]))
    if others and "process_bytes" not in found and "allocated_bytes" in found:
        # In a container the driver's process ids are not ours: the message then lists our own use as another process's.
        own = found["allocated_bytes"] + found.get("unallocated_bytes", 0)
        ours = [size for size in others if own <= size <= own * 1.1 + (2 << 30)]
        if ours:
            found["process_bytes"] = min(ours)
            others.remove(min(ours))
    if others:
        found["other_processes_bytes"] = sum(others)
