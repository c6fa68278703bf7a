"""What longer runs found, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from tuner.cli import words
from tuner.cli.printing import console, line, table, title

VERDICTS = {
    "fine": "fine: it trains what the baseline trains",
    "improve": "it trains what the baseline trains; worth knowing:",
    "broken": "BROKEN: it does not train what the baseline trains",
    "not_comparable": "not comparable",
    "not_measured": "not measured",
}


def print_verified(document: Mapping[str, Any]) -> None:
    """The verdict, the faults by name, the distances."""
    out = console()
    line(out, f"{document['study']}, trial {document['trial']}: {VERDICTS[document['verdict']]}", style="bold")
    if document["not_comparable"]:
        line(out, f"  {document['not_comparable']}")
    for fault in document["faults"]:
        line(out, f"  {fault['name']}: {fault['text']}")
    _distances(out, document["gradients"])
    _curve(out, document["loss_curve"])
    for name, share in document["lost_update_shares"].items():
        line(
            out, f"in {name} {100 * share:.0f} % of the elements' updates would round to nothing at this learning rate"
        )
    for note in document["notes"]:
        line(out, f"note: {note}")


def _distances(out: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        return
    title(out, "Gradient of one global batch, split in two ways")
    rows = [
        (
            each["precision"],
            f"{each['micro_batch_size']} x {each['accumulation_steps']}",
            f"{each['reference_micro_batch_size']} x {each['reference_accumulation_steps']}",
            f"{each['distance']:.2g}",
            f"{each['bound']:.1g}",
        )
        for each in found
    ]
    table(out, ("precision", "winner", "reference", "distance", "rounding explains"), rows, right=("distance",))


def _curve(out: Console, curve: Mapping[str, Any] | None) -> None:
    if not curve:
        return
    title(out, "Loss after each update, same seed and data")
    for name, losses in (("winner", curve["examined"]), ("baseline", curve["reference"])):
        line(out, f"  {name:<9}" + " ".join(f"{loss:.4f}" for loss in losses))
    at = curve["leaves_at"]
    said = "stay together" if at is None else f"part at update {at + 1}"
    line(out, f"  they {said} (band {100 * curve['band']:.2g} %)")


def print_soaked(document: Mapping[str, Any]) -> None:
    """What memory does, what is behind it, what helps."""
    from tuner.answer.soak import WORDS

    out = console()
    head = f"{document['study']}, trial {document['trial']}, {words.duration(document['seconds'])}"
    line(out, f"{head}: memory {WORDS[document['growth']]}", style="bold")
    line(out, f"  {_hourly(document['growth_bytes_per_hour'], document['growth_interval'])}{document['growth_reason']}")
    if document["leak"]:
        line(out, f"  a leak: live memory grows ({document['leak_source'] or 'nobody knows what keeps it'})")
    peak, held, live, free = (
        words.size(document[f"{name}_bytes"]) for name in ("peak_memory", "reserved", "allocated", "largest_free_block")
    )
    line(out, f"  peak {peak}; at the end {held} held, {live} in use, largest free block {free}")
    if document["remedies"]:
        title(out, "Remedies")
        rows = [
            (each["name"], "helps" if each["helps"] else "no help", words.size(each["peak_memory_bytes"]),
             words.NOTHING if each["slowdown"] is None else f"{100 * each['slowdown']:+.0f} %")
            for each in document["remedies"]
        ]  # fmt: skip
        table(out, ("remedy", "", "peak", "slower"), rows, right=("peak", "slower"))
    if document["recommendation"]:
        title(out, "Recommendation (goes into the export)")
        line(out, f"  {document['recommendation']}")


def _hourly(rate: float | None, interval: Sequence[float] | None) -> str:
    if rate is None or not interval:
        return ""
    low, high = (words.size(bound) for bound in interval)
    return f"{words.size(rate)} an hour [{low}, {high}]: "


def print_profiled(document: Mapping[str, Any]) -> None:
    """What costs without need first, then where time and memory go, then the files."""
    out = console()
    line(out, f"{document['study']}, trial {document['trial']} under {document['tool']} (no measurement)", style="bold")
    for each in document["findings"]:
        line(out, f"  {each['kind'].replace('_', ' ')}: {each['text']}")
        line(out, f"    {each['advice']}")
    if document["shares"] and not document["findings"]:
        line(out, "  nothing that costs without need was found")
    _time(out, document)
    _memory(out, "Memory at the peak, by category", document["memory_by_category"])
    _memory(out, "by module", document["memory_by_module"], most=10)
    if document["allocator"]:
        _allocator(out, document["allocator"])
    for each in document["files"]:
        title(out, f"Kept, {words.size(each['bytes'])}: {each['open_with']}")
        out.print(each["path"], markup=False, highlight=False, soft_wrap=True)  # one line, to be copied
    for note in document["notes"]:
        line(out, f"note: {note}")


def _time(out: Console, document: Mapping[str, Any]) -> None:
    if not document["shares"]:
        return
    title(out, "Where a step's time goes")
    shares = sorted(document["shares"].items(), key=lambda each: -each[1])
    line(out, "  " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares if share >= 0.005))
    total = sum(document["phases"].values()) or 1.0
    phases = (f"{name} {100 * seconds / total:.0f} %" for name, seconds in document["phases"].items())
    line(out, "  " + ", ".join(phases))
    rows = [
        (each["name"], each["category"], f"{100 * each['share']:.1f} %", str(each["calls"]))
        for each in document["operators"][:10]
    ]
    table(out, ("operator", "category", "share", "calls"), rows, right=("share", "calls"), wrapped=("operator",))


def _memory(out: Console, text: str, sizes: Mapping[str, int], most: int = 20) -> None:
    if not sizes:
        return
    title(out, text)
    ranked = sorted(sizes.items(), key=lambda each: -each[1])[:most]
    table(out, ("", " "), [(words.size(size), name) for name, size in ranked], right=("",))


def _allocator(out: Console, found: Mapping[str, Any]) -> None:
    title(out, "The allocator after these steps")
    line(
        out,
        f"  {words.size(found['reserved_bytes'])} reserved, {words.size(found['allocated_bytes'])} in tensors, largest "
        f"free block {words.size(found['largest_free_block_bytes'])}",
    )
    table(out, ("", " "), [(words.size(each["bytes"]), each["place"]) for each in found["places"]], right=("",))
