"""Errors of a probe, in the kinds that the daemon distinguishes."""

from __future__ import annotations

from collections.abc import Iterator

# Substrings of the errors of torch and the libraries below it; the first match decides. torch has
# an exception class for exhausted GPU memory only, not for host memory or a lost device.
_SIGNS = (
    ("out of memory", "oom"),
    ("can't allocate memory", "oom"),
    ("_alloc_failed", "oom"),
    # torch discards the errors of the engines that it tries, exhausted memory among them
    # (aten/src/ATen/native/cudnn/Conv_v8.cpp, Conv_v7.cpp).
    ("unable to find an engine", "oom"),
    ("unable to find a valid cudnn algorithm", "oom"),
    ("no execution plans", "oom"),
    # A library without a kernel for a tensor of this size (ATen/cuda/Exceptions.h).
    ("status_not_supported", "oom"),
    ("cuda error", "device"),
    ("cublas_status", "device"),
    ("cudnn_status", "device"),
    ("nvidia driver", "device"),
)
MAX_CHARS = 400
MAX_CAUSES = 10


class ProbeConfigError(Exception):
    """The configuration is invalid; the text states the fix."""


class CaptureError(ProbeConfigError):
    """A pass cannot be captured as a CUDA graph; the text states the fix."""


class DeviceError(Exception):
    """The device cannot be used; the text states the fix."""


def kind_of(error: BaseException) -> str:
    """Return the kind of an exception: "config", "device", "oom", or "crash" for any other."""
    if isinstance(error, ProbeConfigError):
        return "config"
    if isinstance(error, DeviceError):
        return "device"
    if any(isinstance(cause, MemoryError) for cause in _causes(error)):
        return "oom"
    text = "\n".join(str(cause) for cause in _causes(error)).lower()
    return next((kind for sign, kind in _SIGNS if sign in text), "crash")


def is_too_large(error: BaseException) -> bool:
    """Return whether a pass failed that may succeed with a smaller batch.

    A failed capture counts, although its message may not name memory: an allocation that fails
    invalidates the capture, which may hide its error (github.com/pytorch/pytorch, pull request
    187795).

    Args:
        error: What the pass raised, where the same pass succeeded with a smaller batch.
    """
    return isinstance(error, CaptureError) or kind_of(error) == "oom"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it: ending a failed capture raises another one."""
    cause: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


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
        return f"out of memory, or no kernel of this size, at batch {batch}: set memory_cap or a smaller batch ({text})"
    if kind == "device":
        return f"the device failed: see the kernel log and nvidia-smi ({text})"
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_CHARS]
