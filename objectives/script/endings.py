"""How a script's run ends when it has no measurement, in words that help."""

from __future__ import annotations


class NoStep(RuntimeError):
    """The script ended well, and no optimizer step was seen in any of its processes."""


class TooFewSteps(RuntimeError):
    """The script ended well before there was a window to measure."""


class NotApplied(RuntimeError):
    """The running script does not do what was asked: what was read back from its objects differs."""


UNSEEN = (
    "the script ended, and no optimizer step was seen in its processes. Steps are seen through torch's own optimizers "
    "in a Python that loads sitecustomize (not with -I, -E or -S). Where the script trains in another way, two lines "
    "in its loop help: 'import tuner', and after each optimizer step 'tuner.report_step(samples=...)'"
)


def too_few(steps: int, needed: int) -> TooFewSteps:
    """For a script that made so many steps after its warm-up, and needed more."""
    return TooFewSteps(
        f"the script ended after {steps} optimizer steps; at least {needed} are needed to measure one: let it run "
        "longer (more steps or epochs); it is stopped as soon as its window is measured"
    )


def not_applied(differences: list[dict[str, object]]) -> NotApplied:
    """For what was asked and what was found."""
    return NotApplied("; ".join(f"{d['knob']}: asked {d['asked']!r}, found {d['found']!r}" for d in differences))
