"""What a profile's operators say: shares of the step by category, the dearest, and what costs without need. Pure.

Times are self times: of an operator without the operators it calls. Rows of a backward pass carry the module whose
forward made them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Category = Literal["attention", "matmul", "elementwise", "copies", "communication", "idle", "other"]
CATEGORIES: tuple[Category, ...] = (
    "attention", "matmul", "elementwise", "copies", "communication", "idle", "other"
)  # fmt: skip
"""``matmul`` holds convolutions, ``elementwise`` also norms, reductions and the optimizer's update. ``idle``: the
device computes nothing (Python, waiting for data, a launch that is late)."""

_PATTERNS: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("communication", re.compile(r"nccl|gloo|c10d::|all_?reduce|all_?gather|reduce_?scatter|record_param_comms", re.I)),
    ("attention", re.compile(r"attention|flash_|fmha|flex_|sdpa", re.I)),
    ("matmul", re.compile(
        r"(^|::)_?(addmm|mm|bmm|baddbmm|addbmm|addmv|mv|matmul|linear|dot|einsum|convolution\w*|\w*conv\w*d?|mkldnn_\w+"
        r"|scaled_mm|grouped_mm|lstm|gru)_?$|gemm|cutlass|cublas|mkldnn_linear|mkldnn_convolution", re.I)),
    ("copies", re.compile(
        r"(^|::)_?(copy_|to|to_copy|clone|contiguous|cat|stack|constant_pad_nd|pad|repeat|fill_|zero_|memcpy\w*|memset\w*)"
        r"$|^mem(cpy|set)", re.I)),
)  # fmt: skip
_PLAIN = re.compile(
    r"(^|::)_?(empty\w*|as_strided|view|reshape|expand\w*|transpose|t|permute|select|slice|unsqueeze|squeeze|detach\w*"
    r"|narrow|split\w*|chunk|unbind|alias|resolve_conj|resolve_neg|result_type|item|local_scalar_dense|is_nonzero"
    r"|nonzero\w*|embedding\w*|index\w*|gather\w*|scatter\w*|arange|resize_|set_|lift_fresh|unsafe_view|reshape_alias"
    r"|record_function\w*|to_dense|new_\w+|detach)_?$",
    re.I,
)
_ATTENTION_PARTS = re.compile(r"(^|::)_?(bmm|baddbmm|softmax\w*|masked_fill_?|matmul)", re.I)
_ATTENTION_MODULE = re.compile(r"attn|attention", re.I)


def category_of(operator: str, module: str | None = None) -> Category:
    """What kind of work an operator (or kernel) does.

    Args:
        operator: As the profiler names it, such as ``aten::addmm``, or a kernel's name.
        module: Name of the module it runs in: attention written out consists of plain products and a softmax.
    """
    if module and _ATTENTION_MODULE.search(module) and _ATTENTION_PARTS.search(operator):
        return "attention"
    for category, pattern in _PATTERNS:
        if pattern.search(operator):
            return category
    if _PLAIN.search(operator) or "::" not in operator or operator.startswith("autograd::"):
        return "other"
    return "elementwise"


@dataclass(frozen=True, kw_only=True)
class Row:
    """All calls of one operator in one module.

    Attributes:
        module: Name of the innermost module; empty outside any.
        phase: ``forward``, ``backward``, ``optimizer`` or ``data``.
        seconds: Self time of all calls.
        calls: How many.
        direct_calls: Of them, called by the module's own code, not by another operator.
        direct_seconds: Their whole time, with what they call.
    """

    operator: str
    module: str
    phase: str
    seconds: float
    calls: int
    direct_calls: int = 0
    direct_seconds: float = 0.0

    @property
    def category(self) -> Category:
        """Of the operator there."""
        return category_of(self.operator, self.module)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A thing that costs time without need. Fields as in :class:`tuner.doctor.evidence.ProfileFinding`."""

    kind: Literal["hidden_synchronisation", "wrong_device", "slow_path", "copy_bound"]
    where: str
    text: str
    share: float | None = None
    advice: str | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def shares(rows: Iterable[Row], idle_share: float) -> dict[str, float]:
    """Share (0 to 1) of the step by category; they add up to 1.

    Args:
        rows: Of the profiled steps.
        idle_share: Share of their time in which the device computed nothing.
    """
    seconds: dict[str, float] = defaultdict(float)
    for row in rows:
        seconds[row.category] += row.seconds
    total = sum(seconds.values())
    busy = 1 - idle_share if total else 0.0
    found: dict[str, float] = {name: busy * seconds[name] / total if total else 0.0 for name in CATEGORIES}
    return {**found, "idle": 1 - busy}


