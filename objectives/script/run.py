"""One measured run of a script, as its leader lives it: fill the template, start, follow, read back, measure, end.

The leader is a small process that imports no torch. To the worker it is the run's child: its channel, mark and end.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveError
from objectives.measure.hardware import Conditions, describe
from objectives.script import endings
from objectives.script.comparing import differences, read_config
from objectives.script.environment import script_environment
from objectives.script.following import Following
from objectives.script.grammar import GrammarError
from objectives.script.ledger import FEWEST_STEPS, Ledger, Merged
from objectives.script.listening import Listening
from objectives.script.measuring import foreign_bytes, measurement, memory_over_ranks
from objectives.script.run_folder import run_folder
from objectives.script.template import Filled, Template
from objectives.trial.outcome import Ending, ExceptionRecord, blame

if TYPE_CHECKING:
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import Phase, RunRequest

LARGEST_SKIPPED_SHARE = 0.2
"""More skipped updates than this in the window and the configuration does not train."""
NEAR_CAP_BYTES = 40 << 20
"""A process refused at its cap stops this short of it."""


def run(request: RunRequest, channel: Channel) -> None:
    """Runs the script for ``request.config`` and sends its measurement. What fails is told as the script's failure."""
    with run_folder() as folder:
        status = Leader(request, channel, folder).lead()
    if status is not None:
        end_as(status)


