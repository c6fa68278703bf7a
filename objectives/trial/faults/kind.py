"""A kind of fault: whose words count, which words they are, and what they mean for the run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from objectives.trial.faults.model import Ending, ExceptionRecord, Verdict
from objectives.trial.faults.records import Speaker, edges

NEAR_FULL_SHARE = 0.9
"""From this share of the device's memory (or of the cap) on, a fault that memory can cause is ascribed to memory."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One record of a run's ending that a kind has recognised."""

    ending: Ending
    record: ExceptionRecord

    @property
    def near_full(self) -> bool:
        """Whether memory was known to be nearly used up."""
        share = self.ending.memory_used_share
        return share is not None and share >= NEAR_FULL_SHARE

    @property
    def cap_reached(self) -> bool:
        """Whether the child's own cap on host memory was set and reached (a CPU's cap; a GPU's does not limit it)."""
        ending = self.ending
        if ending.device == "cuda" or ending.cap_set is False or ending.cap_reached is False:
            return False
        return bool(ending.cap_reached) or (bool(ending.cap_set) and self.near_full)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of fault.

    Attributes:
        name: For tests and for the reader.
        speakers: Which exceptions may say it: an ordinary user error never speaks for a library.
        words: What they say; None where the class alone says it.
        unless: Words that make it something else.
        judge: The verdict; may look at everything known about the ending.
    """

    name: str
    speakers: Speaker
    words: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    judge: Callable[[Fault], Verdict]

    def recognises(self, record: ExceptionRecord) -> bool:
        """Whether this record is of this kind."""
        if not self.speakers(record):
            return False
        text = edges(record.text)
        if self.unless is not None and self.unless.search(text):
            return False
        return self.words is None or self.words.search(text) is not None


def any_of(*patterns: str) -> re.Pattern[str]:
    """One pattern out of several; ``^`` and ``$`` mean lines, capitals mean nothing."""
    return re.compile("|".join(patterns), re.MULTILINE | re.IGNORECASE)


def always(verdict: Verdict) -> Callable[[Fault], Verdict]:
    """A judge that looks no further."""
    return lambda _fault: verdict
