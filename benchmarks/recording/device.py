"""Records a grid on one device over ``objectives/`` alone, and writes the same tables.

    python -m benchmarks.recording.device GRID [--device cuda|cpu] [--journal FILE] [--out FOLDER] [--minutes N]

For GPU machines without Optuna, SQLAlchemy or pydantic: nothing here imports them. Every run is appended to the journal
when it ends; the same command goes on where the last one stopped, on this machine or, with the journal, on another of
the same kind. The tables are written when the grid is complete.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.recording.device_grids import DEVICE_GRIDS, DeviceGrid, device_grid_named
from benchmarks.recording.journal import Entry, Journal, done_runs, rows_of
from benchmarks.recording.plan import REPEATS, Plan, Todo, next_run
from benchmarks.recording.tables import write_tables
from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import environment, facts_from_mapping
from objectives.measure.hardware import versions
from objectives.preload import preload_modules
from objectives.trial.outcome import Verdict, judge_measurement, should_retry
from objectives.trial.protocol import Purpose, RunRequest, WindowPlan
from tuner.errors import MachineError
from tuner.work.lane import Device, Lane, choose_devices, new_run_id
from tuner.work.runner import Deadlines, RunEnd, unable

TABLES = Path(__file__).parent.parent / "tables"
DEADLINES = Deadlines(trial_seconds=300, compile_seconds=600)
PREPARE = Deadlines(trial_seconds=3600, compile_seconds=3600)
NOT_ITS_OWN = ("cancelled", "infra")
"""Ends that say nothing about the configuration: it is run again."""
MOST_LOST = 5
"""So many runs in a row that the machine failed end the sitting."""


class RecordingError(RuntimeError):
    """The recording cannot go on; the message says why."""


@dataclass(kw_only=True)
class Sitting:
    """One process recording one grid.

    Attributes:
        folder: Locks, logs, caches.
        ends_at: ``time.monotonic()`` after which no run is started; None for no end.
    """

    grid: DeviceGrid
    device: Device
    journal: Journal
    folder: Path
    say: Callable[[str], None]
    repeats: int = REPEATS
    ends_at: float | None = None
    warm: bool = False
    stopped: bool = False
    lane: Lane = field(init=False)
    reference: ObjectiveReference = field(init=False)

    def __post_init__(self) -> None:
        """Opens the lane; :meth:`close` ends it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.reference = ObjectiveReference(
            kind=self.grid.kind, settings=dict(self.grid.settings), folder=str(self.folder),
            cache=str(self.folder / "cache"),
        )  # fmt: skip
        self.lane = Lane(
            self.device, preload=preload_modules(self.reference), path=str(self.folder), folder=self.folder
        )

    def close(self) -> None:
        """Ends the lane's processes."""
        self.lane.close()

    @property
    def over(self) -> bool:
        """Whether no further run is started."""
        return self.stopped or (self.ends_at is not None and time.monotonic() > self.ends_at)

    def request(self, purpose: Purpose, **values: Any) -> RunRequest:
        """A request for this device."""
        pinned = {"CUDA_VISIBLE_DEVICES": self.device.uuid} if self.device.kind == "cuda" else {}
        config = values.get("config")
        knobs = environment(TrainingConfig.from_mapping(config)) if config else {}
        return RunRequest(
            run=new_run_id(), purpose=purpose, objective=self.reference, device=self.device.kind,
            device_uuid=self.device.uuid, threads=self.device.threads, environment={**pinned, **knobs}, **values,
        )  # fmt: skip

    def run(self, request: RunRequest, deadlines: Deadlines) -> RunEnd:
        """Runs one child to its end; a machine that cannot run it is an ``infra`` outcome."""
        begun = time.monotonic()
        try:
            return self.lane.run(request, deadlines, environment={}, cancelled=lambda: self.stopped)
        except MachineError as error:
            return unable(error, time.monotonic() - begun)


