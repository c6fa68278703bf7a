"""What a study runs next: baseline first, then proposals, and further windows that make its numbers true. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from storage.records import RunRecord, TrialRecord
from tuner.search.baseline import Baseline
from tuner.search.demotion import as_demoted, demoting_runs
from tuner.search.front import best_trial, is_feasible
from tuner.search.memory_order import frugality, outgrown
from tuner.search.noise import Intervals, intervals, overlaps
from tuner.search.samplers import Exhausted, Proposer
from tuner.search.space import EXACT_SIZE, Space
from tuner.search.stopping import SEARCH_SHARE, Stop, decide
from tuner.search.windows import DISTURBED, Readings, windows_of
from tuner.spec.model import StudySpec

BASELINE_EVERY = 5
"""Search runs between two windows of the baseline (drift control)."""

CONTENDER_EVERY = 5
"""Search runs between two further windows of contenders."""

CONTENDER_WINDOWS = 4
"""Windows a contender gets at most before the confirmation."""

FEWER_WORKERS = "fewer_workers"
"""Source of a trial that repeats a configuration which ran out of host memory, with fewer loader workers."""


@dataclass(frozen=True, kw_only=True)
class NextRun:
    """One run to start.

    Attributes:
        purpose: ``search`` (a new trial, or the next attempt of one) or ``repeat`` (a further window).
        config: What to run.
        trial_id: The existing trial; None for a new one, to be reserved with ``source``.
        source: Who proposed the new trial; the trial's own source otherwise.
        attempt: Number of this run among the trial's runs of that purpose.
        why: One short sentence for the log.
    """

    purpose: str
    config: TrainingConfig
    trial_id: int | None = None
    source: str = ""
    attempt: int = 1
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything the schedule looks at.

    Attributes:
        trials: All trials of the study.
        runs: All runs of the study.
        elapsed_seconds: Wall time spent on it, over all sessions.
        limit_bytes: What the peak may be at most; None for no limit.
        device_kind: ``cpu`` or ``cuda``.
        busy: Trials that a worker is running right now (of whatever purpose).
        readings: The windows of these runs, where they are known already; None looks.
        worked_out: What earlier histories of the study found for trials that have not changed since: saves their work,
            changes no answer. By trial id: the trial, and as its windows say it.
    """

    trials: Sequence[TrialRecord]
    runs: Sequence[RunRecord]
    elapsed_seconds: float = 0.0
    limit_bytes: int | None = None
    device_kind: str = "cpu"
    busy: frozenset[int] = field(default_factory=frozenset)
    readings: Readings | None = None
    worked_out: dict[int, tuple[TrialRecord, TrialRecord]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def intervals(self) -> Intervals:
        """The interval of every measured trial."""
        return intervals(self.runs, self.trials, self.device_kind, self.readings)

    @cached_property
    def finished(self) -> list[TrialRecord]:
        """Trials with an outcome, by number, throughput as the windows that count say it."""
        means, kept = self.intervals.means(), self.worked_out
        ended = [each for each in self.trials if each.outcome is not None]
        measured = [_measured(each, means, kept) if each.outcome == "completed" else each for each in ended]
        return sorted(measured, key=attrgetter("number"))

    @cached_property
    def standing(self) -> list[TrialRecord]:
        """As :attr:`finished`; a trial that failed in a later run ended as it did there: it is nobody's best."""
        return as_demoted(self.finished, demoting_runs(self.trials, self.runs, self.limit_bytes))

    @property
    def running(self) -> list[TrialRecord]:
        """Trials without an outcome."""
        return [each for each in self.trials if each.outcome is None]

    @cached_property
    def baseline(self) -> TrialRecord | None:
        """Trial 0; None before it is reserved."""
        return next((each for each in self.trials if each.number == 0), None)

    @cached_property
    def in_order(self) -> Sequence[RunRecord]:
        """The runs, earliest first."""
        return sorted(self.runs, key=attrgetter("started_at"))

    def runs_of(self, trial_id: int, purpose: str) -> list[RunRecord]:
        """The trial's runs of one purpose, earliest first."""
        return [run for run in self._by_trial.get(trial_id, ()) if run.purpose == purpose]

    @cached_property
    def _by_trial(self) -> Mapping[int | None, list[RunRecord]]:
        found: dict[int | None, list[RunRecord]] = {}
        for run in self.in_order:
            found.setdefault(run.trial_id, []).append(run)
        return found


def _measured(
    trial: TrialRecord,
    means: Mapping[int, tuple[float, int]],
    kept: dict[int, tuple[TrialRecord, TrialRecord]],
) -> TrialRecord:
    """The trial with the mean of its windows; the one made before where nothing has changed."""
    known = means.get(trial.id)
    if known is None:
        return trial
    before = kept.get(trial.id)
    if before is not None and before[0] is trial and (before[1].throughput, before[1].windows) == known:
        return before[1]
    made = replace(trial, throughput=known[0], windows=known[1])
    kept[trial.id] = (trial, made)
    return made


def next_run(
    history: History, spec: StudySpec, space: Space, baseline: Baseline, proposer: Proposer
) -> NextRun | Stop | None:
    """The next run of the search, or its end.

    Returns:
        None when nothing can be decided before a running trial ends (trial 0 on another worker; the last free
        configurations are running elsewhere): ask again later.
    """
    if history.baseline is None:
        return NextRun(purpose="search", config=baseline.config, source="baseline", why="the baseline comes first")
    stop = _stop(history, spec, space)
    if stop is not None and (stop.failed or stop.kind == "time"):
        return stop
    if (pending := _pending(history)) is not None:
        return pending
    if history.baseline.outcome is None:
        return None
    if outgrown(history.baseline, history.limit_bytes):
        return _baseline_again(history.baseline, history)
    decided = stop or _in_time(_repeat(history), history, spec) or _new_trial(history, spec, space, proposer)
    if not isinstance(decided, Stop) or decided.failed:
        return decided
    return _in_time(_closing(history), history, spec) or decided


def _baseline_again(baseline: TrialRecord, history: History) -> NextRun:
    """Trial 0 ran out of memory under a smaller limit than today's: its next attempt."""
    return NextRun(
        purpose="search",
        config=TrainingConfig.from_mapping(baseline.config),
        trial_id=baseline.id,
        source=baseline.source,
        attempt=len(history.runs_of(baseline.id, "search")) + 1,
        why="the baseline ran out of memory under a smaller limit",
    )


def _in_time(repeat: NextRun | None, history: History, spec: StudySpec) -> NextRun | None:
    """A further window, unless the search's time would cut it short."""
    limit = spec.limits.time_seconds
    if repeat is None or repeat.trial_id is None or limit is None:
        return repeat
    took = [run.seconds for run in history.runs if run.trial_id == repeat.trial_id and run.outcome == "completed"]
    left = limit * SEARCH_SHARE - history.elapsed_seconds
    return repeat if left >= min(took, default=0.0) else None


def _new_trial(history: History, spec: StudySpec, space: Space, proposer: Proposer) -> NextRun | Stop | None:
    if (fewer := fewer_workers(history, space)) is not None:
        return NextRun(purpose="search", config=fewer, source=FEWER_WORKERS, why="again with fewer loader workers")
    proposed = proposer.propose(history.standing, history.running)
    if not isinstance(proposed, Exhausted):
        return NextRun(purpose="search", config=proposed, source=spec.sampler, why=f"proposed by {spec.sampler}")
    if history.running:
        return None
    return _stop(history, spec, space, exhausted=proposed)


def _stop(history: History, spec: StudySpec, space: Space, exhausted: Exhausted | None = None) -> Stop | None:
    small = space.combinations <= EXACT_SIZE and not any(each.outcome == "completed" for each in history.standing)
    return decide(
        [*history.standing, *history.running],
        spec,
        elapsed_seconds=history.elapsed_seconds,
        limit_bytes=history.limit_bytes,
        exhausted=exhausted,
        smallest=min(space.configs(), key=frugality, default=None) if small else None,
    )


def _pending(history: History) -> NextRun | None:
    """A trial that has neither outcome nor a run in progress: its worker was lost, or a person stopped it."""
    for trial in sorted(history.running, key=lambda each: each.number):
        mine = history.runs_of(trial.id, "search")
        if trial.id in history.busy or any(run.outcome is None for run in mine):
            continue
        return NextRun(
            purpose="search",
            config=TrainingConfig.from_mapping(trial.config),
            trial_id=trial.id,
            source=trial.source,
            attempt=len(mine) + 1,
            why="begun earlier and not finished",
        )
    return None


def _repeat(history: History) -> NextRun | None:
    """A further window, when one is due: of the baseline, or of the contender with the fewest."""
    baseline = next(each for each in history.standing if each.number == 0)
    if is_feasible(baseline, history.limit_bytes) and baseline.id not in history.busy:
        if _baseline_unsure(history, baseline):
            return _window(history, baseline, "the baseline's last windows differ: which one is right?")
        if _searches_since(history, baseline.id) >= BASELINE_EVERY:
            return _window(history, baseline, "the baseline again, against drift")
    due = _disturbed(history) or _contender(history, baseline.id)
    return None if due is None else _window(history, due, "a further window of a contender")


def _closing(history: History) -> NextRun | None:
    """Windows without which the search must not end: a second of the baseline, one that counts of each trial."""
    baseline = next(each for each in history.standing if each.number == 0)
    known = history.intervals.get(baseline.id)
    if known is None or baseline.id in history.busy or not is_feasible(baseline, history.limit_bytes):
        return None
    if (known.windows == 1 and not history.runs_of(baseline.id, "repeat")) or _baseline_unsure(history, baseline):
        return _window(history, baseline, "the baseline again, to know the drift")
    due = _disturbed(history)
    return None if due is None else _window(history, due, "it was measured while the machine was disturbed")


def _window(history: History, trial: TrialRecord, why: str) -> NextRun:
    return NextRun(
        purpose="repeat",
        config=TrainingConfig.from_mapping(trial.config),
        trial_id=trial.id,
        source=trial.source,
        attempt=len(history.runs_of(trial.id, "repeat")) + 1,
        why=why,
    )


def _baseline_unsure(history: History, baseline: TrialRecord) -> bool:
    """Whether the baseline's windows are two that differ far: a third tells which was disturbed."""
    repeats = history.runs_of(baseline.id, "repeat")
    if len(repeats) >= 3:
        return False
    own = windows_of(history.runs_of(baseline.id, "search") + repeats)
    mine = [window.log_throughput for window in own]
    return len(mine) == 2 and abs(mine[0] - mine[1]) > DISTURBED


def _searches_since(history: History, trial_id: int | None) -> int:
    """Ended search runs since the last window of that trial (None: of any trial but the baseline that was repeated)."""
    count = 0
    for run in reversed(history.in_order):
        if run.outcome is None or run.trial_id is None:
            continue
        baseline = history.baseline is not None and run.trial_id == history.baseline.id
        if run.trial_id == trial_id or (trial_id is None and run.purpose == "repeat" and not baseline):
            break
        count += run.purpose == "search"
    return count


def _disturbed(history: History) -> TrialRecord | None:
    """A trial all of whose windows were taken while the machine was disturbed: it gets one that counts."""
    ids = frozenset(history.intervals.disturbed())
    for trial in history.standing if ids else ():
        if trial.id not in ids or not is_feasible(trial, history.limit_bytes):
            continue
        if len(history.runs_of(trial.id, "repeat")) < 2:
            return None if trial.id in history.busy else trial
    return None


def _contender(history: History, baseline_id: int) -> TrialRecord | None:
    """The trial whose interval overlaps the best's and that has fewest windows, when one is due."""
    best = best_trial(history.standing, history.limit_bytes)
    if best is None or best.id not in history.intervals or _searches_since(history, None) < CONTENDER_EVERY:
        return None
    top = history.intervals[best.id]
    near = history.intervals.reaching(top.low)
    rivals = [
        each
        for each in history.standing
        if each.id in near
        and each.id not in history.busy | {baseline_id}
        and is_feasible(each, history.limit_bytes)
        and len(history.runs_of(each.id, "repeat")) + 1 < CONTENDER_WINDOWS
        and overlaps(history.intervals[each.id], top)
    ]
    return min(rivals, key=lambda each: (each.windows, -(each.throughput or 0.0)), default=None)


def fewer_workers(history: History, space: Space) -> TrainingConfig | None:
    """The configuration of a trial that ran out of host or shared memory, with fewer loader workers: once, if legal."""
    seen = {each.config_key for each in history.trials}
    choices = [int(value) for value in space.values.get("loader_workers", ())]
    for trial in history.finished:
        if trial.outcome not in ("host_oom", "shm") or trial.source == FEWER_WORKERS:
            continue
        fewer = [value for value in choices if value < int(trial.config.get("loader_workers", 0))]
        made = _with_workers(trial, max(fewer), space) if fewer else None
        if made is not None and config_key(made) not in seen:
            return made
    return None


def _with_workers(trial: TrialRecord, workers: int, space: Space) -> TrainingConfig | None:
    values = TrainingConfig.from_mapping(trial.config).knobs() | {"loader_workers": workers}
    try:
        return space.config({name: values[name] for name in space.values})
    except ValueError:
        return None
