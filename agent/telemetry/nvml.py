"""The one edge to NVIDIA's management library: calls, and what each of its errors asks of us.

Only the sensor child imports this module: it loads `pynvml`, and with it the driver's library.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from agent.telemetry.faults import Reaction, SensorFault

# NVML's return codes (nvml.h, nvmlReturn_t) by number, so that a pynvml of any age will do.
# GPU_IS_LOST to a call about one metric still concerns the device, so the reaction hangs on the
# code alone and never on the function.
CODES: dict[int, tuple[str, Reaction]] = {
    1: ("UNINITIALIZED", Reaction.REINIT),
    2: ("INVALID_ARGUMENT", Reaction.ABSENT),
    3: ("NOT_SUPPORTED", Reaction.ABSENT),
    4: ("NO_PERMISSION", Reaction.ABSENT),
    5: ("ALREADY_INITIALIZED", Reaction.TRANSIENT),
    6: ("NOT_FOUND", Reaction.ABSENT),
    7: ("INSUFFICIENT_SIZE", Reaction.TRANSIENT),
    8: ("INSUFFICIENT_POWER", Reaction.QUARANTINE),
    9: ("DRIVER_NOT_LOADED", Reaction.RESTART),
    10: ("TIMEOUT", Reaction.TRANSIENT),
    11: ("IRQ_ISSUE", Reaction.QUARANTINE),
    12: ("LIBRARY_NOT_FOUND", Reaction.RESTART),
    13: ("FUNCTION_NOT_FOUND", Reaction.ABSENT),
    14: ("CORRUPTED_INFOROM", Reaction.ABSENT),
    15: ("GPU_IS_LOST", Reaction.QUARANTINE),
    16: ("RESET_REQUIRED", Reaction.QUARANTINE),
    17: ("OPERATING_SYSTEM", Reaction.QUARANTINE),
    18: ("LIB_RM_VERSION_MISMATCH", Reaction.RESTART),
    19: ("IN_USE", Reaction.TRANSIENT),
    20: ("MEMORY", Reaction.TRANSIENT),
    21: ("NO_DATA", Reaction.TRANSIENT),
    22: ("VGPU_ECC_NOT_SUPPORTED", Reaction.ABSENT),
    23: ("INSUFFICIENT_RESOURCES", Reaction.TRANSIENT),
    24: ("FREQ_NOT_SUPPORTED", Reaction.ABSENT),
    25: ("ARGUMENT_VERSION_MISMATCH", Reaction.ABSENT),
    26: ("DEPRECATED", Reaction.ABSENT),
    27: ("NOT_READY", Reaction.TRANSIENT),
    28: ("GPU_NOT_FOUND", Reaction.QUARANTINE),
    29: ("INVALID_STATE", Reaction.TRANSIENT),
    30: ("RESET_TYPE_NOT_SUPPORTED", Reaction.ABSENT),
    999: ("UNKNOWN", Reaction.TRANSIENT),
}

FUNCTION_NOT_FOUND = 13
# How pynvml says so: by having no such function, or in later versions by an error that is none of NVML's.
_LACKING = (AttributeError, getattr(pynvml, "NVMLLibraryMismatchError", AttributeError))
NO_DRIVER = frozenset({"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED"})

# What an operator can do, for the errors where that is known.
HINTS: dict[str, str] = {
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


def reaction_to(value: int) -> tuple[str, Reaction]:
    """NVML's name of a return code and our reaction; a code of a later NVML is transient."""
    return CODES.get(value, (f"CODE_{value}", Reaction.TRANSIENT))


def fault_of(call: str, value: int, words: str = "") -> SensorFault:
    """The fault for a return code other than success."""
    code, reaction = reaction_to(value)
    return SensorFault(
        call, code, reaction, "; ".join(filter(None, (words.rstrip("."), HINTS.get(code, ""))))
    )


def raw_function(name: str) -> Callable[..., int]:
    """A function of the library itself, which gives NVML's return code; 0 is success.

    Raises:
        AttributeError: The library lacks it.
    """
    function: Callable[..., int] = getattr(pynvml.nvmlLib, name)
    return function


def _read_fields(handle: object, fields: ctypes.Array[Any]) -> None:
    """NvmlDeviceGetFieldValues into memory of the caller's.

    pynvml makes that anew each time, which takes longer than the call itself.

    Raises:
        AttributeError: The library lacks the function.
        pynvml.NVMLError: As any function of pynvml.
    """
    if code := raw_function("nvmlDeviceGetFieldValues")(handle, len(fields), fields):
        raise pynvml.NVMLError(code)


# Functions that are ours in place of pynvml's.
_OWN = {"nvmlDeviceGetFieldValues": _read_fields}


def nvml_call(function: str, *args: Any) -> Any:  # noqa: ANN401 - pynvml has no types
    """Calls a function of pynvml, translating its errors.

    Raises:
        SensorFault: With the reaction that the return code asks for.
    """
    try:
        return (_OWN.get(function) or getattr(pynvml, function))(*args)
    except pynvml.NVMLError as error:
        raise fault_of(function, error.value, str(error)) from error
    except _LACKING as error:
        # An older pynvml lacks the function, or an older library one that pynvml asks for.
        raise fault_of(function, FUNCTION_NOT_FOUND) from error


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What the driver says of itself: its version, the library's, and how many GPUs it has."""

    driver_version: str
    nvml_version: str
    gpu_count: int


class Library:
    """The initialized library, which all devices of the process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.generation = 0

    def open(self) -> DriverInfo:
        """Initializes NVML and asks it who it is.

        Raises:
            SensorFault: Also where there is no library or no driver (code in NO_DRIVER).
        """
        nvml_call("nvmlInit")
        return DriverInfo(
            str(nvml_call("nvmlSystemGetDriverVersion")),
            str(nvml_call("nvmlSystemGetNVMLVersion")),
            int(nvml_call("nvmlDeviceGetCount")),
        )

    def reopen(self, seen_generation: int) -> None:
        """Initializes NVML again, once for all devices that lost the same generation.

        Raises:
            SensorFault: The library does not come back.
        """
        with self._lock:
            if seen_generation == self.generation:
                nvml_call("nvmlInit")
                self.generation += 1