def record(sitting: Sitting, out: Path) -> list[Path]:
    """Records what is missing, as far as the time reaches, and writes the tables of a complete grid.

    Returns:
        The tables' files; none when the grid is not complete.

    Raises:
        RecordingError: The objective cannot be prepared here, the journal is another device's, or runs keep being lost.
    """
    configs = _prepared(sitting)
    lost = 0
    while not sitting.over:
        done = done_runs(sitting.journal.of_kind("run"))
        plan = Plan(keys=list(configs), done=done, caps=sitting.grid.caps, repeats=sitting.repeats)
        todo = next_run(plan)
        if todo is None:
            return _write(sitting, configs, out)
        sitting.say(f"{sitting.grid.name} {todo.why}: {configs[todo.key].to_mapping()}")
        lost = 0 if _perform(sitting, configs[todo.key], todo) else lost + 1
        if lost >= MOST_LOST:
            raise RecordingError(f"{lost} runs in a row were lost to the machine; each one's last words are above")
    return []


def _prepared(sitting: Sitting) -> dict[str, TrainingConfig]:
    """Prepares the data in a child, learns what can run here, predicts every peak. Returns the configurations."""
    known = sitting.journal.of_kind("facts")
    if known and known[0]["device"] != sitting.device.name:
        raise RecordingError(
            f"{sitting.journal.path} was begun on {known[0]['device']}; this is {sitting.device.name}: "
            "use another journal"
        )
    sitting.say(f"{sitting.grid.name}: preparing the data, asking what runs here")
    asked = {"knobs": {name: list(values) for name, values in sitting.grid.search.items()}, "prepare": True}
    end = sitting.run(sitting.request("capability", answer={**asked, "base": dict(sitting.grid.baseline)}), PREPARE)
    if end.verdict.outcome != "completed":
        raise RecordingError(f"the objective cannot be prepared: {end.verdict} {end.evidence}")
    if not known:
        facts = [answer["facts"] for answer in end.answers if "facts" in answer][-1]
        sitting.journal.append({"kind": "facts", "device": sitting.device.name, "facts": facts})
    configs = sitting.grid.configs(facts_from_mapping(sitting.journal.of_kind("facts")[0]["facts"]))
    _predict(sitting, configs)
    return configs


def _predict(sitting: Sitting, configs: Mapping[str, TrainingConfig]) -> None:
    """Predicts what the journal has no prediction of; without a prediction the table leaves the field out."""
    known = {entry["key"] for entry in sitting.journal.of_kind("prediction")}
    missing = {key: config for key, config in configs.items() if key not in known}
    if not missing:
        return
    sitting.say(f"{sitting.grid.name}: predicting {len(missing)} peaks")
    asked = {"configs": [config.to_mapping() for config in missing.values()]}
    end = sitting.run(sitting.request("estimate", cap_memory=False, answer=asked), PREPARE)
    said = {str(answer["config"]): answer["prediction"].get("peak_memory_bytes") for answer in end.answers}
    for key, config in missing.items():
        peak = said.get(str(config.to_mapping()))
        sitting.journal.append({"kind": "prediction", "key": key, "peak_memory_bytes": peak})


def _perform(sitting: Sitting, config: TrainingConfig, todo: Todo) -> bool:
    """Makes one run, with its doubtful ends tried again, and writes it down. False when the machine lost it."""
    limit = todo.cap_bytes or int(sitting.device.total_memory_bytes * sitting.grid.memory_share)
    allowed, attempt = limit, 1
    while True:
        end = sitting.run(_search_request(sitting, config, todo, allowed), DEADLINES)
        sitting.warm = True
        verdict = _judged(end, sitting.device, limit if allowed > limit else None)
        retry = should_retry(verdict, attempt)
        if retry is None or retry.how == "fewer_workers" or sitting.over:
            break
        allowed = int(limit * retry.cap_factor) if retry.how == "raised_cap" else limit
        attempt += 1
    if verdict.outcome in NOT_ITS_OWN:
        sitting.say(f"lost: {verdict.outcome}, {verdict.cause}: {end.evidence.get('log_tail', '')[-500:]}")
        return False
    sitting.journal.append(_entry(end, verdict, config, todo))
    return True


