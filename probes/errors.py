"""What can go wrong with a probe, in the few kinds that the daemon tells apart."""

from __future__ import annotations

# Signs in the text of what torch and the libraries below it raise, the first that fits; torch has
# a class for a full GPU alone, and neither for a full host nor for a lost device.
_SIGNS = (
    ("out of memory", "oom"),
    ("can't allocate memory", "oom"),
    ("_alloc_failed", "oom"),
    ("cuda error", "device"),
    ("cublas_status", "device"),
    ("cudnn_status", "device"),
    ("nvidia driver", "device"),
)
MAX_WORDS = 400


class ConfigError(Exception):
    """The operator asked for something that is not there; the text says how to mend it."""


class DeviceError(Exception):
    """The device cannot be used; the text says how to mend it."""


def kind_of(error: BaseException) -> str:
    """The kind of what was raised: "config", "device", "oom", or "crash" for all else."""
    if isinstance(error, ConfigError):
        return "config"
    if isinstance(error, DeviceError):
        return "device"
    if isinstance(error, MemoryError):
        return "oom"
    text = str(error).lower()
    return next((kind for sign, kind in _SIGNS if sign in text), "crash")


def words_on(error: BaseException, batch: object) -> str:
    """What was raised, in one line that says what to do.

    Args:
        error: What was raised.
        batch: The batch that was asked for, a number or "auto".
    """
    if isinstance(error, (ConfigError, DeviceError)):
        return _one_line(str(error))
    words = _one_line(f"{type(error).__name__}: {error}")
    kind = kind_of(error)
    if kind == "oom":
        return f"out of memory at batch {batch}: set memory_cap or a smaller batch ({words})"
    if kind == "device":
        return f"the device failed: see the kernel log and nvidia-smi ({words})"
    return words


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_WORDS]
