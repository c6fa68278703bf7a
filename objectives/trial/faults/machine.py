"""Faults of the machine and of the operating system's limits: devices, drivers, loader workers, descriptors, disks."""

from __future__ import annotations

from objectives.trial.faults.kind import Fault, Kind, always, any_of
from objectives.trial.faults.memory import BUSY, HOST, SMALLER
from objectives.trial.faults.model import Verdict
from objectives.trial.faults.records import either, from_a_library, is_a

BUSY_WORDS = any_of(
    r"\bdevices? (?:\(s\) )?(?:is|are|is/are) busy or unavailable\b|\bCUDA-capable device\(s\) is/are busy\b",
    r"\b(?:cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDeviceUninitialized)\b",
)
BROKEN_WORDS = any_of(
    r"\buncorrectable (?:ECC|NVLink) error\b|\b(?:cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE)\b",
    r"\bGPU is lost\b|\bfallen off the bus\b|\bGPU requires reset\b|\bhardware stack error\b",
    r"\b[Nn]o (?:CUDA|ROCm|HIP|XPU)-?(?:capable)? ?(?:GPUs?|devices?) (?:is|are) (?:available|detected)\b",
    r"\bFound no NVIDIA driver\b|\bNVIDIA driver on your system is too old\b|\bTorch not compiled with (?:CUDA|XPU)\b",
    r"\bCUDA driver version is insufficient\b|\bcudaErrorInsufficientDriver\b",
    r"\bsystem not yet initialized\b|\bunsupported display driver\b|\bsystem has unsupported\b",
    r"\b(?:CUDA|HIP) unknown error\b|\b(?:CUDA|HIP)(?: driver)? error: initialization error\b|\bCUDA initialization: ",
    r"\b(?:CUDA|HIP) driver initialization failed\b|\b(?:CUDA|HIP) error: invalid device ordinal\b",
    r"\bcommunicate with (?:the )?NVIDIA driver\b",
    r"\bMPS (?:client|server|daemon)\b[^\n]{0,60}\b(?:fail|connect|terminat)",
)
DOUBTFUL_WORDS = any_of(
    r"\bnvmlInit\w*|\bNVML_ERROR_\w+|\bFailed to initialize NVML\b|\b[Dd]river/library version mismatch\b",
    r"\bNVML\b[^\n]{0,60}\bUnknown Error\b",
    r"\b(?:UR_RESULT_ERROR|PI_ERROR|ZE_RESULT_ERROR)_DEVICE_LOST\b|\bdevice lost \(20\)",
)
CONTEXT_WORDS = any_of(
    r"\b(?:CUDA|HIP|hip|MUSA|NPU)(?: driver| kernel)? (?:error|failure)\b[^\n]{0,40}\b"
    r"(?:illegal memory access|device-side assert|misaligned address|unspecified launch failure|illegal instruction"
    r"|invalid program counter|invalid address space"
    r"|illegal address|warp|hardware exception|launch (?:timed out|failure)|unknown error)",
    r"\ban illegal memory access was encountered\b|\bdevice-side assert triggered\b|\bMemory access fault by GPU\b",
    r"\b(?:cudaErrorIllegalAddress|cudaErrorAssert|cudaErrorLaunchFailure|CUDA_ERROR_(?:ILLEGAL_ADDRESS|ASSERT|LAUNCH_FAILED))\b",
    r"\bHSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_\w+)\b",
)
SHM_WORDS = any_of(
    r"\bkilled by signal: Bus error\b|\bworkers are out of shared memory\b|\binsufficient shared memory\b",
    r"\bshm\b[^\n]{0,200}(?:No space left|\(28\))|\bNo space left[^\n]{0,200}\bshm\b",
    r"\b[Uu]nable to (?:write to|allocate|resize|stretch|mmap|open)\b[^\n]{0,200}\btorch_[^\n]{0,200}\bNo space left\b",
    r"\ballocate shared memory segment\b|\b(?:creating|attaching) shared memory segment\b",
)
DESCRIPTOR_WORDS = any_of(
    r"\bToo many open files\b|\[Errno 24\]|\breceived 0 items of ancdata\b",
    r"\bunable to open shared memory object\b|\bPin memory thread exited unexpectedly\b",
)
WORKER_KILLED_WORDS = any_of(r"\bDataLoader worker \(pid [\d, ]{1,200}\) is killed by signal: Killed")
WORKER_GONE_WORDS = any_of(r"\bDataLoader worker \(pid(?:\(s\))? [\d, ]{1,200}\) exited unexpectedly")
THREAD_WORDS = any_of(
    r"\bcan't start new thread\b|\bpthread_create failed\b|\bthread creation failed\b",
    r"\bunable to allocate necessary resources for OMP thread\b",
)
DISK_WORDS = any_of(r"\bNo space left on device\b|\[Errno (?:28|122)\]|\bDisk quota exceeded\b")

