"""What is handed to a training job, and what a format makes of it. Pure data; one truth for every format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from objectives.config import KNOB_NAMES, TrainingConfig, accumulation_steps, divisors
from objectives.knobs import knob
from tuner.errors import TightfitError

CAP_SHARE = 0.85
"""A limit below this share of the device is a cap on a larger card, not a headroom."""


class ExportRefused(TightfitError):
    """Nothing was written: the target cannot hold this configuration exactly, or there is none to hand over."""

    exit_status = 2


@dataclass(frozen=True, kw_only=True)
class Handover:
    """One measured configuration with everything that has to travel with it.

    Attributes:
        config: The configuration; its accumulation is for ``ranks``.
        ranks: Data-parallel ranks of the job.
        measured_ranks: Ranks of the trials.
        global_batch_size: Samples (or packed rows) per optimizer step over all ranks.
        global_batch_tokens: Real tokens per optimizer step that the spec asked for; None when it gave samples.
        device_kind: ``cpu`` or ``cuda``.
        throughput_interval: 95 % interval in ``throughput_unit``; None without one.
        confirmed: Whether the confirmation's long runs measured it.
        memory_limit_bytes: What the study allowed; None without a limit.
        total_memory_bytes: The device's memory; None when unknown.
        longest_tokens: Longest row of the data the trials saw, in tokens; None where rows have no length.
        threads: Threads of the trials' processes; None when unknown.
        environment: Process-start variables the spec gave every run.
        versions: Software of the trials by name; only what is known.
        max_grad_norm: Gradient clipping of the trials.
        own_optimizer: Whether the objective makes its own optimizer, so that the knob says nothing.
        adapters: The spec's ``lora`` keys; empty without adapters.
        remarks: What the choice itself has to say.
    """

    study: str
    trial: int
    config: TrainingConfig
    global_batch_size: int
    global_batch_tokens: int | None = None
    ranks: int = 1
    measured_ranks: int = 1
    objective: str = "causal_lm"
    device_kind: str = "cuda"
    device: str | None = None
    throughput: float | None = None
    throughput_unit: str | None = None
    throughput_interval: tuple[float, float] | None = None
    confirmed: bool = False
    peak_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    total_memory_bytes: int | None = None
    longest_tokens: int | None = None
    threads: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    max_grad_norm: float = 1.0
    own_optimizer: bool = False
    adapters: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Study and trial in one line, for a comment (a name may hold anything)."""
        return f"{' '.join(self.study.split())}, trial {self.trial}"

    @property
    def capped(self) -> bool:
        """Whether the trials ran under a memory cap on a larger card."""
        limit, total = self.memory_limit_bytes, self.total_memory_bytes
        return limit is not None and total is not None and limit < CAP_SHARE * total

    @property
    def headroom_bytes(self) -> int | None:
        """What the configuration leaves of the limit; None without both."""
        if self.memory_limit_bytes is None or self.peak_memory_bytes is None:
            return None
        return self.memory_limit_bytes - self.peak_memory_bytes


def for_ranks(handover: Handover, ranks: int) -> Handover:
    """The same configuration on so many ranks: accumulation is derived again, the global batch stays.

    Raises:
        ExportRefused: The product cannot be exact; the message names the sizes and world sizes that would do.
    """
    if ranks < 1:
        raise ExportRefused(f"a world size of {ranks} is no number of ranks: write 1 or more")
    total, micro = handover.global_batch_size, handover.config.micro_batch_size
    try:
        steps = accumulation_steps(global_batch_size=total, micro_batch_size=micro, ranks=ranks)
    except ValueError as error:
        raise ExportRefused(f"{error}; nothing was written. {_would_do(total, micro, ranks)}") from error
    measured = handover.config.accumulation_steps
    said = () if steps == measured else (_other_accumulation(measured, steps),)
    config = handover.config.with_values(accumulation_steps=steps)
    return replace(handover, ranks=ranks, config=config, remarks=(*handover.remarks, *said))


