"""Real processes at once on one store, SQLite and PostgreSQL: no gaps, no duplicates, nobody locked out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage import runs, studies, trials
from storage.database import Database

RESERVE = """
import sys
from storage import trials
from storage.database import Database
database = Database.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while True:
    trial = trials.reserve(
        database, study_id=int(sys.argv[2]), config={"a": 1}, config_key="a", source=sys.argv[3], max_trials=40
    )
    if trial is None:
        break
    trials.finish(database, trial.id, outcome="completed", throughput=1.0)
    print(trial.number, flush=True)
database.close()
"""
MIGRATE = """
import sys
from storage.database import Database
database = Database.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
database.prepare()
print(database.check(), flush=True)
database.close()
"""
DIE_INSIDE = """
import os, signal, sys
from sqlalchemy import text
from storage import runs, trials
from storage.database import Database
from storage.rows import change_study
database = Database.open(sys.argv[1])
study_id = int(sys.argv[2])
trial = trials.reserve(database, study_id=study_id, config={}, config_key="", source="tpe", max_trials=9)
runs.start(database, id="lost", study_id=study_id, trial_id=trial.id, purpose="search")
def work(session):
    change_study(session, study_id, trial_count=99)
    os.kill(os.getpid(), signal.SIGKILL)
with database.lock("study"):
    database.write(work)
"""


def start(program: str, database: Database, *arguments: object) -> subprocess.Popen[str]:
    url = database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", program, url, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def all_at_once(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Lets them go together; each one's further lines."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        process.stdin.write("\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [(process.returncode, answer[1]) for process, answer in zip(processes, answers, strict=True)] == [
        (0, "") for _ in processes
    ]
    return [answer[0].split() for answer in answers]


@pytest.mark.case("G07")
def test_eight_processes_reserve_forty_trials(database: Database) -> None:
    study = studies.create(database, name="many", spec={}, identity={})
    answers = all_at_once([start(RESERVE, database, study.id, f"worker {number}") for number in range(8)])
    taken = [int(number) for answer in answers for number in answer]
    assert sorted(taken) == list(range(40))
    assert [trial.number for trial in trials.list_of(database, study.id)] == list(range(40))
    assert trials.counts(database, study.id) == {"completed": 40}


@pytest.mark.case("G07")
def test_eight_processes_start_on_an_empty_store(empty_url: str) -> None:
    database = Database.open(empty_url)
    assert all_at_once([start(MIGRATE, database) for _ in range(8)]) == [["current"]] * 8
    assert studies.list_all(database) == ()
    database.close()


def test_what_a_killed_process_leaves(database: Database) -> None:
    """kill -9 inside a transaction: nothing half done, no lock left, the trial goes on under its number."""
    study = studies.create(database, name="resumed", spec={}, identity={})
    process = start(DIE_INSIDE, database, study.id)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGKILL, errors
    with database.lock("study", wait_seconds=10) as held:
        assert held
    (left,) = trials.unfinished(database, study.id)
    assert (left.number, left.outcome) == (0, None)
    trials.release(database, left.id, evidence={"noticed": "on resume"})
    assert runs.unfinished(database, study_id=study.id) == ()
    assert runs.get(database, "lost").cause == "worker_lost"
    again = runs.start(database, id="again", study_id=study.id, trial_id=left.id, purpose="search", attempt=2)
    runs.record_end(database, id=again.id, outcome="completed", trial_id=left.id)
    following = trials.reserve(database, study_id=study.id, config={}, config_key="", source="tpe", max_trials=9)
    assert following is not None
    assert following.number == 1
    assert trials.counts(database, study.id) == {"completed": 1}


@pytest.mark.case("G06")
def test_no_program_that_is_started_inherits_the_store(database: Database) -> None:
    studies.create(database, name="open", spec={}, identity={})
    program = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n > '2'))"
    command = [sys.executable, "-c", program.replace("if n", "if os.path.exists(f'/proc/self/fd/{n}') and n")]
    done = subprocess.run(command, capture_output=True, text=True, close_fds=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert "socket:" not in done.stdout
    assert Path(str(database.url.database)).name not in done.stdout
