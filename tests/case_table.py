"""Which test answers which case: collects the marks of the whole suite and keeps ``tests/CASES.md``.

    python -m tests.case_table [--write]

A case is something that happened to people who train models or tune training, told in one line of our own. The
letters: A faults and their texts, B accumulation and batches, C precision, D memory over time, E loading,
F parallelism, G search and store, H measuring, I trainers' configuration files.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path

import pytest

PAGE = Path(__file__).parent / "CASES.md"

CASES: dict[str, str] = {
    "A01": "Old allocators raise a plain RuntimeError when the GPU is full.",
    "A02": "The allocator's words differ by release; another process may hold the memory.",
    "A03": "The fragmentation hint is printed always; it is a diagnosis only when much is reserved and free.",
    "A04": "An out-of-memory with far more free than asked for is the cap's or the driver's.",
    "A05": "Apple's back end has its own limit and words.",
    "A06": "Other accelerators say it by an abort without an exception.",
    "A07": "cuBLAS cannot make its handle when the card is nearly full.",
    "A09": "cuDNN finds no engine because its workspace does not fit.",
    "A10": "cuDNN says not supported, or failed, and means memory when the card is nearly full.",
    "A12": "Expandable segments turn exhaustion into asserts and driver codes.",
    "A13": "The allocator's assert on a driver call is an exhausted card.",
    "A14": "The runtime's own out-of-memory: busy device at the first touch, capacity later.",
    "A15": "The device is held by somebody else.",
    "A16": "No GPU is there, or the driver does not answer.",
    "A17": "A collective library reports an error it cannot explain.",
    "A18": "The collective library's own shared memory is too small.",
    "A19": "One rank runs out of memory, the others report a timeout much later.",
    "A20": "The CPU's allocator fails: host memory, unless our own cap was reached.",
    "A21": "A kill without a word: the kernel's, unless we sent it.",
    "A22": "A loader worker dies of a bus error: shared memory.",
    "A23": "A loader worker is killed for memory; the main process survives.",
    "A24": "File descriptors run out and it looks like shared memory.",
    "A25": "The disk is full.",
    "A26": "An illegal memory access leaves the context unusable.",
    "A27": "A device-side assert fails every later trial in that process; always the same means bad data.",
    "A28": "A launch dimension over a hardware limit.",
    "A29": "The library was not built for this device.",
    "A30": "Broken hardware is no configuration's fault.",
    "A31": "A kernel needs more on-chip memory than there is.",
    "A32": "The compiler wraps an out-of-memory in its own error.",
    "A33": "A launcher shows exit codes only; the cause is a rank's.",
    "A34": "Somebody ended the run with a polite signal.",
    "A35": "NVML itself is broken.",
    "A36": "A probe crashes instead of raising; nothing at all may fit.",
    "B01": "Averaging the means of micro-batches weighs tokens by their company.",
    "B02": "Tokens counted on the wrong axis.",
    "B04": "Fewer samples than one global batch: no optimizer step is ever made.",
    "B06": "Scheduler steps counted in micro-batches.",
    "B07": "A batch finder silently changes the effective batch.",
    "B08": "Halving wastes memory and time; the largest that fits need not be the fastest.",
    "B10": "Accumulation is not memory-neutral.",
    "B12": "Two meanings of the word batch size.",
    "B13": "Accumulation set in two places.",
    "B14": "Resuming with another batch.",
    "C01": "Skipped updates counted as progress.",
    "C03": "Weights trained in bf16 overflow in fp16.",
    "C04": "bf16 asked of a GPU without it.",
    "C06": "TF32 flags differ between versions and processes.",
    "C07": "Shapes that 8-bit matrices cannot have.",
    "C09": "fp16 on a CPU is the slowest configuration.",
    "C10": "The same word, another precision, by framework.",
    "C12": "Pure bf16 weights lose small updates.",
    "D01": "Out of memory only when the longest sample comes.",
    "D02": "Optimizer state appears after the first step.",
    "D03": "An exception keeps the tensors alive.",
    "D06": "Emptying the cache in the loop.",
    "D07": "Allocator settings misspelt.",
    "D08": "A CUDA graph per shape.",
    "D09": "Evaluation runs out of memory though training fits.",
    "D11": "One long sample on one rank.",
    "D12": "Memory that comes back late after a process has ended.",
    "E01": "More loader workers than usable cores.",
    "E03": "Copy-on-write growth of loader workers.",
    "E04": "A hang after a fork.",
    "E06": "Loader waits hide in the step time.",
    "E07": "The host's memory is read instead of the container's.",
    "E09": "CUDA in a forked worker.",
    "E10": "Prefetched batches fill host memory.",
    "E12": "Shared memory of a container is small.",
    "F01": "Unequal batches over ranks wait for ever.",
    "F03": "The number of ranks is not known when the file is written.",
    "F04": "Fewer pipeline micro-batches than stages, or a ragged last one.",
    "F05": "A larger micro-batch makes a larger pipeline bubble: the largest is not the best.",
    "F07": "Checkpointing switched on in two places.",
    "F08": "Reentrant checkpointing under data parallelism.",
    "F11": "A sequence that does not divide over tensor and context ranks.",
    "G01": "A killed worker leaves its trial running for ever.",
    "G02": "Optuna's heartbeat does not cover ask and tell.",
    "G04": "Too many connections, and the reason is masked.",
    "G05": "A connection is cut while a trial runs.",
    "G06": "Two processes share one database connection after a fork.",
    "G07": "Workers started at once race for the first tables.",
    "G08": "Two tools share one version table.",
    "G11": "The space is edited after the first trials.",
    "G14": "NaN in JSON.",
    "G15": "Failed configurations are suggested again and again.",
    "G17": "Known configurations are suggested again.",
    "G18": "Limits that hold per worker, or only between trials.",
    "G19": "Two runs on one device.",
    "G20": "Memory of one trial is still there in the next.",
    "G22": "Names that the store cannot hold.",
    "G25": "The answer was never run as it will be used.",
    "G26": "Every trial fails for one reason, hidden in its log.",
    "G27": "Tuned at the edge, dies in use.",
    "H01": "Timing without waiting for the device.",
    "H02": "Warm-up and compilation counted as steps.",
    "H03": "The shortest step is not the highest throughput.",
    "H05": "A ragged batch recompiles; behind a limit the compiler gives up silently.",
    "H06": "Clocks differ over the day: flag it, and call a tie a tie.",
    "H09": "The wrong card's memory is read.",
    "H10": "The driver spills to host memory instead of failing.",
    "H11": "Per-shape kernel search with variable shapes.",
    "I01": "Two precisions switched on at once.",
    "I02": "Three batch numbers with two degrees of freedom.",
    "I04": "Two files of one job disagree.",
    "I05": "Booleans as text, keys misspelt.",
    "I07": "A trainer's arguments are not validated by the trainer.",
    "I08": "Arguments are renamed and removed.",
    "I10": "A library's own out-of-memory test is narrow.",
    "I11": "Checkpointing leaves parameters without gradient.",
    "I12": "Compilation and checkpointing do not agree.",
    "I14": "A batch size where there is no such argument.",
    "I15": "A trainer's fields move between versions.",
}
"""All cases that have a test."""


class Collector:
    """A pytest plugin: the names of tests by case."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reads every item's marks."""
        for item in items:
            for mark in item.iter_markers("case"):
                for name in mark.args:
                    self.tests[str(name)[:3]].add(f"{Path(item.fspath).name}::{item.originalname}")  # type: ignore[attr-defined]


def collected() -> dict[str, set[str]]:
    """Tests by case, over the whole suite."""
    found = Collector()
    with redirect_stdout(io.StringIO()) as said:
        status = pytest.main(["--collect-only", "-q", str(Path(__file__).parent)], plugins=[found])
    if status != 0:
        raise SystemExit(f"collecting the tests failed with status {status}:\n{said.getvalue()[-3000:]}")
    return dict(found.tests)


def page(tests: dict[str, set[str]]) -> str:
    """The table as Markdown."""
    head = (__doc__ or "").partition("A case is")[2]
    lines = [
        "# Cases and the tests that answer them",
        "",
        "Made by `python -m tests.case_table --write`. A case is" + head,
    ]
    lines += ["| case | what happens | tests |", "|---|---|---|"]
    for name in sorted({*CASES, *tests}):
        answered = ", ".join(f"`{test}`" for test in sorted(tests.get(name, ()))) or "none yet"
        lines.append(f"| {name} | {CASES.get(name, '')} | {answered} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = page(collected())
    if "--write" in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != made:
        sys.exit("tests/CASES.md is not what the tests say: run `python -m tests.case_table --write`")
