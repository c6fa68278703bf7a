"""Faults of memory: the device's, by whichever layer found out, and the host's."""

from __future__ import annotations

from objectives.trial.faults.kind import Fault, Kind, any_of
from objectives.trial.faults.model import Confidence, Verdict
from objectives.trial.faults.records import either, from_a_library, is_a
from objectives.trial.faults.refusal import SRAM_WORDS
from objectives.trial.faults.sizes import extract_numbers, names_an_absurd_request

ROUNDING_BYTES = 128 << 20
"""Allocators ask the driver for whole blocks: so much more may be free than was asked for."""
MANY_PIECES_BYTES = 1 << 30
"""Reserved but unallocated memory from here on (or from a tenth of the device) is fragmentation, not rounding."""

FIRST_TOUCH = frozenset({"import", "init"})
"""Phases that include the first touch of the device: what fails there has not seen the configuration yet."""
BEFORE_STEPS = frozenset({"build", "load", "compile", "warm_up", "worst_case"})
"""Phases in which no optimizer step need have been applied yet."""

SMALLER = "A smaller micro-batch, more activation checkpointing or a leaner precision needs less memory."
FRAGMENTED = "The allocator choice `expandable_segments` (or batches of like length) wastes less in small pieces."
SUSPECT = "Far more memory was free than asked for: suspect a limit on this process or the driver, not the batch size."
BUSY = "Another process holds the device's memory: look at `nvidia-smi`, end it or wait."
EVALUATION = (
    "Evaluation ran out of memory, not training: use a smaller evaluation batch or move predictions to the CPU."
)
CAPPED = "The memory limit set for this study was reached; raise `limits: memory` if the device has more."
HOST = (
    "Use fewer loader workers, a smaller prefetch factor or no in-memory dataset cache; or give the host more memory."
)

# Where a message may begin: after brackets, a rank and the names of the classes that carried it.
_LEAD = r"^[\s(\"'\[]{0,8}(?:\[[^\]\n]{1,40}\][: ]{0,2})?(?:[\w.]{1,120}(?:Error|Exception|Failed): ){0,4}"
_SIZE = r"\d[\d.,]{0,20} ?(?:[KMGT]i?B|bytes)\b"
_DEVICES = r"(?:CUDA|HIP|ROCm|XPU|SYCL|MPS|NPU|MUSA|MLU|HPU|MTIA|GCU|GPU|TPU|PrivateUse1)"

ALLOCATOR_WORDS = any_of(
    rf"{_LEAD}{_DEVICES}(?: backend)? out of memory\b",
    rf"\b(?!CPU\b|host\b)\w{{2,20}}(?: backend)? out of memory\b[^\n]{{0,400}}tried to allocate {_SIZE}",
    r"\bAllocation on device\b[^\n]{0,40}(?:would exceed allowed memory|\(out of memory\))",
    r"\bRESOURCE_EXHAUSTED\b[^\n]{0,80}\bout of memory\b[^\n]{0,40}\balloca",
    rf"\bInvalid buffer size: {_SIZE}",
    r"can ?not allocate memory block with size larger than",
)
RUNTIME_WORDS = any_of(
    r"\b(?:CUDA|HIP|MUSA|NPU|XPU|ACL)(?: runtime| driver)? (?:error|failure)\b[^\n]{0,40}\bout of memory\b",
    r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|hipErrorMemoryAllocation)\b",
    r"_OUT_OF_DEVICE_MEMORY\b",
    r"\bFailed to (?:CUDA|HIP) [cm]alloc\b",
)
WORKSPACE_WORDS = any_of(
    r"_STATUS_(?:ALLOC_FAILED|ALLOCATION_FAILED|INSUFFICIENT_RESOURCES)\b",
    r"_DEVICE_ALLOCATION_FAILED\b",
    r"\b(?:CUFFT_ALLOC_FAILED|miopenStatusAllocFailed|rocblas_status_memory_error)\b",
    r"_ERROR_(?:OUT_OF_RESOURCES|MEM_OBJECT_ALLOCATION_FAILURE)\b",
    r"\bout of resources\b(?!:)",
    r"\bNo executable batch size found\b",
)
HANDLE_WORDS = any_of(r"\b(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS)_STATUS_NOT_INITIALIZED\b")
ENGINE_WORDS = any_of(
    r"\bunable to find an engine to execute\b",
    r"\bunable to find a valid cuDNN algorithm\b",
    r"\bNo valid (?:execution plans?|engine configs?)\b",
    r"\bCUDNN_STATUS_NOT_SUPPORTED\b",
)
EXECUTION_WORDS = any_of(
    r"\b(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|HIPBLAS|MIOPEN)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)",
    r"\bmiopenStatus(?:InternalError|UnknownError)\b",
    r"\bunhandled cuda error\b",
)
ASSERT_WORDS = any_of(
    r"\bNVML_SUCCESS == r\b",
    r"INTERNAL ASSERT FAILED[^\n]{0,300}CachingAllocator",
    r"\bhandles_\.at\(",
    r"\b(?:CUDA|HIP) driver error\b",
    r"\bcuMem(?:Create|Map|SetAccess|AddressReserve)\b",
)
HOST_WORDS = any_of(
    r"\bDefaultCPUAllocator: (?:can't allocate|not enough) memory\b",
    r"\bnot enough memory: you tried to allocate\b",
    r"\balloc_cpu\b",
    r"\bCPUAllocator\.cpp\b",
    r"\bC10 Out of Memory\b",
    r"\bstd::bad_alloc\b",
    r"\[Errno 12\]",
    r"\bCannot allocate memory\b",
    r"_(?:OUT_OF_HOST_MEMORY|HOST_ALLOCATION_FAILED)\b",
    r"\bLLVM ERROR: out of memory\b",
    r"\boom[-_]kill event",
)


