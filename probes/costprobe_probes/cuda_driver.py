"""Why CUDA's driver cannot be initialized: its error codes, with a fix for each.

Codes: cuda.h, CUresult. It is also run as a file, by an interpreter without costprobe.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

FIXES: Final[Mapping[int, str]] = {
    802: "SYSTEM_NOT_READY: the NVSwitch fabric is not initialized; start nvidia-fabricmanager of the"
    " driver's version",
    803: "SYSTEM_DRIVER_MISMATCH: libcuda.so.1 and the kernel module have different versions; reboot,"
    " or unload and load the nvidia modules",
    804: "COMPAT_NOT_SUPPORTED_ON_DEVICE: a libcuda.so.1 of a compatibility package (cuda-compat) is"
    " loaded, which this GPU does not support; remove it from the library path, or upgrade the driver",
    999: "UNKNOWN: usually nvidia_uvm is not loaded or its device is blocked; run `modprobe"
    " nvidia_uvm`, and let this process open /dev/nvidia-uvm",
}


def driver_code() -> int:
    """Return what cuInit(0) returns; 0 where there is no driver library."""
    try:
        return int(ctypes.CDLL("libcuda.so.1").cuInit(0))
    except (OSError, AttributeError):
        return 0


def driver_problem(code: int) -> str:
    """Return the name of an error of CUDA's driver and its fix; empty for codes without one."""
    fix = FIXES.get(code)
    return "" if fix is None else f"cuInit returns {code}, CUDA_ERROR_{fix}"