BROKEN = "Reload the driver or reboot the machine; if it comes again, take this device out of use."
DRIVER = "Driver and its library differ or cannot be reached: reload the driver or reboot, and check the device files."
IDS = (
    "A kernel read outside its data: check that token ids and labels are below the vocabulary size; run it on the CPU."
)
SHM = "Enlarge /dev/shm (containers: `--shm-size=8g` or `--ipc=host`) or use fewer loader workers."
DESCRIPTORS = "Raise the limit on open files (`ulimit -n`); shared memory's size does not matter here."
THREADS = (
    "Raise the limit on processes (`ulimit -u`, the container's pids limit) or use fewer loader workers and threads."
)
DISK = "Make room on the disk, or point the cache and temporary folders elsewhere."


def judge_doubtful(fault: Fault) -> Verdict:
    """The driver's management library or the bus failed; a lost device may also be one that was squeezed."""
    if fault.near_full and "DEVICE_LOST" in fault.record.text.upper().replace(" ", "_"):
        return Verdict(outcome="device_oom", cause="capacity", confidence="probable", advice=SMALLER)
    return Verdict(outcome="infra", cause="broken_device", confidence="probable", advice=DRIVER)


def judge_worker(fault: Fault) -> Verdict:
    """A loader worker vanished: by the kernel's hand where that is known or said, else nobody knows why."""
    if fault.ending.kernel_kills_rose:
        return Verdict(outcome="host_oom", advice=HOST)
    if "signal: Killed" in fault.record.text:
        return Verdict(outcome="host_oom", confidence="probable", advice=HOST)
    return Verdict(outcome="crashed", confidence="probable")


def judge_threads(fault: Fault) -> Verdict:
    """A thread needs memory for its stack: under a reached cap it is the cap, else a limit on threads."""
    if not fault.cap_reached:
        return Verdict(outcome="crashed", cause="thread_limit", advice=THREADS)
    caught = "can't start new thread" in fault.record.text  # what Python says; a library that only exits leaves doubt
    return Verdict(outcome="device_oom", cause="cap", confidence="certain" if caught else "probable", advice=SMALLER)


_SYSTEM = either(from_a_library, is_a("OSError"))
_DRIVER = either(from_a_library, is_a("AssertionError", "OSError"))

LOADERS: tuple[Kind, ...] = (
    Kind(name="shm", speakers=_SYSTEM, words=SHM_WORDS, judge=always(Verdict(outcome="shm", advice=SHM))),
    Kind(
        name="descriptors",
        speakers=_SYSTEM,
        words=DESCRIPTOR_WORDS,
        judge=always(Verdict(outcome="crashed", cause="fd_limit", advice=DESCRIPTORS)),
    ),
    Kind(name="worker killed", speakers=from_a_library, words=WORKER_KILLED_WORDS, judge=judge_worker),
)
DEVICES: tuple[Kind, ...] = (
    Kind(
        name="busy",
        speakers=from_a_library,
        words=BUSY_WORDS,
        judge=always(Verdict(outcome="infra", cause="busy_device", advice=BUSY)),
    ),
    Kind(
        name="broken",
        speakers=_DRIVER,
        words=BROKEN_WORDS,
        judge=always(Verdict(outcome="infra", cause="broken_device", advice=BROKEN)),
    ),
    Kind(name="doubtful", speakers=_DRIVER, words=DOUBTFUL_WORDS, judge=judge_doubtful),
    Kind(
        name="context",
        speakers=from_a_library,
        words=CONTEXT_WORDS,
        judge=always(Verdict(outcome="crashed", cause="context_lost", advice=IDS)),
    ),
)
LIMITS: tuple[Kind, ...] = (
    Kind(name="worker gone", speakers=from_a_library, words=WORKER_GONE_WORDS, judge=judge_worker),
    Kind(name="threads", speakers=_SYSTEM, words=THREAD_WORDS, judge=judge_threads),
    Kind(
        name="disk",
        speakers=_SYSTEM,
        words=DISK_WORDS,
        judge=always(Verdict(outcome="crashed", cause="disk_full", advice=DISK)),
    ),
)