def _other_accumulation(measured: int, steps: int) -> str:
    return (
        f"Measured with accumulation {measured}, exported with {steps}: accumulation is not free of memory "
        "(gradients are kept, or kept unreduced, between micro-batches), so leave some room."
    )


def _would_do(total: int, micro: int, ranks: int) -> str:
    sizes = ", ".join(map(str, divisors(total // ranks))) if total % ranks == 0 else "none"
    worlds = ", ".join(map(str, divisors(total // micro))) if total % micro == 0 else "none"
    return (
        f"With {ranks} ranks and a global batch of {total} these micro-batches would do: {sizes}; "
        f"with micro-batch {micro} these world sizes would: {worlds}"
    )


def require_exact(handover: Handover) -> None:
    """The invariant of every export: micro-batch x accumulation x ranks is the global batch.

    Raises:
        ExportRefused: It is not.
    """
    config = handover.config
    found = config.micro_batch_size * config.accumulation_steps * handover.ranks
    if found != handover.global_batch_size:
        raise ExportRefused(
            f"{config.micro_batch_size} x {config.accumulation_steps} x {handover.ranks} ranks are {found} samples, "
            f"not the global batch of {handover.global_batch_size}; nothing was written. "
            f"{_would_do(handover.global_batch_size, config.micro_batch_size, handover.ranks)}"
        )


def refuse_half_on_cpu(handover: Handover, title: str) -> None:
    """Refuses ``fp16-mixed`` on a CPU for trainers that stop on it or put bfloat16 in its place.

    Raises:
        ExportRefused: It is that pair.
    """
    if handover.config.precision == "fp16-mixed" and handover.device_kind == "cpu":
        raise ExportRefused(
            f"{title} has no fp16-mixed on a CPU (it stops, or puts bfloat16 in its place): nothing was written. "
            "Pick a trial with another precision"
        )


@dataclass(frozen=True, kw_only=True)
class NotCarried:
    """A knob that the target's files cannot hold: why, and the lines of code that do it (empty: none can)."""

    knob: str
    value: Any
    why: str
    code: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Export:
    """What a format made of a handover.

    Attributes:
        files: Text by file name.
        values: The main file as plain data: what ``--diff`` compares with.
        carried: By knob, where its value stands.
        not_carried: Knobs the files cannot hold.
        notes: What a person has to know, in sentences.
        environment: Variables to set before the job starts.
    """

    files: Mapping[str, str]
    values: Mapping[str, Any] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    not_carried: tuple[NotCarried, ...] = ()
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Ledger:
    """Where each knob of one configuration went; every knob has to be told exactly once."""

    def __init__(self, config: TrainingConfig) -> None:
        self._values = config.knobs()
        self._idle = {name for name in KNOB_NAMES if not knob(name).acts(config)}
        self.carried: dict[str, str] = {}
        self.left: list[NotCarried] = []

    def put(self, where: str, *names: str) -> None:
        """These knobs stand there."""
        for name in names:
            self.carried[name] = where

    def leave(self, name: str, why: str, code: tuple[str, ...] = ()) -> None:
        """This knob does not stand in the files; one that does not act, or is at its default, needs not."""
        if name in self._idle:
            self.carried[name] = "does not act in this configuration"
        elif self._values[name] == knob(name).default:
            self.carried[name] = f"{_word(self._values[name])}: nothing to set, the plain default is what was measured"
        else:
            self.left.append(NotCarried(knob=name, value=self._values[name], why=why, code=code))

    def must(self, name: str, why: str, code: tuple[str, ...] = ()) -> None:
        """This knob does not stand in the files, and the target does something else by default."""
        self.left.append(NotCarried(knob=name, value=self._values[name], why=why, code=code))

    def untold(self) -> list[str]:
        """Knobs nobody told anything about."""
        told = {*self.carried, *(each.knob for each in self.left)}
        return [name for name in KNOB_NAMES if name not in told]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