class Leader:
    """The run while it goes."""

    def __init__(self, request: RunRequest, channel: Channel, folder: Path) -> None:
        self._request, self._channel, self._folder = request, channel, folder
        self._begun = time.monotonic()
        self._template = Template.of(request.objective.settings)
        self._config = TrainingConfig.from_mapping(request.config)
        self._ledger = Ledger(
            world_size=request.world_size, plan=request.window, micro_batch_size=self._config.micro_batch_size
        )
        self._differences: list[dict[str, object]] | None = None
        self._first_step_at: float | None = None
        self._conditions: Conditions | None = None
        self._status = 0

    def lead(self) -> int | None:
        """The whole run. Returns the status to end with where the script ended without a result, else None."""
        listening = Listening()
        try:
            following = self._start(listening)
            try:
                following.follow(lambda: self._channel.stop_requested, self._refused)
            finally:
                self._status = following.end()
        finally:
            listening.close()
        return self._judge(following)

    def _start(self, listening: Listening) -> Following:
        filled = self._fill()
        if filled.file is not None:
            (self._folder / filled.file[0]).write_text(filled.file[1], encoding="utf-8")
        request = self._request
        limit = request.memory_limit_bytes if request.cap_memory else None
        wish = {
            "line": listening.address,
            "device": request.device,
            "limit_bytes": limit,
            "foreign_bytes": foreign_bytes(request.device_uuid),
        }
        self._channel.phase("import")
        return Following(
            filled.arguments,
            script_environment(os.environ, wish, filled.environment),
            run=request.run,
            listening=listening,
            ledger=self._ledger,
            on_steps=self._tell,
        )

    def _fill(self) -> Filled:
        request = self._request
        try:
            return self._template.fill(
                self._config,
                global_batch_size=request.global_batch_size,
                seed=request.seed,
                folder=Path(request.objective.folder),
                run_folder=self._folder,
            )
        except GrammarError as error:
            raise ObjectiveError(str(error)) from error

    def _refused(self) -> bool:
        """Looks at the ledger between two words: phases, what was read back, whether it is what was asked."""
        ledger = self._ledger
        if ledger.began:
            self._enter("build")
        if ledger.last_step:
            self._enter("worst_case")
        if self._differences is None and (ledger.all_applied or self._too_few_ranks()):
            self._read_back()
        if ledger.warm_up and not self._differences:
            self._enter("warm_up")
        if ledger.window and not self._differences:
            self._enter("measure")
        return bool(self._differences)

    def _too_few_ranks(self) -> bool:
        """A rank has read back its configuration and knows of fewer ranks than the batch was divided for."""
        known = [rank for rank in self._ledger.trained if rank.applied is not None]
        return bool(known) and self._ledger.world_seen != self._request.world_size

    def _enter(self, phase: Phase) -> None:
        order: tuple[Phase, ...] = ("import", "build", "worst_case", "load", "warm_up", "measure")
        if order.index(phase) > order.index(self._channel.last_phase):
            self._channel.phase(phase)
            if phase == "measure":
                self._conditions = Conditions("cpu")

    def _read_back(self) -> None:
        ledger = self._ledger
        found: Mapping[str, Any] = next((r.applied for r in ledger.trained if r.applied is not None), {})
        carried = self._template.knobs()
        self._differences = [
            each
            for rank in ledger.trained
            if rank.applied is not None
            for each in differences(
                self._config,
                carried,
                rank.applied,
                ranks=self._request.world_size,
                ranks_found=ledger.world_seen,
            )
        ]
        reading = memory_over_ranks(ledger.trained, self._request.device)
        limit = self._request.memory_limit_bytes
        share = None if not limit or reading.peak_memory_bytes is None else reading.peak_memory_bytes / limit
        self._channel.send("memory", **reading.to_mapping(), used_share=share)
        self._channel.send("applied", config=read_config(found), differences=self._differences)

    def _tell(self, steps: list[Merged]) -> None:
        self._first_step_at = self._first_step_at or time.monotonic()
        for step in steps:
            self._channel.send(
                "step",
                kind="optimizer",
                seconds=step.seconds,
                host_wait_seconds=step.wait_seconds,
                units=step.samples,
                skipped=not step.applied,
                loss=self._ledger.loss[-1] if self._ledger.loss else None,
                micro_steps=step.micro_steps,
            )

    # The end

    def _judge(self, following: Following) -> int | None:
        ledger = self._ledger
        if self._differences:
            raise endings.not_applied(self._differences)
        if not ledger.complete and following.failures:
            return self._fail(following)
        if not ledger.complete and self._status == 0:
            ledger.finish()
            self._require_steps()
        if not ledger.measured and not self._channel.stop_requested:
            self._channel.send("failure", phase=self._channel.last_phase, chain=[], **self._silent(following))
            return self._status or 1
        if ledger.measured:
            self._require_finite()
            self._send_measurement()
        self._channel.phase("done")
        return None

    def _require_steps(self) -> None:
        """A script that ended well: it needs steps, and enough of them."""
        ledger = self._ledger
        if not ledger.trained:
            raise endings.NoStep(endings.UNSEEN)
        if self._differences is None:
            self._refused()
        if self._differences:
            raise endings.not_applied(self._differences)
        if len(ledger.window) < FEWEST_STEPS:
            raise endings.too_few(ledger.last_step, 2 + 2 * FEWEST_STEPS)

    def _require_finite(self) -> None:
        """Updates are applied and their loss is a number, or this configuration cannot train the model."""
        ledger = self._ledger
        skipped = sum(not step.applied for step in ledger.window)
        if skipped > LARGEST_SKIPPED_SHARE * len(ledger.window):
            raise FloatingPointError(f"{skipped} of {len(ledger.window)} updates were skipped by the loss scaler")
        if ledger.loss and not math.isfinite(ledger.loss[-1]) and all(step.applied for step in ledger.window):
            raise FloatingPointError(f"the loss is {ledger.loss[-1]} in steps that were applied")

    def _fail(self, following: Following) -> int:
        """The earliest failure of a rank's own names the run; those who only lost their peer are echoes."""
        vanished = [rank for rank in self._ledger.ranks.values() if rank.gone and rank.failure is None]
        known = {pid: _ending(said, at, self._request.device) for pid, (at, said) in following.failures.items()}
        first = blame(known)
        pid = next(pid for pid, ending in known.items() if ending is first)
        said = following.failures[pid][1]
        if vanished and _is_echo(first, known):
            self._channel.send("failure", phase=self._channel.last_phase, chain=[], **self._silent(following))
            return 1
        self._channel.send("failure", phase=self._channel.last_phase, **said)
        return 1

    def _silent(self, following: Following) -> dict[str, Any]:
        """What is known of a process that said nothing: its memory, seen from outside, against the cap."""
        limit, seen = self._request.memory_limit_bytes, following.peak_anonymous_bytes
        capped = self._request.cap_memory and limit is not None and not self._ledger.all_applied
        share = None if not capped or seen is None or not limit else (seen + NEAR_CAP_BYTES) / limit
        steps = sum(step.applied for step in (*self._ledger.worst_case, *self._ledger.warm_up, *self._ledger.window))
        return {"cap_set": capped, "memory_used_share": share, "applied_steps": steps or None}

    def _send_measurement(self) -> None:
        first = self._first_step_at or time.monotonic()
        conditions = self._conditions or Conditions("cpu")
        self._channel.send(
            "measurement",
            **measurement(self._ledger, self._request),
            setup_seconds=first - self._begun,
            stop_reason=self._channel.stop_reason,
            conditions=conditions.to_mapping(),
            hardware=self._hardware(),
        )

    def _hardware(self) -> Mapping[str, Any]:
        """The device by the script's own word; a CUDA device's further facts would cost this process a context."""
        said = self._ledger.trained[0].device
        known = describe("cpu") | {"threads": self._request.threads}
        known["versions"] = dict(known["versions"]) | {"torch": said.get("torch")}
        if said.get("kind") != "cuda":
            return known
        return known | {"kind": "cuda", "name": said.get("name"), "uuid": self._request.device_uuid}


def _ending(said: Mapping[str, object], at: float, device: str) -> Ending:
    chain: Any = said.get("chain", ())
    records = (
        ExceptionRecord(cls=str(r["cls"]), bases=tuple(map(str, r["bases"])), text=str(r["text"])) for r in chain
    )
    return Ending(exit_code=1, chain=tuple(records), device=device, ended_seconds=at)


def _is_echo(first: Ending, known: Mapping[int, Ending]) -> bool:
    """Whether the blamed failure only says that another rank is gone: a silent death beside it is the cause."""
    silent = Ending(exit_code=1, chain=(), ended_seconds=float("inf"))
    return blame({**known, -1: silent}) is silent and first is not silent


def end_as(status: int) -> NoReturn:
    """Ends this process as the script has ended, so that whoever waits for it sees the same."""
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 1)
