"""The answers of the commands as text for people, made from the same JSON that ``--json`` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console

from objectives.config import TrainingConfig
from tuner.cli import words
from tuner.cli.printing import console, line, table, title
from tuner.cli.why import print_why

Document = Mapping[str, Any]
KEPT = dict.fromkeys(("running", "paused", "cancelled"), "the same command goes on")
"""Said of a study that may go on."""

SAID_ABOVE = ("no speed-up is stated", "no configuration has been confirmed")
"""Notices that stand in the answer itself."""


def print_result(result: Document) -> None:
    """The answer of ``run`` and ``show``: front, baseline beside winner, speed-up, refusals, what to type next."""
    out = console()
    _head(out, result)
    trials = result.get("front") or []
    if trials:
        title(out, "The front: throughput against peak memory")
        _front_table(out, trials, _config(result.get("baseline")) or TrainingConfig().to_mapping(), "the baseline")
    _answer(out, result)
    _around(out, result)
    _refused(out, result.get("refused") or [])
    for notice in result.get("notices") or []:
        if not notice.startswith(SAID_ABOVE):
            line(out, f"Note: {notice}")
    _next(out, result)


def print_front(document: Document) -> None:
    """The front's trials, fastest first, with the knobs that are not the trainer's defaults."""
    out = console()
    trials = document.get("trials") or []
    if not trials:
        line(out, f"{document['study']}: no trial on the front yet")
        return
    title(out, f"{document['study']}: the front, fastest first")
    _front_table(out, trials, TrainingConfig().to_mapping(), "the trainer's defaults")


def print_list(document: Document) -> None:
    """The studies, one a row."""
    out = console()
    studies = document.get("studies") or []
    if not studies:
        line(out, "no study in the store yet; start one with: tuner run SPEC")
        return
    rows = [
        (
            str(each.get("study", "")),
            str(each.get("status", "")),
            str(each.get("device") or words.NOTHING),
            str(sum((each.get("counts") or {}).values())),
            _speedup_text(each),
        )
        for each in studies
    ]
    head = ("study", "status", "device", "trials", "speed-up")
    table(out, head, rows, right=("trials", "speed-up"), wrapped=("study", "device"))


def print_submitted(document: Document) -> None:
    """What was handed in, and how to follow it."""
    out, name = console(), shlex.quote(str(document["study"]))
    line(out, f"{document['study']}: {document['status']}", style="bold")
    line(out, f"follow it: tuner watch {name}    what it has: tuner show {name}")


def print_workers(document: Document) -> None:
    """The workers, one a row."""
    out = console()
    found = document.get("workers") or []
    if not found:
        line(out, "no worker; start one with: tuner worker")
        return
    rows = [
        (
            str(each["worker"])[:8],
            str(each["host"]),
            str(each["device"]),
            str(each["status"]),
            str(each["study"] or words.NOTHING),
            words.duration(each["silent_seconds"]),
            str(each["reason"] or ""),
        )
        for each in found
    ]
    table(out, ("worker", "host", "device", "state", "study", "last heard", "reason"), rows, right=("last heard",))


def print_devices(document: Document) -> None:
    """The devices, each with its facts."""
    out = console()
    for device in document.get("devices") or []:
        title(out, str(device.get("name") or device.get("kind") or "device"))
        _facts(out, {key: item for key, item in device.items() if key != "name"})
    if not document.get("devices"):
        line(out, "no device found")


def print_facts(document: Document) -> None:
    """A flat document, one key a line."""
    _facts(console(), document)


def _head(out: Console, result: Document) -> None:
    counts = result.get("counts") or {}
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    reason = f" ({result['stop_reason']})" if result.get("stop_reason") else ""
    device = f" on {result['device']}" if result.get("device") else ""
    total = sum(counts.values())
    took = f" in {words.duration(result['seconds'])}" if result.get("seconds") else ""
    line(out, f"{result['study']}: {result.get('status', '')}{reason}", style="bold")
    line(out, f"{total} trials{took}{device}" + (f": {said}" if said else ""))
    if result.get("memory_limit_bytes"):
        line(out, f"memory limit {words.size(result['memory_limit_bytes'])}, {_batch(result)}")
    if result.get("status") in KEPT and KEPT[str(result["status"])] not in reason:
        line(out, f"what is done is kept; {KEPT[str(result['status'])]}")


def _batch(result: Document) -> str:
    if result.get("global_batch_size"):
        return f"global batch {result['global_batch_size']} samples"
    return f"global batch {result.get('global_batch_tokens') or '?'} tokens"


def _front_table(out: Console, trials: Sequence[Document], reference: Mapping[str, Any], name: str) -> None:
    head = f"differs from {name} by"
    rows = [
        (
            str(trial["number"]),
            words.rate(trial.get("throughput"), trial.get("throughput_unit")),
            words.size(trial.get("peak_memory_bytes")),
            words.size(trial.get("predicted_peak_memory_bytes")),
            words.knobs(trial.get("config") or {}, reference) or "nothing",
        )
        for trial in sorted(trials, key=lambda trial: -(trial.get("throughput") or 0.0))
    ]
    numbers = ("trial", "throughput", "peak memory", "predicted")
    table(out, (*numbers, head), rows, right=numbers)


def _answer(out: Console, result: Document) -> None:
    baseline, best = result.get("baseline"), result.get("best")
    if best is None:
        line(out, f"\nNo winner: {_why_none(result)}", style="bold yellow")
        return
    if baseline is None or baseline["number"] == best["number"]:
        title(out, f"The baseline (trial {best['number']}) is the fastest that was confirmed")
        _side_by_side(out, (("baseline", best),))
        return
    title(out, "Baseline beside winner")
    _side_by_side(
        out, ((f"baseline (trial {baseline['number']})", baseline), (f"winner (trial {best['number']})", best))
    )
    line(out, _verdict(result), style="bold green")
    print_why(out, result.get("explanation") or ())


def _why_none(result: Document) -> str:
    """The reason that really holds: an empty front has many."""
    counts: Mapping[str, int] = result.get("counts") or {}
    completed, demoted = counts.get("completed", 0), len(result.get("demoted") or [])
    if result.get("front"):
        return "none has been confirmed yet; the numbers above are from short search windows"
    if not counts:
        return "no trial has ended yet"
    if set(counts) == {"device_oom"}:
        return "every trial ran out of memory"
    if not completed:
        return "no trial completed; each ended as counted above"
    if demoted == completed:
        return "what completed was thrown out by a longer run"
    return "no configuration was measured inside the memory limit"


def _side_by_side(out: Console, columns: Sequence[tuple[str, Document]]) -> None:
    trials = [trial for _, trial in columns]
    rows = [
        ("throughput", *(words.rate(trial.get("throughput"), trial.get("throughput_unit")) for trial in trials)),
        ("95 % interval", *(words.interval(trial.get("throughput_interval")) or words.NOTHING for trial in trials)),
        ("peak memory", *(words.size(trial.get("peak_memory_bytes")) for trial in trials)),
        ("predicted", *(words.size(trial.get("predicted_peak_memory_bytes")) for trial in trials)),
        *_knob_rows([trial.get("config") or {} for trial in trials]),
    ]
    table(out, ("", *(name for name, _ in columns)), rows)


def _knob_rows(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The knobs that are not alike in all configurations, micro-batch and accumulation always."""
    names = dict.fromkeys(name for config in configs for name in config)
    always = ("micro_batch_size", "accumulation_steps")
    return [
        (name, *(words.value(config.get(name)) for config in configs))
        for name in names
        if name in always or len({words.value(config.get(name)) for config in configs}) > 1
    ]


