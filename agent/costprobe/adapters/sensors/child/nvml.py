"""Calls of NVIDIA's management library (NVML): errors as reactions, and processes of a GPU.

Only the sensor child imports this module: it loads `pynvml`, and with it the driver's library.

Of what NVML reports about processes, only what is true is used.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pynvml

from costprobe.adapters.sensors.child.sensor import pci_board
from costprobe.adapters.sensors.messages import Reaction, SensorFault
from costprobe.core.outside import one_line
from costprobe.core.records import NS_PER_S

SUCCESS: Final = 0
INSUFFICIENT_SIZE: Final = 7

# Drivers before R510 have version 2 only.
PROCESS_LISTS: Final = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "MPSCompute", "Graphics")
    for version in ("_v3", "_v2")
)

# Bytes of a record of nvmlDeviceGet*RunningProcesses_v3: nvml.h has 24 (nvmlProcessInfo_v2_t); drivers
# 535.43 to 535.86 wrote 32 under the same name, with usedGpuCcProtectedMemory at the end (XuehaiPan/
# nvitop, pull request 79); some write the 16 of nvmlProcessInfo_v1_t (pull request 226 there).
RECORD_BYTES: Final = (16, 24, 32)
DOCUMENTED_BYTES: Final = 24
# Fills the memory before the call, so that the bytes that the driver wrote are known.
UNWRITTEN: Final = 0xA5
# Room for processes that start between the two calls.
SPARE_RECORDS: Final = 8
PID_BYTES: Final = 4

WHOLE_PCT: Final = 100
# How long a process is remembered after it was listed: longer than any window.
REMEMBERED_NS: Final = 600 * NS_PER_S


def running_pids(symbol: str, handle: object) -> frozenset[int]:
    """The processes that a function of NVML lists, whichever size its records have.

    Args:
        symbol: One of PROCESS_LISTS.
        handle: The device.

    Raises:
        AttributeError: The library lacks the function.
        pynvml.NVMLError: As any function of pynvml.
    """
    function = getattr(pynvml.nvmlLib, symbol)
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    if code == SUCCESS:
        return frozenset()
    if code != INSUFFICIENT_SIZE:
        raise pynvml.NVMLError(code)
    count.value = 2 * count.value + SPARE_RECORDS
    memory = (ctypes.c_ubyte * (count.value * max(RECORD_BYTES)))()
    ctypes.memset(memory, UNWRITTEN, ctypes.sizeof(memory))
    if code := function(handle, ctypes.byref(count), memory):
        raise pynvml.NVMLError(code)
    return pids_of(bytes(memory), count.value)


def pids_of(memory: bytes, count: int) -> frozenset[int]:
    """The process ids in records of unknown size.

    Args:
        memory: The records, and unwritten bytes behind them.
        count: Number of the records.
    """
    written = len(memory.rstrip(bytes([UNWRITTEN])))
    sizes = (size for size in RECORD_BYTES if written <= size * count)
    # A driver that clears the whole memory leaves no trace of the size.
    size = next(sizes, DOCUMENTED_BYTES)
    starts = range(0, count * size, size)
    pids = (int.from_bytes(memory[start : start + PID_BYTES], "little") for start in starts)
    return frozenset(pid for pid in pids if pid)


def process_util_pct(samples: Iterable[Any]) -> dict[int, float]:
    """Mean share of the time by process, in percent.

    A driver may report more rows than it filled (Syllo/nvtop, issue 110): their values are illegal,
    or those of process 0.

    Args:
        samples: The result of nvmlDeviceGetProcessUtilization.
    """
    by_pid: dict[int, list[float]] = {}
    for sample in samples:
        pid, util_pct = int(sample.pid), int(sample.smUtil)
        if pid and util_pct <= WHOLE_PCT:
            by_pid.setdefault(pid, []).append(float(util_pct))
    return {pid: sum(values) / len(values) for pid, values in by_pid.items()}


class ListedProcesses:
    """The processes that the driver listed for a device in the last ten minutes."""

    def __init__(self) -> None:
        self._listed_ns: dict[int, int] = {}

    def add(self, t_ns: int, pids: Collection[int]) -> None:
        """Add the processes that were listed at CLOCK_MONOTONIC t_ns."""
        listed = self._listed_ns.items()
        self._listed_ns = {pid: at_ns for pid, at_ns in listed if t_ns - at_ns < REMEMBERED_NS}
        self._listed_ns.update(dict.fromkeys(pids, t_ns))

    def have_all(self, pids: Collection[int]) -> bool:
        """Whether all of them were listed."""
        return self._listed_ns.keys() >= set(pids)

    def known(self, util_pct: dict[int, float]) -> dict[int, float]:
        """Discard the utilization of processes that were not listed, whose rows are not true.

        Where none is listed, as in a container with process ids of its own, nothing is known.
        """
        if not self._listed_ns:
            return util_pct
        return {pid: pct for pid, pct in util_pct.items() if pid in self._listed_ns}


# nvml.h: NVML_VALUE_TYPE_UNSIGNED_INT; of the other types the whole union counts.
VALUE_TYPE_UNSIGNED_INT: Final = 1

# pynvml's structures check each value for text to decode, which takes a quarter of the time of
# reading the utilization. This bypasses the check.
number = object.__getattribute__

# NVML's names of its return codes, without the prefix.
NAMES: Final[Mapping[int, str]] = {
    code: name.removeprefix("NVML_ERROR_")
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}
# The reaction depends on the code alone, not on the function: GPU_IS_LOST from a call about one
# metric still concerns the device. Other codes are temporary.
REACTIONS: Final[Mapping[str, Reaction]] = {
    **dict.fromkeys(
        (
            *("INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "NOT_FOUND", "DEPRECATED"),
            *("FUNCTION_NOT_FOUND", "CORRUPTED_INFOROM", "VGPU_ECC_NOT_SUPPORTED"),
            *("FREQ_NOT_SUPPORTED", "ARGUMENT_VERSION_MISMATCH", "RESET_TYPE_NOT_SUPPORTED"),
        ),
        Reaction.ABSENT,
    ),
    **dict.fromkeys(
        (
            *("INSUFFICIENT_POWER", "IRQ_ISSUE", "GPU_IS_LOST", "RESET_REQUIRED"),
            *("OPERATING_SYSTEM", "GPU_NOT_FOUND"),
        ),
        Reaction.QUARANTINE,
    ),
    **dict.fromkeys(
        (
            *("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND"),
            "LIB_RM_VERSION_MISMATCH",
        ),
        Reaction.RESTART,
    ),
}

FUNCTION_NOT_FOUND: Final = 13
# pynvml has no such function, or in later releases raises an error of its own.
_LACKING = (AttributeError, getattr(pynvml, "NVMLLibraryMismatchError", AttributeError))
NO_DRIVER: Final = frozenset({"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED"})
VERSIONS: Final[Mapping[str, str]] = {
    "driver_version": "nvmlSystemGetDriverVersion",
    "nvml_version": "nvmlSystemGetNVMLVersion",
}

# What an operator can do about an error.
HINTS: Final[Mapping[str, str]] = {
    "NO_PERMISSION": "let the user of this process open /dev/nvidia*, or grant it CAP_SYS_ADMIN"
    " where the administrator restricted profiling",
    "INSUFFICIENT_POWER": "connect the board's external power cables",
    "DRIVER_NOT_LOADED": "load it with `modprobe nvidia`, or reboot after a driver upgrade",
    "IRQ_ISSUE": "look for the kernel's interrupt messages in `dmesg` and reset the GPU",
    "LIBRARY_NOT_FOUND": "install the driver's libnvidia-ml.so.1 and run ldconfig",
    "CORRUPTED_INFOROM": "the board's infoROM is corrupted: run `nvidia-smi -q`, plan a repair",
    "GPU_IS_LOST": "it has fallen off the bus: look for Xid messages in `dmesg`, reset or reboot",
    "RESET_REQUIRED": "reset it with `nvidia-smi --gpu-reset` once no process uses it",
    "OPERATING_SYSTEM": "the control group blocks it: allow /dev/nvidia* (DeviceAllow= in systemd)",
    "LIB_RM_VERSION_MISMATCH": "the driver was upgraded under the running kernel module: reboot,"
    " or unload and load the nvidia modules",
}


# Hints for the initialization alone, where a code has another reason than in calls about a device.
START_HINTS: Final[Mapping[str, str]] = {
    "UNKNOWN": "/dev/nvidiactl cannot be used: restart a container, whose devices a `systemctl"
    " daemon-reload` or an update of its control group took away; else see `dmesg` (NVRM)",
}
NO_DEVICE: Final = "NO_DEVICE"
NO_DEVICE_DETAIL: Final = (
    "the driver finds no GPU that this process may use: let its user or container open /dev/nvidia*;"
    " `dmesg` shows a board that could not be started (NVRM)"
)
# PCI: NVIDIA, and the classes of graphics and compute boards.
PCI_VENDOR: Final = "0x10de"
PCI_CLASSES: Final = ("0x0300", "0x0302")


def expected_gpu(root: Path, environ: Mapping[str, str], *, is_known: bool) -> str:
    """Return what shows that a GPU belongs to this host or container; empty if nothing does.

    Args:
        root: Root of the file system that holds /sys.
        environ: The environment; NVIDIA_VISIBLE_DEVICES is set by container runtimes.
        is_known: Whether the store has such a GPU of this host.
    """
    visible = environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible in {"void", "none"}:
        return ""
    if address := pci_board(root, PCI_VENDOR, PCI_CLASSES):
        return f"the PCI device {address} is a GPU"
    if visible:
        return f"NVIDIA_VISIBLE_DEVICES is {visible[:100]!r}"
    return "the store has a GPU of this host" if is_known else ""


def start_fault(fault: SensorFault, evidence: str) -> SensorFault:
    """Return the fault of an initialization, with the library's own reason and the evidence of a GPU.

    A library that is not there, or without a driver, is initialized again by the same process.
    """
    reaction = Reaction.TRANSIENT if fault.code in NO_DRIVER else fault.reaction
    words = [fault.detail, START_HINTS.get(fault.code, "")]
    if fault.code == "LIBRARY_NOT_FOUND":
        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            words.insert(0, str(error))
    if evidence:
        words.append(f"{evidence}; without one, set gpus = false in [telemetry]")
    return SensorFault(fault.call, fault.code, reaction, "; ".join(filter(None, words)))


def package_fault() -> SensorFault | None:
    """The fault of a loaded `pynvml` that is not nvidia-ml-py's; None for the right one.

    The deprecated package of that name is a folder, which Python prefers to nvidia-ml-py's file.
    nvidia-ml-py3 overwrites that file.
    """
    is_folder = hasattr(pynvml, "__path__")
    if not is_folder and hasattr(pynvml, "nvmlMemory_v2"):
        return None
    package = "pynvml" if is_folder else "nvidia-ml-py3"
    detail = (
        f"the module {pynvml.__file__} is of the deprecated package {package}, which hides"
        " nvidia-ml-py: metrics are missing, and GPUs may be quarantined. Run"
        f" `{sys.executable} -m pip uninstall {package}`, then"
        f" `{sys.executable} -m pip install --force-reinstall nvidia-ml-py`"
    )
    return SensorFault("pynvml", "DEPRECATED_PACKAGE", Reaction.ABSENT, detail)


def known(value: int, bits: int = 32) -> int | None:
    """An unsigned value; None for nvml.h's NVML_VALUE_NOT_AVAILABLE, which is -1.

    Args:
        value: What NVML returned.
        bits: Its size.
    """
    return None if value == (1 << bits) - 1 else int(value)


def fault_of(call: str, value: int, words: str = "") -> SensorFault:
    """The fault for a return code other than success."""
    code = NAMES.get(value, f"CODE_{value}")
    detail = "; ".join(filter(None, (words.rstrip("."), HINTS.get(code, ""))))
    return SensorFault(call, code, REACTIONS.get(code, Reaction.TRANSIENT), detail)


def _read_fields(handle: object, fields: ctypes.Array[Any]) -> None:
    """Call nvmlDeviceGetFieldValues with the caller's memory; pynvml allocates it on each call.

    Raises:
        AttributeError: The library lacks the function.
        pynvml.NVMLError: As any function of pynvml.
    """
    if code := pynvml.nvmlLib.nvmlDeviceGetFieldValues(handle, len(fields), fields):
        raise pynvml.NVMLError(code)


# Functions that replace pynvml's: its lists of processes assume one size of the driver's records.
_OWN: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetFieldValues": _read_fields,
    **{symbol: partial(running_pids, symbol) for symbol in PROCESS_LISTS},
}


def nvml_call(function: str, *args: Any) -> Any:  # noqa: ANN401 - pynvml has no types
    """Call a function of pynvml and translate its errors.

    Raises:
        SensorFault: With the reaction to the return code.
    """
    try:
        return (_OWN.get(function) or getattr(pynvml, function))(*args)
    except pynvml.NVMLError as error:
        raise fault_of(function, error.value, str(error)) from error
    except _LACKING as error:
        # An older pynvml lacks the function, or an older library one that pynvml asks for.
        raise fault_of(function, FUNCTION_NOT_FOUND) from error
    except UnicodeDecodeError as error:
        # pynvml decodes the text of a driver, which may be any bytes.
        return error.object
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        raise SensorFault(function, "FAILED", Reaction.TRANSIENT, detail) from error


def nvml_text(nvml: Callable[..., Any], function: str, *args: Any) -> str:  # noqa: ANN401 - pynvml has no types
    """Return what a function reads as one line of printable text, which may be empty.

    Args:
        nvml: Calls the function, as `nvml_call` does.
        function: Its name.
        args: Its arguments.

    Raises:
        SensorFault: As `nvml`.
    """
    text = nvml(function, *args)
    return one_line(text.decode(errors="replace") if isinstance(text, bytes) else text).strip()


class DriverInfo(NamedTuple):
    """The number of GPUs, the versions of driver and NVML, and the faults of reading these."""

    gpu_count: int
    versions: Mapping[str, str]
    faults: Sequence[SensorFault]


def open_driver() -> DriverInfo:
    """Initialize NVML and count its GPUs; without a version they can be measured all the same.

    Raises:
        SensorFault: Also where there is no library or no driver (code in NO_DRIVER).
    """
    nvml_call("nvmlInit")
    gpu_count = int(nvml_call("nvmlDeviceGetCount"))
    versions: dict[str, str] = {}
    faults: list[SensorFault] = []
    for name, function in VERSIONS.items():
        try:
            versions[name] = nvml_text(nvml_call, function)
        except SensorFault as fault:
            faults.append(fault)
    return DriverInfo(gpu_count, versions, faults)
