"""What longer runs found, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

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
