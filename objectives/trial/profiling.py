"""The body of a ``profile`` run: some steps under a tool, and a summary a person can read. Never a measurement.

``torch`` keeps a trace for Perfetto, ``memory`` an allocator snapshot for PyTorch's viewer (CUDA), ``nsys`` and ``ncu``
only mark the steps: the tool has started this process and writes its own file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from objectives import knobs
from objectives.contract import load_objective
from objectives.measure.operators import attention_fallback, copy_bound, dearest, python_loops, shares
from objectives.trial.allocator_snapshot import recorded_history, summary_of_snapshot
from objectives.trial.batches import make_loader
from objectives.trial.module_ranges import ModuleRanges
from objectives.trial.peak_by_module import ModuleCounter, peak_of_step
from objectives.trial.profile_rows import DATA, FORWARD, OPTIMIZER, STEP, table_of
from objectives.trial.trainer import Trainer
from objectives.trial.training_loop import build, open_device
from objectives.trial.watching import Watcher

if TYPE_CHECKING:
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest
    from objectives.trial.setup import Setup

WARM_UPDATES, PROFILED_UPDATES = 2, 3
MOST_UPDATES, SHORT_SECONDS = 5, 0.1
"""Updates shorter than that are profiled more often."""
MOST_MICRO_STEPS = 4
"""Of one update, so many micro-steps are run: the others are like them."""
WATCHED_MICRO_STEPS = 2
TRACE, SNAPSHOT = "trace.json.gz", "memory_snapshot.pickle"


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"tool": "torch" | "memory" | "nsys" | "ncu", "folder": path}``.

    Sends one ``answer`` with the fields of :class:`tuner.doctor.evidence.Profiled`, and beside them ``waits``,
    ``phases`` (seconds), ``step_seconds``, ``operator_at_peak``, ``allocator`` and ``notes``.
    """
    channel.phase("import")
    tool, folder = str(request.answer["tool"]), Path(request.answer["folder"])
    device = open_device(request)
    objective = load_objective(request.objective)
    channel.phase("build")
    profiled = Profiled(build(request, device, objective.build(device, request.seed)), request)
    channel.phase("warm_up")
    profiled.updates(WARM_UPDATES)
    channel.phase("measure")
    found = {"torch": profiled.under_torch, "memory": profiled.memory}.get(tool, profiled.marked)(folder)
    channel.send("answer", tool=tool, **found, notes=profiled.notes)
    channel.phase("done")


