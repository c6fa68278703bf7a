"""Of several reasons to end, the one that leaves nothing to run comes first."""

from __future__ import annotations

from search_fakes import spec_of, trial_of

from tuner.search.stopping import decide
from tuner.spec.model import Limits


def test_time_over_ends_a_search_whose_last_trial_it_cut_short() -> None:
    """The last trial is open again: were the number of trials the reason, it would be begun and cut short for ever."""
    trials = [trial_of(0), trial_of(1), trial_of(2, outcome=None)]
    spec = spec_of(limits=Limits(trials=3, time_seconds=90.0))
    stop = decide(trials, spec, elapsed_seconds=61.0, limit_bytes=None)
    assert stop is not None
    assert stop.kind == "time"