def _search_request(sitting: Sitting, config: TrainingConfig, todo: Todo, limit: int) -> RunRequest:
    grid = sitting.grid
    return sitting.request(
        "repeat" if todo.repeat else "search",
        config=config.to_mapping(),
        global_batch_size=grid.global_batch_size,
        memory_limit_bytes=limit,
        window=WindowPlan(
            min_seconds=grid.window_seconds, max_seconds=grid.window_seconds, target_half_width=0,
            warm_load_seconds=0.0 if sitting.warm else grid.warm_load_seconds,
        ),
    )  # fmt: skip


def _judged(end: RunEnd, device: Device, cap: int | None) -> Verdict:
    """The verdict after a look at the measurement, as a study's worker takes it."""
    if end.verdict.outcome != "completed" or not end.measurement:
        return end.verdict
    said = end.measurement
    blocks, memory = int(said.get("blocks") or 0), said.get("memory") or {}
    return judge_measurement(
        peak_bytes=memory.get("peak_memory_bytes"),
        capacity_bytes=device.total_memory_bytes,
        cap_bytes=cap,
        swapped_bytes=int(memory.get("swap_bytes") or 0),
        applied_steps=end.ending.applied_steps,
        skipped_share=int(said.get("skipped_steps") or 0) / blocks if blocks else 0.0,
    )


def _entry(end: RunEnd, verdict: Verdict, config: TrainingConfig, todo: Todo) -> Entry:
    measured = verdict.outcome == "completed"
    said = {name: value for name, value in end.measurement.items() if name != "hardware"}
    return {
        "kind": "run",
        "key": todo.key,
        "config": config.to_mapping(),
        "cap_bytes": todo.cap_bytes,
        "purpose": "repeat" if todo.repeat else "search",
        "outcome": verdict.outcome,
        "cause": verdict.cause,
        "throughput": said.get("throughput") if measured else None,
        "peak_memory_bytes": said["memory"]["peak_memory_bytes"] if measured else None,
        "seconds": end.seconds,
        "measurement": said,
        "text": verdict.text,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write(sitting: Sitting, configs: Mapping[str, TrainingConfig], out: Path) -> list[Path]:
    runs = sitting.journal.of_kind("run")
    predicted = {entry["key"]: entry["peak_memory_bytes"] for entry in sitting.journal.of_kind("prediction")}
    rows = rows_of([run for run in runs if run["cap_bytes"] is None], predicted)
    real = {cap: rows_of([run for run in runs if run["cap_bytes"] == cap], predicted) for cap in sitting.grid.caps}
    head = {
        "table": sitting.grid.name,
        "device": sitting.device.name,
        "throughput_unit": next(run["measurement"]["throughput_unit"] for run in runs if run["throughput"]),
        "global_batch_size": sitting.grid.global_batch_size,
        "memory_limit_bytes": int(sitting.device.total_memory_bytes * sitting.grid.memory_share),
        "baseline": next(iter(configs.values())).to_mapping(),
        "versions": versions(),
        "recorded": runs[-1]["at"][:10],
        "seconds": sum(run["seconds"] for run in runs),
    }
    return write_tables(out, head, [rows[key] for key in configs if key in rows], real)


def main() -> int:
    """Reads the arguments and records. Exit status 0 when the tables are written, 1 when there is more to do."""
    arguments = _arguments()
    grid = device_grid_named(arguments.grid)
    sitting = Sitting(
        grid=grid,
        device=choose_devices(arguments.device)[0],
        journal=Journal(arguments.journal or arguments.data / f"{grid.name}.journal.jsonl"),
        folder=arguments.data.absolute() / "work",
        say=_say,
        ends_at=None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes,
    )

    def stop(*_signal: object) -> None:
        sitting.stopped = True

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        written = record(sitting, arguments.out)
    finally:
        sitting.close()
    for path in written:
        _say(f"wrote {path}")
    return 0 if written else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", choices=[grid.name for grid in DEVICE_GRIDS])
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="cuda")
    parser.add_argument("--journal", type=Path, help="default: GRID.journal.jsonl in the data folder")
    parser.add_argument("--data", type=Path, default=Path("build/tables"), help="journal, caches, logs")
    parser.add_argument("--out", type=Path, default=TABLES / "gpu", help="where the tables go")
    parser.add_argument("--minutes", type=float, help="start no run after so many minutes")
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
