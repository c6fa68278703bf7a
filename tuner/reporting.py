"""The two lines that help where a script's optimizer steps cannot be seen. Loads neither torch nor the rest of us."""

from __future__ import annotations

import os
import sys
from importlib import import_module

WATCH, VARIABLE = "_tightfit_watch", "TIGHTFIT_WATCH"


def report_step(
    *,
    samples: int,
    tokens: int | None = None,
    accumulation_steps: int = 1,
    precision: str | None = None,
    loader_workers: int | None = None,
) -> None:
    """Says that one optimizer step has been made. Outside a run of the tuner it does nothing at all.

    Call it once after each step. From the first call on only these calls count, whatever torch's hooks see::

        import tuner

        for batch in batches:
            state = update(state, batch)          # whatever trains
            tuner.report_step(samples=len(batch))

    When the window is measured it raises ``SystemExit(0)``: the script's ``finally`` blocks and exit handlers run.

    Args:
        samples: Samples this process used for the step (all its micro-batches together).
        tokens: Real tokens among them; None where there are none or they are not counted.
        accumulation_steps: Micro-batches of the step.
        precision: The knob's word for what the script really does (``bf16-mixed``); None is not compared.
        loader_workers: Likewise.
    """
    if VARIABLE not in os.environ:
        return
    watch = sys.modules.get(WATCH) or import_module(f"objectives.script.inside.{WATCH}")
    watch.report_step(
        samples=samples,
        tokens=tokens,
        accumulation_steps=accumulation_steps,
        precision=precision,
        loader_workers=loader_workers,
    )
