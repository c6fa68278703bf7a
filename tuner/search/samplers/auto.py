"""TPE behind an opening that changes one knob at a time: the best of these samplers for few trials."""

from __future__ import annotations

from tuner.search.samplers.proposer import OptunaProposer, Proposer, SearchTask
from tuner.search.samplers.tpe import tpe_sampler


def build(task: SearchTask) -> Proposer:
    """The proposer of ``sampler: auto``."""
    return OptunaProposer(task=task, make_sampler=tpe_sampler, opens=True)
