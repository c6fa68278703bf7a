"""The errors a person sees.

TightfitError            exit 1, one sentence, no traceback (``--debug`` shows it)
├── SpecError            exit 2: the spec (or an argument) cannot be used; names line, reason and fix
├── StudyError           exit 2: no such study, or the same name means another study
└── StoreError           exit 1: the store cannot be reached, or its schema is not ours
"""

from __future__ import annotations

from dataclasses import dataclass


class TightfitError(Exception):
    """What went wrong, for the person in front of it: the place, the reason and the way out."""

    exit_status = 1


class StudyError(TightfitError):
    """A study's name is unknown, or already means another study."""

    exit_status = 2


class StoreError(TightfitError):
    """The store cannot be reached or its schema is not ours."""


@dataclass(frozen=True, kw_only=True)
class SpecProblem:
    """One problem of a spec.

    Attributes:
        where: Dotted path of the key, e.g. ``search.precision``; empty for the file itself.
        reason: What is wrong, in the user's words.
        fix: What to write instead.
        line: 1-based line in the file; None when the spec did not come from one.
    """

    where: str
    reason: str
    fix: str
    line: int | None = None


class SpecError(TightfitError):
    """All problems of a spec at once."""

    exit_status = 2

    def __init__(self, problems: tuple[SpecProblem, ...], source: str = "spec") -> None:
        self.problems = problems
        self.source = source
        super().__init__("\n".join(self._line(problem) for problem in problems))

    def _line(self, problem: SpecProblem) -> str:
        place = self.source if problem.line is None else f"{self.source}:{problem.line}"
        return f"{place}: {problem.where or 'file'}: {problem.reason}. {problem.fix}".rstrip()
