"""The worker's end of the pipe to the daemon: requests and reports as JSON lines.

Errors of a probe are in the kinds that the daemon distinguishes. Short hashes identify the
software and model of a result.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

LENGTH = 12


def digest(content: bytes) -> str:
    """Return twelve hex digits of the SHA-256 of content."""
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return twelve hex digits of the SHA-256 of facts; the same in every process."""
    return digest(json.dumps(dict(facts), sort_keys=True).encode())


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
    ("hip error", "device"),
    ("cublas_status", "device"),
    ("cudnn_status", "device"),
    ("hipblas_status", "device"),
    ("miopenstatus", "device"),
    ("nvidia driver", "device"),
)
# Errors of a model that computes gradients within its pass, where none are recorded.
_WANTS_AUTOGRAD = ("does not require grad", "Inference tensors cannot be saved")
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
        return f"the device failed: see the kernel log, and nvidia-smi or amd-smi ({text})"
    if any(sign in text for sign in _WANTS_AUTOGRAD):
        return (
            f'the model computes gradients: set autograd = "enable_grad" in its [[probe]] ({text})'
        )
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_CHARS]


OOM_SCORE_ADJ = "500"
PROGRESS_EVERY_S = 0.1
MAX_LINE_CHARS = 256 * 1024


class Wire:
    """Read requests from standard input, write reports to the original standard output.

    File descriptor 1 is redirected to standard error for the rest of the process, so that output of
    an operator's module cannot be mistaken for a report; reports use a private duplicate. When
    standard input ends the daemon has exited, and the process exits.

    Attributes:
        marked: Set when the daemon reports that the sensors were requested to read an edge.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.marked = threading.Event()
        self._requests: queue.Queue[dict[str, Any]] = queue.Queue(maxsize=4)
        self._progress_s = 0.0
        self._phase = ""
        threading.Thread(target=self._read_commands, name="wire", daemon=True).start()

    def request(self) -> dict[str, Any]:
        """Wait for the next request."""
        return self._requests.get()

    def report(self, line_type: str, /, **fields: Any) -> None:  # noqa: ANN401 - any JSON value
        """Write a line."""
        self._out.write(json.dumps({"type": line_type, **fields}) + "\n")
        self._out.flush()

    def progress(self, phase: str, done: float, note: str = "") -> None:
        """Write a progress line: at each new phase, and at most ten per second within a phase."""
        now_s = time.monotonic()
        if phase != self._phase or now_s - self._progress_s >= PROGRESS_EVERY_S:
            self._phase, self._progress_s = phase, now_s
            self.report("progress", phase=phase, done=round(done, 3), note=note)

    def _read_commands(self) -> None:
        for line in sys.stdin:
            command = _parsed(line)
            if command is None:
                continue
            if command.get("cmd") == "continue":
                self.marked.set()
            elif command.get("cmd") == "stop":
                break
            else:
                self._requests.put(command)
        # Not sys.exit: the main thread may hang in a driver call.
        os._exit(0)


def _parsed(line: str) -> dict[str, Any] | None:
    """Return a command of the process that started this one; None if it is malformed."""
    try:
        command = json.loads(line) if len(line) <= MAX_LINE_CHARS else None
    except (ValueError, RecursionError):
        return None
    return command if isinstance(command, dict) else None


def prepare_process() -> None:
    """Write the stack on a hang or crash, write no core dump, and be the first victim of the OOM killer."""
    faulthandler.enable(all_threads=False)
    # The daemon sends this before it kills a child that exceeded its deadline.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    # Writing that of a process with a model takes minutes.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - one write
            file.write(OOM_SCORE_ADJ)
    except OSError as error:
        sys.stderr.write(f"oom_score_adj: {error}\n")


class Spec(NamedTuple):
    """A configured model and its inputs.

    Attributes:
        kind: Key of `sources.kinds.SOURCES`.
        module: "package.mod:factory" if kind is "module".
        path: Folder of the module; None if the interpreter finds it.
        model: Name or path for the model source.
        weights: File with the model's weights.
        inputs: Inputs of one item, for a source that cannot derive them: for each `shape` without
            the batch, `dtype`, `below` for integers, and `name` for a keyword argument.
        dtype: Type of floating-point weights and inputs; None keeps their own.
        context_tokens: Tokens of a decoder's prompt or context; None for its default.
    """

    kind: str
    module: Optional[str] = None  # noqa: UP045 - evaluated on Python 3.9
    path: Optional[str] = None  # noqa: UP045 - as above
    model: Optional[str] = None  # noqa: UP045 - as above
    weights: Optional[str] = None  # noqa: UP045 - as above
    inputs: tuple[Mapping[str, Any], ...] = ()
    dtype: Optional[str] = None  # noqa: UP045 - as above
    context_tokens: Optional[int] = None  # noqa: UP045 - as above

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Spec:
        """Read the spec from a request to the worker."""
        values: dict[str, Any] = {name: request.get(name) for name in cls._fields}
        return cls(**{**values, "inputs": tuple(request.get("inputs") or ())})

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.module or (f"{self.kind}:{self.model}" if self.model else self.kind)