def dearest(rows: Iterable[Row], most: int = 15) -> list[dict[str, Any]]:
    """The operators that take most of the time: name, category, seconds, share, calls; dearest first."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    calls: Counter[tuple[str, str]] = Counter()
    for row in rows:
        key = (row.operator, row.category)
        seconds[key] += row.seconds
        calls[key] += row.calls
    total = sum(seconds.values()) or 1.0
    ranked = sorted(seconds, key=lambda key: (-seconds[key], key))[:most]
    return [
        {"name": name, "category": kind, "seconds": seconds[name, kind], "share": seconds[name, kind] / total,
         "calls": calls[name, kind]}
        for name, kind in ranked
    ]  # fmt: skip


COPY_BOUND_SHARE, COPY_STEP_SHARE = 0.5, 0.1
"""A module is copy-bound when copies are so much of its own time, and so much of the whole step's."""
LOOP_CALLS, LOOP_SHARE, LOOP_SECONDS = 32, 0.1, 1e-3
COMPUTING = ("attention", "matmul", "elementwise")
"""A Python loop: one of these operators so often in one call of a module, so much of the step, so short each."""


def copy_bound(rows: Sequence[Row]) -> list[Finding]:
    """Modules that spend most of their own time copying."""
    total = sum(row.seconds for row in rows)
    own: dict[str, float] = defaultdict(float)
    copied: dict[str, float] = defaultdict(float)
    for row in rows:
        if row.module and row.phase in ("forward", "backward"):
            own[row.module] += row.seconds
            copied[row.module] += row.seconds if row.category == "copies" else 0.0
    found = [
        module for module, seconds in copied.items()
        if seconds >= COPY_BOUND_SHARE * own[module] and seconds >= COPY_STEP_SHARE * total > 0
    ]  # fmt: skip
    return [
        Finding(
            kind="copy_bound",
            where=module,
            text=f"{module} copies: {100 * copied[module] / own[module]:.0f} % of its own time goes into copies and "
            f"re-layouts, {100 * copied[module] / total:.0f} % of the step",
            share=copied[module] / total,
            advice="keep one memory layout through it: leave out .contiguous(), .clone() and casts there and back",
        )
        for module in sorted(found, key=lambda name: -copied[name])
    ]


def python_loops(
    rows: Sequence[Row], module_calls: Mapping[str, int], module_seconds: Mapping[str, float], step_seconds: float
) -> list[Finding]:
    """Modules that call one small operator again and again: a loop in Python where one call would do.

    Args:
        rows: Of the profiled steps.
        module_calls: How often each module's forward ran.
        module_seconds: Wall time of each module's forward without the modules it calls: the loop itself counts, too.
        step_seconds: Wall time of the profiled steps.
    """
    backward: dict[str, float] = defaultdict(float)
    for row in rows:
        backward[row.module] += row.seconds if row.phase == "backward" else 0.0
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.phase == "forward" and row.module and row.direct_calls:
            groups[row.module].append(row)
    found = [
        _loop(mine, module_calls.get(module, 0), (module_seconds.get(module, 0.0) + backward[module]) / step_seconds)
        for module, mine in groups.items()
        if step_seconds > 0
    ]
    return sorted((each for each in found if each is not None), key=lambda each: -(each.share or 0.0))


def _loop(rows: Sequence[Row], calls: int, share: float) -> Finding | None:
    small = [
        row for row in rows
        if calls and row.direct_calls >= LOOP_CALLS * calls and row.direct_seconds < LOOP_SECONDS * row.direct_calls
        and row.category in COMPUTING
    ]  # fmt: skip
    if not small or share < LOOP_SHARE:
        return None
    worst = max(small, key=lambda row: row.direct_seconds)
    module = worst.module
    times = round(worst.direct_calls / calls)
    return Finding(
        kind="slow_path",
        where=module,
        text=f"{module} loops in Python: it calls {worst.operator} {times} times per forward, "
        f"and with its backward it takes {100 * share:.0f} % of the step",
        share=share,
        advice="replace the loop by one operator over the whole tensor, or compile that module",
    )


def attention_fallback(rows: Iterable[Row], wanted: str) -> list[Finding]:
    """The attention that is written out though a fused one was asked for."""
    slow = [row for row in rows if "_scaled_dot_product_attention_math" in row.operator]
    if not slow or wanted in ("eager", "flex_attention"):
        return []
    where = next((row.module for row in slow if row.module), "attention")
    return [
        Finding(
            kind="slow_path",
            where=where,
            text=f"scaled_dot_product_attention falls back to its mathematical form in {where}: no fused kernel takes "
            "its mask, head size or type",
            advice="head sizes in multiples of 8, a mask the fused kernels know, 16-bit inputs; see knob `attention`",
        )
    ]
