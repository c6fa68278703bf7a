"""The errors a person sees.

TightfitError            exit 1, one sentence, no traceback (``--debug`` shows it)
├── SpecError            exit 2: the spec (or an argument) cannot be used; names line, reason and fix
├── StudyError           exit 2: no such study, or the same name means another study
├── StoreError           exit 1: the store cannot be reached, or its schema is not ours
└── MachineError         this machine cannot run it now: the outcome ``infra`` of a run, no error of the study
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


class MachineError(TightfitError):
    """This machine cannot start or hold a run now.

    Attributes:
        cause: A cause of the outcome ``infra``; None where none of them says it.
    """

    def __init__(self, text: str, cause: str | None = None) -> None:
        self.cause = cause
        super().__init__(text)


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
    """All problems of a spec at once.

    Args:
        problems: At least one.
        source: What the messages call the spec; empty where only its keys are known (found in preparation).
    """

    exit_status = 2

    def __init__(self, problems: tuple[SpecProblem, ...], source: str = "spec") -> None:
        self.problems = problems
        self.source = source
        super().__init__("\n".join(self._line(problem) for problem in problems))

    def _line(self, problem: SpecProblem) -> str:
        place = self.source if problem.line is None else f"{self.source}:{problem.line}"
        parts = (place, problem.where or "file", f"{problem.reason.rstrip('.')}. {problem.fix}".rstrip())
        return ": ".join(part for part in parts if part)


def served_by_workers(study: str, status: str) -> StudyError:
    """What to say to a person who wants to run here what the service's workers have."""
    return StudyError(
        f"study {study!r} is {status} for the workers: watch it with `tuner watch {study}`, or `tuner pause {study}` "
        "first to go on with it here"
    )
