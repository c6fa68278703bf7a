"""Faults of the choice itself: a library or the device refuses it, or the numbers do not survive it."""

from __future__ import annotations

from objectives.trial.faults.kind import Fault, Kind, always, any_of
from objectives.trial.faults.model import Verdict
from objectives.trial.faults.records import either, from_a_library, is_a

SRAM_WORDS = any_of(
    r"\bout of resources?: ",
    r"\bHardware limit(?:ation)?: ?\d",
    r"\btoo many resources requested for launch\b",
    r"\bLAUNCH_OUT_OF_RESOURCES\b|\bcudaErrorLaunchOutOfResources\b",
    r"\buses too much shared data\b",
)
"""A kernel's demand on the chip itself. Some wrappers call it an out-of-memory; a smaller batch does not help."""

LAUNCH_WORDS = any_of(
    r"\binvalid configuration argument\b",
    r"\b(?:CUDA_ERROR_INVALID_CONFIGURATION|cudaErrorInvalidConfiguration|hipErrorInvalidConfiguration)\b",
    r"\bno kernel image is available\b|\bcudaErrorNoKernelImageForDevice\b|\bhipErrorNoBinaryForGpu\b",
    r"\bcompiled with an unsupported toolchain\b",
    r"\bNo available kernel\b",
    r"_ARCH_MISMATCH\b",
    r"\bpeer access is not supported\b",
    r"\bunrecognized \w{0,20}Allocator option\b|\bunrecognized key\b[^\n]{0,80}\ballocator config\b",
)

_PRECISIONS = (
    r"\b(?:bf16|bfloat16|fp16|float16|fp8|float8|fp4|tf32|mixed[- ]precision|dtypes?|data types?)\b|\bautocast\b"
)
_SETTINGS = (
    r"flash|sdpa|attention|attn|checkpointing|no_sync|gradient partitioning|\bzero[- ](?:stage|[123])|\bfsdp|compile"
    r"|dynamo|inductor|cuda ?graphs?|\bfused\b|\bforeach\b|capturable|channels_last|memory[ _]format|quanti[sz]"
    r"|\b[48][- ]?bit\b|packing|pin(?:ned)?[_ ]memory|prefetch_factor|persistent_workers|scaled_mm|grouped_mm"
    r"|compute capability|\bampere\b"
)
_BATCHES = r"batch[ _]?size|micro[_-]?batch\w*|global[_ ]batch\w*|accumulation|sequence[_ ]length|seq_?len\w*"
_REFUSALS = (
    r"(?:does ?n[o']t|do not|don't|is not|are not|isn't|not currently|not yet|no longer|cannot be) support(?:ed)?\b"
    r"|\bnot supported\b(?! between)|\bunsupported\b(?! operand)|\bonly support(?:s|ed)?\b|\bonly (?:be )?available\b"
    r"|\bincompatible\b|\bnot compatible\b|\bcannot be (?:used|combined|enabled|set)\b"
    r"|\bcannot (?:both )?be simultaneously\b|\bmutually exclusive\b|\bat most one of\b|\bcan only be (?:used|set)\b"
    r"|\brequires? (?:an? )?(?:Ampere|Hopper|CUDA|GPU|compute capability|all the params|at least sm)"
)

REFUSED_WORDS = any_of(
    rf"(?:{_PRECISIONS}|{_SETTINGS})[^\n]{{0,240}}?(?:{_REFUSALS})",
    rf"(?:{_REFUSALS})[^\n]{{0,240}}?(?:{_PRECISIONS}|{_SETTINGS})",
    r"\bnot implemented for '(?:half|bfloat16|float8\w*|complexhalf)'",
)
"""Something searched (a precision, a kernel, a way to accumulate ...) beside words of refusal, in one line."""

DIVISION_WORDS = any_of(
    r"\b(?:fp8|float8|mat[12ab]|scaled_mm|dims?|dimensions?)\b[^\n]{0,160}\b(?:divisible by|multiples? of) \(?\d",
    rf"\b(?:{_BATCHES})[^\n]{{0,160}}\b(?:divisible by|multiples? of|round multiple|not equal to)",
    rf"\b(?:divisible by|multiples? of|round multiple|not equal to)\b[^\n]{{0,160}}\b(?:{_BATCHES})",
)
"""Sizes that follow from the batch and must divide by something. A model's own widths are none of it."""