def judge_allocator(fault: Fault) -> Verdict:
    """The framework's allocator said no, with numbers."""
    ending, text = fault.ending, fault.record.text
    numbers = extract_numbers(text)
    if ending.phase in FIRST_TOUCH:
        return _busy(numbers)
    if _limit_decided(fault, numbers):
        return Verdict(outcome="device_oom", cause="cap", advice=CAPPED, numbers=numbers)
    if _far_more_was_free(numbers) or names_an_absurd_request(text):
        return _probable("suspicious", SUSPECT, numbers)
    if _others_matter(numbers):
        return _probable("capacity", f"{SMALLER} {BUSY}", numbers)
    if _fragmented(numbers):
        return Verdict(outcome="device_oom", cause="fragmentation", advice=FRAGMENTED, numbers=numbers)
    confidence: Confidence = "probable" if "memory block with size larger than" in text else "certain"
    return _full(fault, confidence, numbers)


def judge_runtime(fault: Fault) -> Verdict:
    """The device's runtime or driver said no: at the first touch somebody else holds the card; later it is full."""
    if fault.ending.phase in FIRST_TOUCH:
        return _busy({})
    return _full(fault, "certain" if _has_stepped(fault) else "probable", extract_numbers(fault.record.text))


def judge_workspace(fault: Fault) -> Verdict:
    """A library could not get its workspace, which lies outside the allocator: a nearly full card fails here first."""
    verdict = _busy({}) if fault.ending.phase in FIRST_TOUCH else _full(fault, "probable", {})
    if fault.ending.micro_batch_size != 1:
        return verdict
    return Verdict(
        outcome=verdict.outcome,
        cause=verdict.cause,
        confidence=verdict.confidence,
        advice="It happens at micro-batch 1 already: check that driver, toolkit and library versions fit together.",
    )


def judge_handle(fault: Fault) -> Verdict:
    """A library's handle could not be made: for want of memory, unless much of it is known to be free."""
    share = fault.ending.memory_used_share
    if share is not None and share < 0.5:
        return Verdict(outcome="crashed", confidence="probable")
    return judge_workspace(fault)


def judge_engine(fault: Fault) -> Verdict:
    """No cuDNN engine fits: for want of workspace, or, where not even one sample runs, for these types and shapes."""
    if fault.ending.device == "cuda" and fault.ending.micro_batch_size == 1 and not fault.near_full:
        advice = "cuDNN has no engine for these shapes and types: try another precision or memory format."
        return Verdict(outcome="unsupported", cause="invalid_config", confidence="probable", advice=advice)
    return judge_workspace(fault)


def judge_when_near_full(fault: Fault) -> Verdict:
    """A vague failure that a full device causes too: memory's when memory was nearly used up, else a crash."""
    if fault.near_full:
        return _full(fault, "probable", {})
    return Verdict(outcome="crashed", confidence="probable")


def judge_assert(fault: Fault) -> Verdict:
    """Mapping memory failed inside the driver, which the allocator reports as an assertion or a driver's code."""
    text = fault.record.text
    supported = "CachingAllocator" in text or "NVML_SUCCESS == r" in text or fault.near_full
    return _full(fault, "probable", {}) if supported else Verdict(outcome="crashed", confidence="probable")


def judge_host(fault: Fault) -> Verdict:
    """Host memory ran out: the child's own cap where it is on a CPU and was reached, else the machine's."""
    in_a_worker = "in DataLoader worker" in fault.record.text  # workers are not capped
    if fault.cap_reached and not in_a_worker:
        return Verdict(outcome="device_oom", cause="cap", advice=f"{SMALLER} {CAPPED}")
    return Verdict(outcome="host_oom", advice=HOST, numbers=extract_numbers(fault.record.text))


def judge_primitive(fault: Fault) -> Verdict:
    """OneDNN could not make a kernel: what it says when memory runs out, but not only then."""
    if fault.cap_reached:
        return Verdict(outcome="device_oom", cause="cap", advice=f"{SMALLER} {CAPPED}")
    if fault.near_full:
        return Verdict(outcome="host_oom", confidence="probable", advice=HOST)
    return Verdict(outcome="crashed", confidence="probable")