def _verdict(result: Document) -> str:
    speedup, bounds = result.get("speedup_over_baseline"), result.get("speedup_over_baseline_interval")
    if speedup is None:
        return f"No speed-up is stated: {result.get('speedup_reason') or 'the baseline has no number'}."
    interval = f" (95 % interval {words.times(bounds[0])} to {words.times(bounds[1])})" if bounds else ""
    if bounds and bounds[0] <= 1.0 <= bounds[1]:
        return f"A tie: {words.times(speedup)} the baseline{interval}; the difference is inside the noise."
    return f"The winner trains {words.times(speedup)} as fast as the baseline{interval}."


def _around(out: Console, result: Document) -> None:
    """What stands around the winner: ties, what it leaves free, what a longer run threw out, what needs the margin."""
    best = (result.get("best") or {}).get("number")
    ties = [str(number) for number in result.get("ties") or [] if number != best]
    if ties:
        line(out, f"As fast as the winner within the noise: trial {', '.join(ties)}.")
    if result.get("headroom_bytes") is not None:
        line(out, f"It leaves {words.size(result['headroom_bytes'])} of the memory limit free.")
    for each in result.get("demoted") or []:
        line(out, f"Trial {each['number']} was thrown out by a longer run: {each['reason']}.")
    for trial in result.get("fits_without_margin") or []:
        size = words.size(trial.get("peak_memory_bytes"))
        line(out, f"Trial {trial['number']} needs {size}: it fits this device, without the stated headroom.")


def _speedup_text(result: Document) -> str:
    speedup = result.get("speedup_over_baseline")
    return words.NOTHING if speedup is None else words.times(speedup)


def _refused(out: Console, refused: Iterable[Document]) -> None:
    rows = [(f"{each['knob']} {words.value(each.get('value'))}", str(each["reason"])) for each in refused]
    if rows:
        title(out, "Refused before a trial")
        table(out, ("choice", "reason"), rows)


def _next(out: Console, result: Document) -> None:
    name = shlex.quote(str(result["study"]))
    title(out, "Next")
    if result.get("status") == "paused":
        line(out, "  tuner run SPEC                goes on where it stopped")
    line(out, f"  tuner show {name}            this answer again (--json for programs)")
    line(out, f"  tuner front {name}           the front alone")
    if result.get("best") is not None:
        line(out, f"  tuner export {name} --to hf-trainer    the winner as files for your trainer")


def _config(trial: Document | None) -> Mapping[str, Any]:
    return (trial or {}).get("config") or {}


def _facts(out: Console, facts: Mapping[str, Any]) -> None:
    rows = [(key, _fact(key, item)) for key, item in facts.items() if item is not None]
    table(out, ("", ""), rows)


def _fact(key: str, item: Any) -> str:
    if key.endswith("_bytes") and isinstance(item, (int, float)):
        return words.size(item)
    if isinstance(item, Mapping):
        return ", ".join(f"{name} {words.value(inner)}" for name, inner in item.items())
    if isinstance(item, (list, tuple)):
        return ", ".join(map(words.value, item))
    return words.value(item)
