"""The worker's side of pruning: which steps count, when the child is asked to stop, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.trial.outcome import Ending, Verdict
from objectives.trial.protocol import Event
from tuner.search.noise import Spread
from tuner.search.pruning import FrontPoint, PruningRule
from tuner.work.dominance import DominanceWatch
from tuner.work.runner import RunEnd

RULE = PruningRule(
    front=[FrontPoint(throughput_low=100.0, peak_bytes=50)],
    spread=Spread(relative=0.02, freedom=20.0),
    window_seconds=4.0,
    unit="samples_per_second",
)


class Child:
    """Sends events with their times."""

    def __init__(self, watch: DominanceWatch) -> None:
        self._watch, self._now = watch, 0.0

    def send(self, event: Any, **fields: Any) -> str | None:
        return self._watch.watch(Event(event=event, seq=0, monotonic_seconds=self._now, fields=fields))

    def steps(self, count: int, seconds: float, units: float = 10.0, **more: Any) -> list[str | None]:
        said = []
        for _ in range(count):
            self._now += seconds
            said.append(self.send("step", kind="optimizer", seconds=seconds, units=units, **more))
        return said

    def until_loaded(self, peak: int | None = 60) -> Child:
        self.send("phase", phase="worst_case")
        self.steps(2, 30.0)
        if peak is not None:
            self.send("memory", peak_memory_bytes=peak)
        self.send("phase", phase="load")
        self.send("phase", phase="warm_up")
        return self


def end(outcome: str = "completed", **measurement: Any) -> RunEnd:
    return RunEnd(
        verdict=Verdict(outcome=outcome),  # type: ignore[arg-type]
        ending=Ending(),
        measurement=measurement,
        memory={"peak_memory_bytes": 60},
    )


def stopped_watch() -> DominanceWatch:
    watch = DominanceWatch(rule=RULE)
    said = Child(watch).until_loaded().steps(20, 0.5)  # 20 units per second against 100
    assert [each for each in said if each] == ["dominated"]
    return watch


def test_a_slow_run_is_asked_to_stop_once() -> None:
    watch = stopped_watch()
    assert watch.bound is not None
    assert 20.0 < watch.bound < 100.0


@pytest.mark.parametrize(("peak", "seconds"), [(40, 0.5), (None, 0.5), (60, 0.1)])
def test_less_memory_unknown_memory_and_enough_speed_go_on(peak: int | None, seconds: float) -> None:
    assert not any(Child(DominanceWatch(rule=RULE)).until_loaded(peak).steps(40, seconds))


def test_cold_steps_alone_stop_only_what_is_hopeless() -> None:
    child = Child(DominanceWatch(rule=RULE)).until_loaded()
    assert child.steps(2, 0.24) == [None, None]
    assert not any(child.steps(60, 0.09))
    assert Child(DominanceWatch(rule=RULE)).until_loaded().steps(1, 10.0) == ["dominated"]


def test_what_a_stopped_run_leaves_is_its_bound_and_its_true_peak() -> None:
    watch = stopped_watch()
    for verdict, told in (("completed", {"stop_reason": "dominated", "throughput": 20.0}), ("pruned", {})):
        kept = watch.judge(end(verdict, **told, relative_standard_error=0.1))
        assert (kept.verdict.outcome, kept.verdict.cause) == ("pruned", "dominated")
        assert kept.measurement["throughput"] == watch.bound
        assert kept.measurement["throughput_seen"] == pytest.approx(20.0)
        assert kept.measurement["throughput_unit"] == "samples_per_second"
        assert kept.measurement["memory"]["peak_memory_bytes"] == 60
        assert kept.measurement["relative_standard_error"] is None
        assert kept.measurement["step_seconds"][0] == 0.5


@pytest.mark.parametrize(
    "other", [end(throughput=20.0), end("crashed"), end("device_oom"), end("completed", stop_reason="cancelled")]
)
def test_an_end_of_its_own_stays(other: RunEnd) -> None:
    assert stopped_watch().judge(other) is other


def test_a_run_that_was_not_asked_to_stop_keeps_its_end() -> None:
    watch = DominanceWatch(rule=RULE)
    own = end(throughput=20.0, stop_reason="dominated")
    assert watch.judge(own) is own