def _full(fault: Fault, confidence: Confidence, numbers: dict[str, int]) -> Verdict:
    advice = EVALUATION if fault.ending.phase == "eval" else SMALLER
    return Verdict(outcome="device_oom", cause="capacity", confidence=confidence, advice=advice, numbers=numbers)


def _probable(cause: str, advice: str, numbers: dict[str, int]) -> Verdict:
    return Verdict(outcome="device_oom", cause=cause, confidence="probable", advice=advice, numbers=numbers)


def _busy(numbers: dict[str, int]) -> Verdict:
    return Verdict(outcome="infra", cause="busy_device", advice=BUSY, numbers=numbers)


def _has_stepped(fault: Fault) -> bool:
    """Whether an optimizer step had been applied; where the count is not known, by the phase."""
    if fault.ending.applied_steps is not None:
        return fault.ending.applied_steps > 0
    return fault.ending.phase not in BEFORE_STEPS


_LIMIT_WORDS = any_of(
    r"\bper_process_memory_fraction\b",
    r"\b(?:rejected|refused|denied)\b[^\n]{0,160}\b(?:limit|fraction)\b",
)


def _limit_decided(fault: Fault, numbers: dict[str, int]) -> bool:
    """Whether the child's own share of the device was the reason: the text says so, or there was room beyond it."""
    if _LIMIT_WORDS.search(fault.record.text):
        return True
    ending = fault.ending
    if ending.device == "cpu" or ending.cap_reached is False:
        return False
    free, requested = numbers.get("free_bytes"), numbers.get("requested_bytes")
    room_beyond = free is not None and requested is not None and free >= requested
    return bool(ending.cap_reached) or (bool(ending.cap_set) and room_beyond)


def _others_matter(numbers: dict[str, int]) -> bool:
    """Whether other processes hold enough of the device to be the reason; a desktop's few hundred MiB are not."""
    return numbers.get("other_processes_bytes", 0) > 0.1 * numbers.get("capacity_bytes", 0)


def _far_more_was_free(numbers: dict[str, int]) -> bool:
    free, requested = numbers.get("free_bytes"), numbers.get("requested_bytes")
    return free is not None and requested is not None and free >= max(2 * requested, requested + ROUNDING_BYTES)


def _fragmented(numbers: dict[str, int]) -> bool:
    """Whether what lay reserved in pieces is a large part of the request, and much in itself."""
    pieces = numbers.get("unallocated_bytes", 0)
    requested, capacity = numbers.get("requested_bytes"), numbers.get("capacity_bytes")
    if requested is not None and pieces < 0.25 * requested:
        return False
    return pieces >= MANY_PIECES_BYTES or (capacity is not None and pieces >= 0.1 * capacity)


_TORCH_CLASSES = is_a("torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "torch._C.OutOfMemoryError",
                      "c10::OutOfMemoryError", "cupy.cuda.memory.OutOfMemoryError")  # fmt: skip
_HOST_SPEAKERS = either(from_a_library, is_a("OSError", "MemoryError"))

DEVICE_MEMORY: tuple[Kind, ...] = (
    Kind(name="allocator class", speakers=_TORCH_CLASSES, unless=SRAM_WORDS, judge=judge_allocator),
    Kind(name="allocator", speakers=from_a_library, words=ALLOCATOR_WORDS, unless=SRAM_WORDS, judge=judge_allocator),
    Kind(
        name="runtime", speakers=either(from_a_library, is_a("MemoryError")), words=RUNTIME_WORDS, judge=judge_runtime
    ),
    Kind(name="workspace", speakers=from_a_library, words=WORKSPACE_WORDS, judge=judge_workspace),
    Kind(
        name="engine", speakers=from_a_library, words=ENGINE_WORDS, unless=any_of("ARCH_MISMATCH"), judge=judge_engine
    ),
)
HOST_MEMORY: tuple[Kind, ...] = (
    Kind(name="host words", speakers=_HOST_SPEAKERS, words=HOST_WORDS, judge=judge_host),
    Kind(name="host class", speakers=either(is_a("MemoryError", "ray.exceptions.OutOfMemoryError"),
         lambda record: record.cls.endswith("._ArrayMemoryError")), judge=judge_host),
    Kind(name="primitive", speakers=from_a_library, words=any_of(r"\bcould not create a (?:primitive|memory)\b"),
         judge=judge_primitive),
)  # fmt: skip
VAGUE: tuple[Kind, ...] = (
    Kind(name="handle", speakers=from_a_library, words=HANDLE_WORDS, judge=judge_handle),
    Kind(name="assert", speakers=from_a_library, words=ASSERT_WORDS, unless=any_of("nvmlInit"), judge=judge_assert),
    Kind(name="execution", speakers=from_a_library, words=EXECUTION_WORDS, judge=judge_when_near_full),
)
