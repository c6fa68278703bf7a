"""A diagnosis for people: each check with its findings, figures and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from tuner.cli import words
from tuner.cli.printing import console, line, title

STYLES = {"fine": "green", "improve": "yellow", "broken": "bold red", "not_measured": "dim", "not_comparable": "dim"}
MOST_FIGURES = 6
"""Figures shown beside a finding; ``--json`` and the report have all."""


def print_diagnosis(document: Mapping[str, Any]) -> None:
    """The checks, one after the other."""
    out = console()
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in document["counts"].items() if count)
    line(out, f"{document['study']}: {counted}", style="bold")
    for check in document["checks"]:
        _print_check(out, check)


def _print_check(out: Console, check: Mapping[str, Any]) -> None:
    title(out, f"{check['mistake']}. {check['title']}")
    for finding in check["evidence"]:
        verdict = finding["verdict"]
        line(out, f"  {verdict.replace('_', ' ')}: {finding['statement']}", style=STYLES[verdict])
        if finding["measured_by"] is not None:
            line(out, f"      measure it: {finding['measured_by']}")
        if verdict in ("improve", "broken"):
            _print_figures(out, finding)
    for advice in check["advice"]:
        line(out, f"  -> {advice['change']}")
        line(out, f"      expected: {advice['expected']}")
        line(out, f"      check: {advice['check']}")


def _print_figures(out: Console, finding: Mapping[str, Any]) -> None:
    known = [each for each in finding["figures"] if each["value"] is not None]
    for each in known[:MOST_FIGURES]:
        of = f" ({each['of']})" if each["of"] else ""
        line(out, f"      {each['name']}{of}: {words.figure(each)}", style="dim")
    if len(known) > MOST_FIGURES:
        line(out, f"      and {len(known) - MOST_FIGURES} more figures (--json)", style="dim")
