"""Looks on while it happens: every change of an outcome, written down by the server, and who outlives his run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType

from sqlalchemy import text

from benchmarks.chaos_parts.judgement import Transition
from benchmarks.chaos_parts.stage import STUDY, Stage
from objectives.trial import process_table
from storage.errors import StorageError

CREATE = """
CREATE TABLE chaos_audit (kind text, id text, before text, after text, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos_audit (kind, id, before, after) VALUES (TG_TABLE_NAME, NEW.id::text, OLD.outcome, NEW.outcome);
  RETURN NEW;
END $$;
CREATE TRIGGER chaos_run AFTER UPDATE ON tuner_run FOR EACH ROW
  WHEN (OLD.outcome IS DISTINCT FROM NEW.outcome) EXECUTE FUNCTION chaos_note();
CREATE TRIGGER chaos_trial AFTER UPDATE ON tuner_trial FOR EACH ROW
  WHEN (OLD.outcome IS DISTINCT FROM NEW.outcome) EXECUTE FUNCTION chaos_note();
"""
LOOK_SECONDS = 2.0


def install(stage: Stage) -> None:
    """Makes the server write down every outcome that is given, changed or taken back."""
    with stage.service.database.transaction() as session:
        session.execute(text(CREATE))


def transitions(stage: Stage) -> list[Transition]:
    """What it wrote down, in order."""
    rows = stage.service.database.read(
        lambda session: session.execute(text("SELECT kind, id, before, after FROM chaos_audit ORDER BY at")).all()
    )
    return [
        Transition(kind=kind.removeprefix("tuner_"), id=id, before=before, after=after)
        for kind, id, before, after in rows
    ]


class Leftovers:
    """Looks now and then for processes of runs that have ended in the store, while the block runs.

    Attributes:
        longest_seconds: The longest that one of them was seen to outlive its run.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._since: dict[tuple[int, int], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leftovers", daemon=True)
        self.longest_seconds = 0.0

    def __enter__(self) -> Leftovers:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                outcomes = {run.id: run.outcome for run in self._stage.service.runs(STUDY)}
            except StorageError:
                continue
            self._look(outcomes)

    def _look(self, outcomes: Mapping[str, str | None]) -> None:
        now = time.monotonic()
        late = [each for each in self._stage.processes() if outcomes.get(process_table.run_of(each.pid) or "")]
        self._since = {(each.pid, each.started): self._since.get((each.pid, each.started), now) for each in late}
        self.longest_seconds = max([self.longest_seconds, *(now - since for since in self._since.values())])
