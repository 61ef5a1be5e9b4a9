"""Errors of a probe, in the kinds that the daemon distinguishes."""

from __future__ import annotations

# Substrings of the errors of torch and the libraries below it; the first match decides. torch has
# an exception class for exhausted GPU memory only, not for host memory or a lost device.
_SIGNS = (
    ("out of memory", "oom"),
    ("can't allocate memory", "oom"),
    ("_alloc_failed", "oom"),
    ("cuda error", "device"),
    ("cublas_status", "device"),
    ("cudnn_status", "device"),
    ("nvidia driver", "device"),
)
MAX_CHARS = 400


class ProbeConfigError(Exception):
    """The configuration names something that does not exist; the text states the fix."""


class DeviceError(Exception):
    """The device cannot be used; the text states the fix."""


def kind_of(error: BaseException) -> str:
    """Return the kind of an exception: "config", "device", "oom", or "crash" for any other."""
    if isinstance(error, ProbeConfigError):
        return "config"
    if isinstance(error, DeviceError):
        return "device"
    if isinstance(error, MemoryError):
        return "oom"
    text = str(error).lower()
    return next((kind for sign, kind in _SIGNS if sign in text), "crash")


def describe(error: BaseException, batch: object) -> str:
    """Describe an exception in one line with its fix.

    Args:
        error: The exception.
        batch: The configured batch, a number or "auto".
    """
    if isinstance(error, (ProbeConfigError, DeviceError)):
        return _one_line(str(error))
    text = _one_line(f"{type(error).__name__}: {error}")
    kind = kind_of(error)
    if kind == "oom":
        return f"out of memory at batch {batch}: set memory_cap or a smaller batch ({text})"
    if kind == "device":
        return f"the device failed: see the kernel log and nvidia-smi ({text})"
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_CHARS]
