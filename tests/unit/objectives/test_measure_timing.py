"""Times close with one wait for the device, whatever it still had to do."""

import time

import pytest

from objectives.measure.timing import HostClock, Timer, open_timer


class LateDevice:
    """An asynchronous device: calls return at once, work is done when its queue comes to it, ``wait`` waits for all."""

    def __init__(self) -> None:
        self.done_at = 0.0
        self.waits = 0

    def work(self, seconds: float) -> None:
        self.done_at = max(self.done_at, time.perf_counter()) + seconds

    def stamp(self) -> list[float]:
        self.done_at = max(self.done_at, time.perf_counter())
        return [self.done_at]

    def wait(self) -> None:
        self.waits += 1
        time.sleep(max(0.0, self.done_at - time.perf_counter()))

    def seconds(self, earlier: list[float], later: list[float]) -> float:
        assert later[0] <= time.perf_counter() + 1e-4, "an event is read before the device has come to it"
        return later[0] - earlier[0]


@pytest.mark.case("H01")
def test_a_block_holds_the_time_of_work_that_is_still_queued_when_the_host_is_done() -> None:
    device = LateDevice()
    timer = Timer(device)
    begun = time.perf_counter()
    timer.start()
    for seconds in (0.004, 0.008, 0.002):
        device.work(seconds)
        timer.mark()
    handed_over = time.perf_counter() - begun
    found = timer.resolve()
    wall = time.perf_counter() - begun
    assert handed_over < 0.004, "the host ran ahead"
    assert found == pytest.approx([0.004, 0.008, 0.002], abs=0.001)
    assert 0.014 <= sum(found) <= wall + 1e-3
    assert device.waits == 1


def test_what_lies_between_blocks_belongs_to_none() -> None:
    timer = open_timer("cpu")
    timer.start()
    timer.mark()
    timer.resolve()
    time.sleep(0.01)
    timer.start()
    timer.mark()
    assert timer.resolve()[0] < 0.005


def test_as_many_intervals_as_marks_after_a_start() -> None:
    timer = Timer(HostClock())
    timer.start()
    for _ in range(5):
        timer.mark()
    intervals = timer.resolve()
    assert len(intervals) == 5
    assert all(seconds >= 0 for seconds in intervals)
    assert timer.resolve() == []


def test_without_a_start_the_first_mark_begins() -> None:
    timer = open_timer("cpu")
    timer.mark()
    timer.mark()
    assert len(timer.resolve()) == 1
    timer.synchronize()
