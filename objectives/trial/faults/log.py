"""What a log's last lines say where no exception was recorded. Only fatal lines count: a warning never decides."""

from __future__ import annotations

import re
from collections.abc import Iterator

from objectives.trial.faults.model import ExceptionRecord
from objectives.trial.faults.records import tracebacks

TAIL_CHARACTERS = 65_536
"""Read of a log's end."""
MESSAGE_CHARACTERS = 4_096
"""Read behind a fatal line: some spread their reason over several."""

SELF_ENDED = "tightfit: this run ends itself: "
"""What a child writes before it ends itself, because its worker is gone."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_TERMINATE = re.compile(r"^.{0,80}?\bterminate called\b(?: after throwing an instance of '([^'\n]{1,200})')?")
_NOT_FATAL = re.compile(r"\bwarn|\brecovered\b|\bretry", re.IGNORECASE)
"""Whoever writes so went on."""
_MACRO = re.compile(r"^(?:Error|GPUassert:?|CUDA ?assert:?|CUDA ?check failed:?|Cuda error:?) ", re.IGNORECASE)
"""How a checking macro in C begins what the runtime said."""
_FATAL = re.compile(
    r"^(?:"
    r"libgomp: .*"
    r"|OMP: Error #\d+: .*"
    r"|(?:\[[^\]]{1,80}\] ?)?Fatal Python error: .*"
    r"|Error .{1,300} at line \d+ in file \S+"
    r"|(?:GPUassert|CUDA ?assert|CUDA ?check failed|Cuda error|CUDA error|HIP error)\b.*"
    r"|F\d{4,8} [\d:.]+ .*"
    r"|.{0,80}\bCheck failed: .*"
    r"|Memory access fault by GPU\b.*"
    r"|.{0,300}\b(?:UR_RESULT_ERROR|PI_ERROR|ZE_RESULT_ERROR|HSA_STATUS_ERROR)_\w+.*"
    r"|.{0,80}\bexitcode {0,4}: -\d+\b.*"
    r"|LLVM ERROR: .*"
    r"|(?:slurmstepd: error: )?.{0,80}\boom[-_]kill event.*"
    r"|OpenBLAS blas_thread_init: pthread_create failed.*"
    r"|.{0,200}\bWatchdog caught collective operation timeout.*"
    r"|(?:malloc|free|realloc|munmap_chunk|corrupted|double free)\b.{0,80}\b(?:corrupt|invalid|memory|size).*"
    r")$"
)


def cleaned(text: str) -> str:
    """The text without colours and control characters; a progress bar's rewrites become lines of their own."""
    return _CONTROL.sub("", _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def ended_itself(log_tail: str) -> bool:
    """Whether the child ended itself because its worker was gone."""
    return any(line.startswith(SELF_ENDED) for line in log_tail[-TAIL_CHARACTERS:].splitlines())


def fatal_records(log_tail: str) -> tuple[ExceptionRecord, ...]:
    """Fatal lines of the log's end as records, last first; a traceback counts only where nothing was said after it."""
    text = cleaned(log_tail[-TAIL_CHARACTERS:])
    return (*reversed(tuple(_fatal_lines(text))), *_last_traceback(text))


def _fatal_lines(text: str) -> Iterator[ExceptionRecord]:
    at = 0
    for line in text.splitlines(keepends=True):
        short = line[:1000].rstrip()
        if terminated := _TERMINATE.match(short):
            cls = (terminated.group(1) or "RuntimeError").replace("c10::Error", "RuntimeError")
            message = text[at : at + MESSAGE_CHARACTERS]
            yield ExceptionRecord(cls=cls, bases=("RuntimeError",), text=_what(message))
        elif _FATAL.match(short) and not _NOT_FATAL.search(short):
            yield ExceptionRecord(cls="RuntimeError", text=_MACRO.sub("CUDA error: ", short))
        at += len(line)


def _what(message: str) -> str:
    """The reason behind ``terminate called``: its ``what():`` where there is one, else all that follows."""
    _, found, reason = message.partition("what():")
    return reason.strip() if found else message


def _last_traceback(text: str) -> tuple[ExceptionRecord, ...]:
    """The uncaught exception a log ends with. A traceback that was only logged has other lines behind it."""
    *_, last = ("", *text.rstrip().rsplit("Traceback (most recent call last)", 1))
    if last == text.rstrip():
        return ()
    found = tuple(tracebacks("Traceback (most recent call last)" + last))
    return tuple(record for record in found if not _goes_on(record.text))


def _goes_on(message: str) -> bool:
    """Whether lines of a log follow an exception's own message: dated lines, levels, our progress."""
    return (
        re.search(r"\n(?:\d{4}-\d\d-\d\d|\[?\d\d:\d\d|(?:\S{0,40} )?(?:INFO|DEBUG|WARNING|step|epoch)\b)", message)
        is not None
    )
