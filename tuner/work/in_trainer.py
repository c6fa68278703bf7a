"""``tuner confirm --with``: the winner's exported files in the real trainer, beside the study's own number.

The study's own loop is measured again before and after, so that a machine that is slower today, or busy now, is not
mistaken for a slow trainer.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from tuner.answer.in_trainer import STEPS_SECONDS, document, steps_for
from tuner.errors import StudyError, TightfitError
from tuner.export import export, format_named
from tuner.export.choose import choose
from tuner.export.handover import Export
from tuner.work.longer_runs import Bench, Done, Order, keep, perform, require_done, say

TRAINERS: Mapping[str, tuple[str, str]] = {
    "hf-trainer": ("accelerate", "pip install 'accelerate>=1.10'"),
    "lightning": ("lightning", "pip install 'lightning>=2.6'"),
}
"""What each needs installed beside us, and how it gets there."""
OWN = "tightfit"
OURS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM")
"""Variables of an export that every child of ours has anyway."""
NOT_IN_CODE = frozenset({"batching", "loader_workers", "prefetch_factor", "pin_memory", "micro_batch_size"})
"""Knobs that a study's workload alone cannot put into effect in a foreign loop."""


def require_trainer(name: str) -> None:
    """Refuses a trainer that is unknown or not installed.

    Raises:
        StudyError: There is no such trainer.
        TightfitError: It is not installed; the message says the command.
    """
    if name not in TRAINERS:
        raise StudyError(f"no trainer {name!r}; there are {', '.join(TRAINERS)}")
    package, command = TRAINERS[name]
    if importlib.util.find_spec(package) is None:
        raise TightfitError(f"--with {name} needs the package {package}, which is not installed: {command}")


def confirm_in_trainer(bench: Bench, name: str, steps: int | None) -> dict[str, Any]:
    """Runs the winner's export in a trainer.

    Args:
        bench: The study, opened.
        name: Of :data:`TRAINERS`.
        steps: Optimizer steps that are timed; None for about ten seconds of them.

    Raises:
        StudyError: There is no such trainer, or no winner.
        TightfitError: It is not installed, or the run failed.
        ExportRefused: The trainer cannot hold the winner.
    """
    require_trainer(name)
    bench.require_workload("confirm --with")
    winner = bench.winner
    handover = choose(bench.view)
    made = export(handover, format_named(name))
    count = steps if steps is not None else steps_for(handover, bench.view)
    say(bench, f"the study's own loop on trial {winner.number}, measured again now")
    before = _run(bench, made, OWN, count)
    say(bench, f"the exported files in {format_named(name).title}: {count} timed optimizer steps")
    theirs = _run(bench, made, name, count)
    after = _run(bench, made, OWN, count)
    found = theirs.end.answers[-1] if theirs.end.answers else {}
    own = [each.end.measurement["throughput"] for each in (before, after)]
    told = document(handover, made, name, found, own, interval=bench.view.interval(winner))
    keep(bench, theirs, told, peak_memory_bytes=found.get("peak_memory_bytes"))
    return told


def _run(bench: Bench, made: Export, trainer: str, steps: int) -> Done:
    in_code = [each.knob for each in made.not_carried if each.knob not in NOT_IN_CODE]
    order = Order(
        purpose="trainer",
        trial=bench.winner,
        answer={
            "trainer": trainer,
            "values": dict(made.values),
            "loader": json.loads(made.files.get("lightning_dataloader.json", "{}")),
            "in_code": in_code,
            "steps": steps,
        },
        seconds=bench.view.spec.limits.trial_time_seconds + 2 * STEPS_SECONDS,
        environment={**bench.view.spec.environment, **_environment(made)},
    )
    done = perform(bench, order)
    if done.end.verdict.outcome != "completed" or trainer == OWN:
        keep(bench, done, done.end.measurement)
    require_done(done, f"the run in {trainer}" if trainer != OWN else "the study's own loop")
    return done


def _environment(made: Export) -> dict[str, str]:
    return {name: text for name, text in made.environment.items() if name not in OURS}
