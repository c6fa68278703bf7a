"""``tuner verify``: the winner's gradient and loss curve against the baseline's, in one child."""

from __future__ import annotations

from typing import Any

from objectives.config import TrainingConfig
from tuner.answer.verify import document, whole_batch_fits
from tuner.work.longer_runs import Bench, Order, keep, perform, require_done, say

CURVE_UPDATES = 12
CURVE_SECONDS = 30.0


def verify(bench: Bench) -> dict[str, Any]:
    """Verifies the study's winner.

    Raises:
        TightfitError: It cannot be run, or failed; the stored run says more.
    """
    bench.require_workload("verify")
    winner, view = bench.winner, bench.view
    base = bench.baseline
    baseline = TrainingConfig.from_mapping((base or winner).config)
    say(bench, f"verifying trial {winner.number}: its gradient against another split of the same batch, dropout off")
    order = Order(
        purpose="verify",
        trial=winner,
        answer={
            "baseline": baseline.to_mapping(),
            "whole_fits": whole_batch_fits(view.ended, winner, view.study.memory_limit_bytes),
            "curve_updates": CURVE_UPDATES,
            "curve_seconds": CURVE_SECONDS,
        },
        seconds=view.spec.limits.trial_time_seconds + 4 * CURVE_SECONDS,
    )
    done = perform(bench, order)
    found = done.end.answers[-1] if done.end.answers else {}
    keep(bench, done, found)
    require_done(done, "the verification")
    return document(found, study=view.study.name, trial=winner.number, run=done.run)
