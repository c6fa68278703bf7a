"""One run per device, and the wait for its memory."""

import os
import subprocess
import sys
import threading
import time

import pytest

from tuner.work.device_lock import RETRY_SECONDS, DeviceBusyError, DeviceLock, wait_until_free

GIB = 1024**3


@pytest.mark.case("G19")
def test_two_workers_never_hold_one_device(tmp_path):
    first, second, waits = DeviceLock(tmp_path, "GPU-1/x"), DeviceLock(tmp_path, "GPU-1/x"), []
    with first:
        first.acquire()
        assert first.held
        os.truncate(first.path, 0)
        first.path.write_text("process 4711")
        with pytest.raises(DeviceBusyError, match="device GPU-1/x is still in use by a run of process 4711"):
            second.acquire(wait_seconds=0.0, on_wait=waits.append)
        DeviceLock(tmp_path, "GPU-2").acquire(wait_seconds=0.0)
    assert waits == ["device GPU-1/x is in use by a run of process 4711"]
    second.acquire(wait_seconds=0.0)
    second.release()
    second.release()
    assert not second.held


def test_a_run_of_ones_own_that_has_not_ended_is_not_told_as_a_strangers(tmp_path):
    first, second, waits = DeviceLock(tmp_path, "cpu"), DeviceLock(tmp_path, "cpu"), []
    with first, pytest.raises(DeviceBusyError, match="this process's own last run"):
        second.acquire(wait_seconds=0.0, on_wait=waits.append)
    assert waits == []


def test_a_wait_can_be_given_up(tmp_path):
    with DeviceLock(tmp_path, "cpu"):
        assert not DeviceLock(tmp_path, "cpu").acquire(cancelled=lambda: True)


@pytest.mark.case("G19")
def test_whoever_waits_comes_before_whoever_has_just_had_it(tmp_path):
    """Two users who each want it again at once take turns: none starves."""
    order = []

    def use(name):
        lock = DeviceLock(tmp_path, "cpu")
        for _ in range(4):
            lock.acquire()
            order.append(name)
            time.sleep(2.5 * RETRY_SECONDS)
            lock.release()

    users = [threading.Thread(target=use, args=(name,)) for name in "ab"]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert order in (list("abababab"), list("babababa"))


def test_a_lock_not_held_has_no_descriptor(tmp_path):
    with pytest.raises(ValueError, match="not held"):
        DeviceLock(tmp_path, "cpu").fileno()


@pytest.mark.case("G19")
def test_it_lives_as_long_as_the_last_process_that_holds_it(tmp_path):
    lock, other = DeviceLock(tmp_path, "cpu"), DeviceLock(tmp_path, "cpu")
    lock.acquire()
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[lock.fileno()]) as child:
        lock.release()
        with pytest.raises(DeviceBusyError):
            other.acquire(wait_seconds=0.0)
        assert child.stdin is not None
        child.stdin.write(b"\n")
    other.acquire(wait_seconds=0.0)
    other.release()


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def wait(used_at, **options):
    clock = Clock()
    return wait_until_free(lambda: used_at(clock.now), GIB, clock=clock, sleep=clock.sleep, **options)


@pytest.mark.case("D12")
def test_a_driver_that_frees_late_is_waited_for():
    release = wait(lambda now: 20 * GIB if now < 5 else GIB + 1)
    assert (release.free, release.used_bytes) == (True, GIB + 1)
    assert 5 <= release.waited_seconds < 5.5


@pytest.mark.case("D12")
def test_a_device_that_stays_full_is_busy():
    release = wait(lambda _now: 20 * GIB, limit_seconds=120)
    assert (release.free, release.used_bytes, release.waited_seconds) == (False, 20 * GIB, 120)


def test_an_unknown_use_says_nothing_against_it():
    assert wait(lambda _now: None).free
