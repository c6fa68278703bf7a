"""What a service says on stderr: one line a fact, JSON for machines, words for a terminal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from storage.plain import plain_json
from tuner.progress import Progress, StepSeen

LOGGER = logging.getLogger("tuner.worker")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_WORDS = {
    "StudyStarted": "study started", "Preparing": "preparing", "TrialStarted": "run started", "TrialEnded": "run ended",
    "Best": "best so far", "Confirming": "confirming", "Notice": "notice", "StudyEnded": "study ended",
}  # fmt: skip


class JsonLines(logging.Formatter):
    """``{"time", "level", "event", ...}``: whatever the record carries beside its message stands as a field."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of standard JSON."""
        made: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            made["traceback"] = self.formatException(record.exc_info)
        return json.dumps(plain_json(made), allow_nan=False, ensure_ascii=False)


class Plain(logging.Formatter):
    """The same for a person: time, level, words, and the fields behind them."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, a traceback below it."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        behind = " ".join(f"{name}={value}" for name, value in extras(record).items() if value not in (None, ""))
        text = f"{moment} {record.levelname.lower():7} {record.getMessage()}  {behind}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """The fields a record was given beside its message."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def set_up(stream: TextIO | None = None) -> None:
    """Sends what this package logs to stderr: JSON lines unless that is a terminal."""
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    handler.setFormatter(Plain() if target.isatty() else JsonLines())
    root = logging.getLogger("tuner")
    root.handlers, root.propagate = [handler], False
    root.setLevel(logging.INFO)


def say(progress: Progress, ids: Mapping[str, Any]) -> None:
    """Logs one fact of a study's progress, with the ids it belongs to. Steps are not logged."""
    if isinstance(progress, StepSeen):
        return
    assert is_dataclass(progress)
    said = {item.name: getattr(progress, item.name) for item in fields(progress)}
    if "number" in said:
        said["trial"] = said.pop("number")
    words = said.pop("text", None) or _WORDS[type(progress).__name__]
    LOGGER.info(words, extra={**{_free(name): value for name, value in said.items()}, **ids})


def _free(name: str) -> str:
    """A name that no record has already."""
    return f"{name}_text" if name in _STANDARD else name