DDP_WORDS = any_of(
    r"\bmark a variable ready only once\b",
    r"\bExpected to have finished reduction in the prior iteration\b",
)

NUMERICAL_WORDS = any_of(
    r"\bloss scale (?:is )?already at minimum\b|\bminimum loss scale reached\b",
    r"\bloss\b[^\n]{0,60}\b(?:is|became|was|=|:) ?(?:nan|inf|infinite|not finite|non-?finite)\b",
    r"\bnon-?finite (?:loss|gradients?|grad norm)\b|\bnan (?:loss|gradients?) (?:seen|detected|found)\b",
    r"\bgradients?\b[^\n]{0,80}\bis non-?finite\b",
    r"\breturned nan values in its \d",
    r"\bfound invalid values:\s{1,4}tensor\([^\n]{0,200}\bnan\b",
)

CHOICE = "This value or combination is refused here: it is left out of the rest of the search."
CHIP = "This device's on-chip memory is too small for that kernel: another attention, loss or compile choice avoids it."
UNAPPLIED = "The process ran something else than was asked for: the knob named has no effect here."
UNSEEN = (
    "Nothing trained in a way that can be seen: call tuner.report_step(samples=...) after each optimizer step "
    "('import tuner' before it)."
)
TOO_SHORT = "Let the script make more optimizer steps: it is stopped as soon as its window is measured."
UNSTABLE = "The numbers overflow in this precision: prefer bf16 or fp32, or a lower learning rate."
DISTRIBUTED = "Use non-reentrant checkpointing and find unused parameters before training in parallel."

_REFUSING = either(from_a_library, is_a("ValueError", "AssertionError", "NotImplementedError", "ImportError"))
_COUNTING = either(_REFUSING, lambda record: record.cls in ("Exception", "builtins.Exception"))


def judge_refusal(_fault: Fault) -> Verdict:
    """The library or the device refuses these values."""
    return Verdict(outcome="unsupported", cause="invalid_config", advice=CHOICE)


def judge_not_applied(fault: Fault) -> Verdict:
    """A child read back something else than was asked for; the wrong device is nobody's choice."""
    if fault.record.text.startswith("asked for device"):
        return Verdict(outcome="infra", cause="broken_device")
    return Verdict(outcome="unsupported", cause="not_applied", advice=UNAPPLIED)


REFUSALS: tuple[Kind, ...] = (
    Kind(
        name="not applied",
        speakers=is_a("objectives.trial.training_loop.NotApplied", "objectives.script.endings.NotApplied"),
        judge=judge_not_applied,
    ),
    Kind(
        name="no room for the loader",
        speakers=is_a("objectives.trial.loader_room.LoaderRefused"),
        judge=judge_refusal,
    ),
    Kind(
        name="no step",
        speakers=is_a("objectives.script.endings.NoStep"),
        judge=always(Verdict(outcome="crashed", cause="no_step", advice=UNSEEN)),
    ),
    Kind(
        name="too few steps",
        speakers=is_a("objectives.script.endings.TooFewSteps"),
        judge=always(Verdict(outcome="crashed", cause="no_result", advice=TOO_SHORT)),
    ),
    Kind(
        name="sram",
        speakers=either(from_a_library, lambda record: record.cls.endswith(("OutOfResources", "NoTritonConfigsError"))),
        words=SRAM_WORDS,
        judge=always(Verdict(outcome="unsupported", cause="sram_limit", advice=CHIP)),
    ),
    Kind(name="launch", speakers=from_a_library, words=LAUNCH_WORDS, judge=judge_refusal),
    Kind(name="division", speakers=_REFUSING, words=DIVISION_WORDS, judge=judge_refusal),
    Kind(name="refused", speakers=_REFUSING, words=REFUSED_WORDS, judge=judge_refusal),
    Kind(
        name="parallel",
        speakers=from_a_library,
        words=DDP_WORDS,
        judge=always(Verdict(outcome="unsupported", cause="invalid_config", advice=DISTRIBUTED)),
    ),
)
NUMERICAL: tuple[Kind, ...] = (
    Kind(
        name="not finite",
        speakers=is_a("FloatingPointError", "objectives.trial.trainer.NumericalFault"),
        judge=always(Verdict(outcome="numerical", advice=UNSTABLE)),
    ),
    Kind(
        name="overflow",
        speakers=_COUNTING,
        words=NUMERICAL_WORDS,
        judge=always(Verdict(outcome="numerical", advice=UNSTABLE)),
    ),
)
