"""Real children: how each way to end is told."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import PRELOAD, chain, failure, finish, lives, make_request, poll_until, run, wait_for

from objectives.trial.protocol import RunRequest
from tuner.work.launcher import Launcher


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(preload=PRELOAD) as made:
        yield made


@pytest.mark.parametrize("code", [0, 3, 137])
def test_an_exit_status_is_told_as_it_was(launcher: Launcher, tmp_path: Path, code: int) -> None:
    end, events = run(launcher, tmp_path, "exit_now", code=code)

    assert (end.exit_code, end.signal, end.killed_by_us) == (code, None, False)
    assert end.log_tail == "last words without a newline"
    assert [event.event for event in events] == ["started", "phase"]


@pytest.mark.case("A21", "A36")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGBUS, signal.SIGSEGV])
def test_a_signal_nobody_of_ours_sent_is_told_as_such(launcher: Launcher, tmp_path: Path, number: int) -> None:
    end, _ = run(launcher, tmp_path, "send_self", number=int(number))

    assert (end.exit_code, end.signal, end.killed_by_us, end.kill_reason) == (None, number, False, None)


@pytest.mark.case("A36")
@pytest.mark.parametrize(("do", "number"), [("segfault", signal.SIGSEGV), ("abort", signal.SIGABRT)])
def test_a_crash_leaves_its_stack_in_the_log_and_the_next_run_works(
    launcher: Launcher, tmp_path: Path, do: str, number: int
) -> None:
    end, _ = run(launcher, tmp_path, do)

    assert end.signal == number
    assert "tests_misbehaving.py" in end.log_tail
    assert run(launcher, tmp_path, "nothing")[0].exit_code == 1


@pytest.mark.case("A21")
@pytest.mark.parametrize("reason", ["trial_time", "dominated"])
def test_our_own_kill_is_remembered_with_its_reason(launcher: Launcher, tmp_path: Path, reason: str) -> None:
    process = launcher.start(make_request("sleep"), tmp_path / "log")
    poll_until(process, lambda: "sleeping" in (tmp_path / "log").read_text(), "it sleeps")
    process.kill(reason)
    process.kill("too late")
    end, _ = finish(process)

    assert (end.signal, end.killed_by_us, end.kill_reason) == (signal.SIGKILL, True, reason)
    process.kill("after its end")
    assert process.ended == end


def test_a_kill_that_comes_after_the_end_is_not_ours(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start(make_request("send_self", number=9), tmp_path / "log")
    wait_for(lambda: not lives(process.pid), "it is dead")
    process.kill("trial_time")
    end, _ = finish(process)

    assert (end.signal, end.killed_by_us, end.kill_reason) == (signal.SIGKILL, False, None)


@pytest.mark.case("E04")
def test_a_run_that_hangs_before_its_first_step_can_be_ended_at_any_time(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start(make_request("sleep"), tmp_path / "log")
    os.kill(process.pid, signal.SIGSTOP)
    process.stop("dominated")
    process.kill("trial_time")
    end, _ = finish(process)

    assert (end.signal, end.killed_by_us, end.kill_reason) == (signal.SIGKILL, True, "dominated")


def test_python_exit_statuses(launcher: Launcher, tmp_path: Path) -> None:
    silent, events = run(launcher, tmp_path, "exit_python", code=0)
    assert silent.exit_code == 0
    assert not {"failure", "finished"} & {event.event for event in events}

    told, events = run(launcher, tmp_path, "exit_python", code=3)
    assert told.exit_code == 3
    assert chain(events)[0]["cls"] == "SystemExit"


@pytest.mark.case("D03")
def test_a_failure_tells_its_whole_chain_outermost_first(launcher: Launcher, tmp_path: Path) -> None:
    end, events = run(launcher, tmp_path, "raise_chain", text="No space left")

    assert end.exit_code == 1
    assert failure(events).fields["phase"] == "build"
    told = chain(events)
    assert [record["cls"] for record in told] == ["tests_misbehaving.Recovered", "ValueError", "OSError"]
    assert told[0]["bases"] == ["RuntimeError", "Exception", "BaseException"]
    assert told[2]["text"] == "No space left"
    assert "in raise_chain" in failure(events).fields["traceback"]


def test_a_group_tells_its_members(launcher: Launcher, tmp_path: Path) -> None:
    _, events = run(launcher, tmp_path, "raise_group")

    assert [record["cls"] for record in chain(events)] == ["ExceptionGroup", "KeyError", "MemoryError"]


def test_a_text_of_five_megabytes_with_bytes_no_store_takes_is_cut_and_cleaned(
    launcher: Launcher, tmp_path: Path
) -> None:
    end, events = run(launcher, tmp_path, "raise_text", megabytes=5)

    text = chain(events)[0]["text"]
    assert text.startswith("start\N{REPLACEMENT CHARACTER}")
    assert text.endswith("xend")
    assert len(text) < 100_000
    assert "\0" not in text
    assert end.broken_lines == 0


def test_an_exception_without_a_readable_text_is_still_told(launcher: Launcher, tmp_path: Path) -> None:
    _, events = run(launcher, tmp_path, "raise_unreadable")

    assert chain(events)[0]["text"] == "(its text cannot be read: TypeError)"


def test_a_run_out_of_memory_can_still_tell(launcher: Launcher, tmp_path: Path) -> None:
    _, events = run(launcher, tmp_path, "memory_error")

    assert chain(events)[0]["cls"] == "MemoryError"


def test_an_unknown_purpose_is_a_clear_failure(launcher: Launcher, tmp_path: Path) -> None:
    asked = RunRequest(run=str(uuid.uuid4()), purpose="unheard", objective=make_request("nothing").objective)
    _, events = finish(launcher.start(asked, tmp_path / "log"))

    assert "cannot run purpose 'unheard'" in chain(events)[0]["text"]


def test_dirty_output_is_kept_readable(launcher: Launcher, tmp_path: Path) -> None:
    end, _ = run(launcher, tmp_path, "dirty", megabytes=5)

    assert end.log_head.startswith("HEAD \ufffd \ufffd\ufffd red\n 10%\n 20%\n")
    assert end.log_tail.endswith("(a warning only)\nTAIL\n")
    assert len(end.log_head) + len(end.log_tail) < 200_000


def test_output_without_end_does_not_fill_the_disk(launcher: Launcher, tmp_path: Path) -> None:
    end, _ = run(launcher, tmp_path, "flood", megabytes=200)

    assert end.log_tail.endswith("FLOOD OVER\n")
    assert end.log_head.startswith("yyy")
    assert (tmp_path / "log").stat().st_size < 150 << 20
