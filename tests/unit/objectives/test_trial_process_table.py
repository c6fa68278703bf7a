"""Who belongs to a run, and ending it for certain; on real, tiny processes."""

import os
import signal
import subprocess

import pytest

from objectives.trial import process_table as table
from objectives.trial.process_table import Process


def process(pid, parent, **changes):
    values = {"group": pid, "session": pid, "state": "S", "started": 1} | changes
    return Process(pid=pid, parent=parent, **values)


@pytest.fixture
def sleeper():
    environment = {"PATH": os.environ["PATH"], table.RUN_VARIABLE: "run-of-a-test"}
    with subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True) as made:
        yield made
        made.kill()


def test_this_process_reads_itself():
    found = table.read(os.getpid())
    assert found is not None
    assert (found.parent, found.group, found.alive) == (os.getppid(), os.getpgrp(), True)
    assert table.read(2**22 + 1) is None
    assert table.own_threads() >= 1
    assert 0 in table.own_files()


def test_a_tree_holds_everything_below_its_root():
    processes = {p.pid: p for p in (process(10, 1), process(11, 10), process(12, 11), process(13, 1))}
    assert table.tree(10, processes) == {10, 11, 12}
    assert table.tree(99, processes) == {99}


def test_a_mark_is_found_and_only_the_marked_is_ended(sleeper):
    assert table.run_of(sleeper.pid) == "run-of-a-test"
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        found = table.left_behind("run-of-a-test", leader=2**22 + 1)
        assert [p.pid for p in found] == [sleeper.pid]
        killed, left = table.end_all(lambda: table.left_behind("run-of-a-test", leader=2**22 + 1))
        assert (killed, left) == (1, 0)
        assert sleeper.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def test_a_session_and_a_group_belong_to_their_leader(sleeper):
    assert [p.pid for p in table.left_behind("another run", leader=sleeper.pid)] == []
    assert process(5, 1, state="Z").alive is False


def test_a_number_given_to_another_process_is_never_hit(sleeper):
    found = table.read(sleeper.pid)
    assert found is not None
    table.end([process(sleeper.pid, 1, started=found.started - 1)])
    assert sleeper.poll() is None
    table.end([found])
    assert sleeper.wait() == -signal.SIGKILL
    table.end([found])


def test_what_cannot_be_ended_is_counted(sleeper, monkeypatch):
    monkeypatch.setattr(table, "send_signal", lambda *_: None)  # as if it were stuck in the kernel
    stuck = table.read(sleeper.pid)
    assert table.end_all(lambda: [stuck], limit_seconds=0.02) == (1, 1)


def test_a_killed_process_is_waited_for_although_nobody_names_it_any_more(sleeper):
    asked = [[table.read(sleeper.pid)]]
    assert table.end_all(lambda: asked.pop() if asked else []) == (1, 0)
    left = table.read(sleeper.pid)
    assert left is None or not left.alive


def test_without_pidfds_signals_go_by_number(sleeper, monkeypatch):
    def refuse(_pid):
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    found = table.read(sleeper.pid)
    assert found is not None
    table.end([found])
    assert sleeper.wait() == -signal.SIGKILL


def test_a_mark_without_its_placeholder_changes_nothing():
    before = table.run_of(os.getpid())
    table.mark("some-run")
    assert table.run_of(os.getpid()) == before
    with pytest.raises(OSError, match="prctl"):
        table.process_control(-1, 0)