class Profiled:
    """The steps of one configuration, to be run under a tool."""

    def __init__(self, setup: Setup, request: RunRequest) -> None:
        self._setup, self._config = setup, setup.config
        self._trainer = Trainer(setup, max_grad_norm=request.max_grad_norm)
        if setup.compile_options is not None:
            setup.model.compile(**setup.compile_options)
        self._micro_steps = min(setup.config.accumulation_steps, MOST_MICRO_STEPS)
        self._batches: Iterator[Any] = iter(make_loader(setup, steps_in_block=self._micro_steps))
        self.notes: list[str] = (
            [] if self._eager else ["compiled: modules and waits inside its graphs are not told apart"]
        )
        differences = knobs.differences(setup)
        self.notes += [f"{each['knob']}: asked {each['asked']}, found {each['found']}" for each in differences]

    @property
    def _eager(self) -> bool:
        return self._setup.compile_options is None

    @property
    def _on_device(self) -> bool:
        return self._setup.device.type == "cuda"

    def updates(self, count: int, *, nvtx: bool = False) -> None:
        """So many updates, each a named range."""
        for number in range(count):
            with record_function(STEP), _nvtx(f"tightfit step {number}", on=nvtx):
                self._update(nvtx=nvtx)
            self._synchronize()

    def _update(self, *, nvtx: bool) -> None:
        for _ in range(self._micro_steps):
            with record_function(DATA), _nvtx("data", on=nvtx):
                batch = self._trainer.place(next(self._batches))
            with _nvtx("micro-step", on=nvtx), self._named_forward():
                self._trainer.micro_step(batch)
        with record_function(OPTIMIZER), _nvtx("optimizer", on=nvtx):
            self._trainer.update()

    @contextmanager
    def _named_forward(self) -> Iterator[None]:
        """The loss, which holds the forward pass, is a named range meanwhile."""
        workload: Any = self._setup.workload
        original = workload.loss

        def loss(model: torch.nn.Module, batch: Any) -> Any:
            with record_function(FORWARD):
                return original(model, batch)

        workload.loss = loss
        try:
            yield
        finally:
            workload.loss = original

    def _synchronize(self) -> None:
        if self._on_device:
            torch.cuda.synchronize(self._setup.device)

    def _ranges(self, *, in_profile: bool) -> Any:
        return ModuleRanges(self._setup.model, in_profile=in_profile)

    # Tools

    def under_torch(self, folder: Path) -> dict[str, Any]:
        """torch.profiler's trace and what it says."""
        count = self._count()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_device else [])]
        watching = self._ranges(in_profile=True).watching() if self._eager else nullcontext()
        with watching, profile(activities=activities) as profiler:
            self.updates(count)
        profiler.export_chrome_trace(str(folder / TRACE))
        table = table_of(profiler.events() or (), on_device=self._on_device)
        loops = python_loops(table.rows, table.module_calls, table.module_seconds, table.step_seconds)
        looping = {each.where for each in loops}
        copying = [each for each in copy_bound(table.rows) if each.where not in looping]  # a loop's copies are its own
        accused = [*loops, *copying, *attention_fallback(table.rows, self._config.attention)]
        seen, waits = self._watched()
        return {
            "operators": dearest(table.rows),
            "shares": shares(table.rows, table.idle_share),
            "phases": dict(table.phase_seconds),
            "step_seconds": table.step_seconds / count,
            "findings": [each.to_mapping() for each in (*seen, *accused)],
            "waits": waits,
            "files": [TRACE],
            **self._peak(),
        }

    def _count(self) -> int:
        """More updates where they are short: the median step is then less the machine's."""
        begun = time.perf_counter()
        self.updates(1)
        return MOST_UPDATES if time.perf_counter() - begun < SHORT_SECONDS else PROFILED_UPDATES

    def _watched(self) -> tuple[Sequence[Any], list[dict[str, Any]]]:
        """Some micro-steps, operator by operator."""
        if not self._eager:
            return (), []
        ranges = self._ranges(in_profile=False)
        with ranges.watching(), Watcher(self._setup.device.type, lambda: str(ranges.current)) as watcher:
            for _ in range(WATCHED_MICRO_STEPS):
                self._trainer.micro_step(self._trainer.place(next(self._batches)))
        self._trainer.drop()
        steps = WATCHED_MICRO_STEPS
        return watcher.findings(steps, self._config.precision), watcher.waits(steps)

    def _peak(self) -> dict[str, Any]:
        """Memory at the peak of a worst-case step, by category and module."""
        if not self._eager:
            return {}
        ranges = self._ranges(in_profile=False)
        counter = ModuleCounter(self._setup.device.type, lambda: str(ranges.current))
        longest = self._setup.workload.longest(self._config.micro_batch_size)
        with ranges.watching():
            return peak_of_step(self._setup, self._trainer, longest, counter)

    def memory(self, folder: Path) -> dict[str, Any]:
        """Memory at the peak; on CUDA the allocator's history of some steps, too."""
        found = self._peak()
        if not self._on_device:
            self.notes.append("the allocator's snapshot is of CUDA's caching allocator: on a CPU there is none")
            return {**found, "files": []}
        with recorded_history(folder / SNAPSHOT) as snapshot:
            self.updates(PROFILED_UPDATES)
            longest = self._setup.workload.longest(self._config.micro_batch_size)
            self._trainer.micro_step(self._trainer.place(longest))
            self._trainer.drop()
        return {**found, "allocator": summary_of_snapshot(snapshot), "files": [SNAPSHOT]}

    def marked(self, _folder: Path) -> dict[str, Any]:
        """For Nsight: the steps between a start and a stop of the profiler, each an NVTX range."""
        if not self._on_device:
            raise RuntimeError("Nsight looks at NVIDIA GPUs: this run is on a CPU")
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        self.updates(PROFILED_UPDATES, nvtx=True)
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        return {"files": []}


@contextmanager
def _nvtx(name: str, *, on: bool) -> Iterator[None]:
    """An NVTX range, which only Nsight sees."""
    if not on:
        yield
        return
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
