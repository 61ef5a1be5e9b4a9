"""Running a probe in a child process; no fault of the child affects the daemon.

The child has its own process group and bounded output, and is killed as a group. A host-wide lock
per device allows one probe at a time, also across daemon and CLI. Other processes that use the
device are detected before a probe starts.

A run is interrupted if this process or the probe was stopped, or the host was suspended.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import IO, Any, Final, TypeVar

from costprobe.adapters.host.files import open_own
from costprobe.adapters.host.processes import child_environment, kill_marked, new_mark
from costprobe.adapters.host.redaction import outside_document, outside_text
from costprobe.adapters.probe_child.results import (
    FaultKind,
    ModelStart,
    ProbeFault,
    ProbeProgress,
    ProbeResult,
    read_batch_point,
    read_progress,
    read_result,
    read_start,
)
from costprobe.core.clock import Clock, SystemClock, stopped_s, suspended_ns
from costprobe.core.outside import bounded_object
from costprobe.core.records import NS_PER_S

MAX_LINE_BYTES = 256 * 1024
MAX_QUEUED = 1000
MAX_MALFORMED_LINES = 100
STDERR_LINES = 40
STDERR_LINE_CHARS = 300
KILL_TIMEOUT_S = 2.0
STACK_TIMEOUT_S = 0.3

_SPEC = importlib.util.find_spec("costprobe_probes")
if _SPEC is None or _SPEC.origin is None:
    raise ImportError("costprobe_probes is not installed; reinstall costprobe")
PROBES_FOLDER = Path(_SPEC.origin).resolve().parent
# The package is loaded by its own path: another interpreter must not import other packages of its
# folder, which may contain another torch.
# The working folder, which -c puts on sys.path, is not trusted; -P is unknown before Python 3.11.
_BOOTSTRAP = """
import sys
if sys.path[0] == "": del sys.path[0]
import importlib.util, runpy
folder = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "costprobe_probes", folder + "/__init__.py", submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules["costprobe_probes"] = package
spec.loader.exec_module(package)
runpy.run_module("costprobe_probes.worker", run_name="__main__", alter_sys=True)
"""
# The child that loads a server, under our interpreter.
LOAD_COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "costprobe.adapters.load_child.main")


def worker_command(python: str) -> tuple[str, ...]:
    """Return the command line of a worker under an interpreter that may lack costprobe."""
    return (python, "-c", _BOOTSTRAP, str(PROBES_FOLDER))


class ProbeChild:
    """A running worker process.

    Args:
        command: Its command line.
        extra_env: Added to the daemon's environment, from which secrets are removed.

    Raises:
        OSError: The process could not be started.
    """

    def __init__(self, command: Sequence[str], extra_env: Mapping[str, str]) -> None:
        self._mark = new_mark()
        self._process = subprocess.Popen(  # noqa: S603 - the operator's interpreter, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**child_environment(os.environ), **extra_env, **self._mark},
            start_new_session=True,
        )
        # None at the end of its output.
        self.messages: queue.Queue[dict[str, Any] | None] = queue.Queue(MAX_QUEUED)
        # The last lines of its stderr; complete once it is killed.
        self.stderr_tail: deque[str] = deque(maxlen=STDERR_LINES)
        self._killed = threading.Event()
        # As its handshake states it.
        self.worker_pid: int | None = None
        self.malformed_lines = 0
        self._threads = [
            self._started(self._read_messages, self._process.stdout),
            self._started(self._read_stderr, self._process.stderr),
        ]

    @property
    def pid(self) -> int:
        """Process id, which is also the process group's id."""
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that may use the device: the child, and a worker that it started as a wrapper."""
        worker = self.worker_pid
        return (self.pid,) if worker is None or worker == self.pid else (self.pid, worker)

    def send(self, line: str) -> bool:
        """Send a line; return False if the child has ended."""
        stdin = self._process.stdin
        if stdin is None:
            return False
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError:
            return False
        return True

    def exit_description(self) -> str:
        """Return how the child ended, as text, after a short wait for its end."""
        try:
            code = self._process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "closed its output and hung"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def dump_stack(self) -> None:
        """Make a worker write its stack to stderr (SIGUSR1 ends any other program)."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STACK_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the process group and close the pipes; may be called twice."""
        if not self._killed.is_set():
            # Once only: after its end the group's id may be reused.
            self._killed.set()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            kill_marked(self._mark)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_TIMEOUT_S)
        for thread in self._threads:
            thread.join(KILL_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _started(self, listen: Any, pipe: IO[bytes] | None) -> threading.Thread:  # noqa: ANN401 - a bound method of ours
        thread = threading.Thread(target=listen, args=(pipe,), name="probe child", daemon=True)
        thread.start()
        return thread

    def _read_messages(self, pipe: IO[bytes]) -> None:
        for line in lines_of(pipe):
            message = _parsed(line)
            if message is None:
                self.malformed_lines += 1
            if message is not None or self.malformed_lines == MAX_MALFORMED_LINES:
                self._put(message or {"type": "malformed"})
        self._put(None)

    def _put(self, message: dict[str, Any] | None) -> None:
        """Wait for room in the queue, so that a child that writes too much blocks on its pipe."""
        while not self._killed.is_set():
            try:
                self.messages.put(message, timeout=0.5)
            except queue.Full:
                continue
            return

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        for line in lines_of(pipe):
            words = outside_text(line.decode(errors="replace"), STDERR_LINE_CHARS)
            if words:
                self.stderr_tail.append(words)


def lines_of(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a pipe until its end, or until `kill` closes it: a slow thread may still read then."""
    with suppress(ValueError, OSError):
        yield from iter(lambda: pipe.readline(MAX_LINE_BYTES), b"")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = bounded_object(line, MAX_LINE_BYTES)
    except ValueError:
        return None
    if not isinstance(message.get("type"), str):
        return None
    checked: dict[str, Any] = outside_document(message)
    return checked


# States of a stopped and of a traced process (proc(5)).
STOPPED: Final = frozenset("Tt")


def _is_stopped(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in STOPPED
    return False


logger = logging.getLogger(__name__)

LOCK_POLL_S = 0.1


@contextmanager
def device_lock(folder: Path, device: str, stop: Event, timeout_s: float) -> Iterator[bool]:
    """Hold the host-wide lock of a device while the block runs.

    The kernel releases the lock when its holder dies, so no stale lock remains.

    Args:
        folder: Folder of the lock files; if it cannot be written, or the file is not this
            user's alone, the block runs without a lock.
        device: Name of the device.
        stop: Ends the wait.
        timeout_s: Longest wait in seconds.

    Yields:
        False if another process held the lock until the wait ended.
    """
    try:
        handle = open_own(folder / f"{device}.lock")
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EPERM}:
            logger.warning(
                "probing %s without a lock: %s %s", device, error.filename, error.strerror
            )
        yield True
        return
    try:
        yield _acquired(handle, stop, timeout_s)
    finally:
        os.close(handle)


def _acquired(handle: int, stop: Event, timeout_s: float) -> bool:
    for _ in range(max(1, int(timeout_s / LOCK_POLL_S))):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stop.wait(LOCK_POLL_S):
                return False
        else:
            return True
    return False


def reaches_mps(environ: Mapping[str, str]) -> bool:
    """Return whether a child would share its GPU through a running MPS."""
    folder = environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")  # noqa: S108 - CUDA's own
    return (Path(folder) / "control").exists()


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One run of a probe.

    Attributes:
        probe: Name of the probe.
        document: What the worker reads: the section, each key by its field's name, with numbers in base
            units, and the run's own keys, which replace those of the section.
        visible_gpu: The GPU as CUDA names it in CUDA_VISIBLE_DEVICES; None for a CPU, a server or a GPU
            with a selector.
        selector: The variables by which the child has its GPU alone, as `Device.selector`.
    """

    probe: str
    document: Mapping[str, Any]
    visible_gpu: str | None = None
    selector: str = ""

    def to_wire(self) -> str:
        """Return the request as JSON without a line end."""
        return json.dumps({"cmd": "probe", **self.document}, default=os.fspath)


HOST_CLOCK = SystemClock()
POLL_S = 0.2
MAX_CURVE_POINTS = 64
MAX_TITLE_CHARS = 1000
_ERROR_KINDS: Mapping[str, FaultKind] = {"oom": "oom", "config": "config", "device": "device"}

Record = TypeVar("Record", ProbeResult, ModelStart)
# Reads the record from the message that ends a run; raises ValueError for an invalid one.
Reader = Callable[[Mapping[str, Any]], Record]


class ProbeRunner:
    """Run one probe on one device or server, one run at a time.

    Args:
        command: The child's command line.
        deadline_s: Longest run in seconds; a child that takes longer is killed. It restarts with
            each batch that is compiled, because an empty compile cache may take most of it.
        keep_alive: True to reuse the child for the next run; after a fault a new one is started.
        stop: Ends a run.
        clock: The host's clocks.
    """

    def __init__(
        self,
        command: Sequence[str],
        deadline_s: float,
        stop: Event,
        *,
        keep_alive: bool = False,
        clock: Clock = HOST_CLOCK,
    ) -> None:
        self._command = tuple(command)
        self._deadline_s = deadline_s
        self._stop = stop
        self._keep_alive = keep_alive
        self._child: ProbeChild | None = None
        self._last_pids: tuple[int, ...] = ()
        self._clock = clock
        self._stopped_s = 0.0
        self._phase = ""
        self._curve: list[Mapping[str, float]] = []
        self._ends_s = 0.0
        self._compilations = 0
        self._lock = Lock()

    def run(
        self,
        request: ProbeRequest,
        device: str,
        *,
        on_edge: Callable[[], None],
        on_progress: Callable[[ProbeProgress], None],
    ) -> ProbeResult | ProbeFault:
        """Run the probe once.

        Args:
            request: The run.
            device: Name of the device, or devices.
            on_edge: Called at both edges of the steady-state window, under load, to read the
                sensors.
            on_progress: Called with the run's progress.

        Raises:
            Exception: Errors of on_edge and on_progress, after the child was ended. A fault of the
                child does not raise.
        """

        def read(message: Mapping[str, Any]) -> ProbeResult:
            return read_result(
                message, probe=request.probe, device=device, pids=self.pids, curve=self._curve
            )

        with self._lock:
            return self._run(request, read, on_edge, on_progress, keeps_child=self._keep_alive)

    def start(
        self, request: ProbeRequest, *, on_progress: Callable[[ProbeProgress], None]
    ) -> ModelStart | ProbeFault:
        """Start the model of a request in a new process, until its first answer.

        Args:
            request: The start.
            on_progress: Called with its progress.

        Raises:
            Exception: An error of on_progress, after the child was ended.
        """
        with self._lock:
            self._end_child()
            began_ns = self._clock.monotonic_ns()
            read = partial(read_start, began_ns=began_ns)
            return self._run(request, read, lambda: None, on_progress, keeps_child=False)

    def close(self) -> None:
        """End the current run, and a child that is kept alive."""
        child = self._child
        if child is not None:
            child.kill()
        with self._lock:
            self._end_child()

    def _run(
        self,
        request: ProbeRequest,
        read: Reader[Record],
        on_edge: Callable[[], None],
        on_progress: Callable[[ProbeProgress], None],
        *,
        keeps_child: bool,
    ) -> Record | ProbeFault:
        """Return the record of a run; a fault in place of one that an interruption distorts."""
        outcome: Record | ProbeFault | None = None
        self._stopped_s, before_ns = 0.0, suspended_ns(self._clock)
        try:
            outcome = self._outcome(request, read, on_edge, on_progress)
        finally:
            # Also after an error of a callback: otherwise the child would continue, and the next
            # run would receive its messages.
            if not keeps_child or outcome is None or isinstance(outcome, ProbeFault):
                self._end_child()
        asleep_s = (suspended_ns(self._clock) - before_ns) / NS_PER_S
        lasted_s = self._stopped_s + stopped_s(asleep_s, 0.0)
        if isinstance(outcome, ProbeFault) or not lasted_s:
            return outcome
        title = (
            f"the result is discarded: the probe, this process or the host was stopped for"
            f" {lasted_s:.1f} s meanwhile"
        )
        return ProbeFault("interrupted", title, ())

    def _outcome(
        self,
        request: ProbeRequest,
        read: Reader[Record],
        on_edge: Callable[[], None],
        on_progress: Callable[[ProbeProgress], None],
    ) -> Record | ProbeFault:
        if self._child is None:
            try:
                self._child = ProbeChild(self._command, environment_of(request))
            except OSError as error:
                title = f"{self._command[0]} cannot be started ({error.strerror}); set python"
                return ProbeFault("spawn", title, ())
        self._phase, self._compilations, self._curve = "", 0, []
        self._child.send(request.to_wire())
        self._ends_s = self._now_s() + self._deadline_s
        while True:
            message = self._next(self._child)
            if isinstance(message, ProbeFault):
                return message
            outcome = self._outcome_in(message, read, self._child)
            if outcome is not None:
                return outcome
            if message["type"] == "handshake":
                pid = message.get("pid")
                self._child.worker_pid = pid if isinstance(pid, int) else None
            elif message["type"] in {"window_start", "window_end"}:
                on_edge()
                self._child.send('{"cmd": "continue"}')
            elif message["type"] == "progress":
                progress = read_progress(message)
                self._note_phase(progress)
                on_progress(progress)
            elif message["type"] == "batch_point" and len(self._curve) < MAX_CURVE_POINTS:
                self._curve.append(read_batch_point(message))

    def _note_phase(self, progress: ProbeProgress) -> None:
        """Record the phase for a fault, and restart the deadline if a batch is compiled."""
        phase = f"{progress.phase} {progress.note}".strip()
        is_new = phase != self._phase
        self._phase = phase
        if progress.phase == "compile" and is_new and self._compilations < MAX_CURVE_POINTS:
            self._compilations += 1
            self._ends_s = self._now_s() + self._deadline_s

    def _outcome_in(
        self, message: Mapping[str, Any], read: Reader[Record], child: ProbeChild
    ) -> Record | ProbeFault | None:
        """Return the outcome if this message ends the run."""
        if message["type"] in {"result", "cold_start"}:
            try:
                return read(message)
            except ValueError as error:
                fix = "if costprobe was upgraded meanwhile, restart it"
                return _fault("malformed", f"invalid result: {error}; {fix}", child)
        if message["type"] == "error":
            kind = _ERROR_KINDS.get(str(message.get("kind")), "crash")
            title = str(message.get("message", "it reported no reason"))[:MAX_TITLE_CHARS]
            return _fault(kind, title, child)
        if message["type"] == "malformed":
            title = f"it wrote {child.malformed_lines} malformed lines"
            return _fault("malformed", title, child)
        return None

    def _next(self, child: ProbeChild) -> dict[str, Any] | ProbeFault:
        """Return the child's next message, or why there will be none."""
        while True:
            if self._stop.is_set():
                return ProbeFault("cancelled", "the run was ended", ())
            began_s = self._now_s()
            left_s = self._ends_s - began_s
            if left_s <= 0:
                child.dump_stack()
                title = (
                    f"no result in {self._deadline_s:g} s, last phase {self._phase or 'start'}:"
                    " killed; if its stderr shows no hang, set a longer deadline"
                )
                return _fault("deadline", title, child)
            wait_s = min(POLL_S, left_s)
            try:
                message = child.messages.get(timeout=wait_s)
            except queue.Empty:
                self._extend(began_s, wait_s, child.pids)
                continue
            self._extend(began_s, wait_s, ())
            if message is None:
                if self._stop.is_set():
                    return ProbeFault("cancelled", "the run was ended", ())
                return _fault("died", f"the child {child.exit_description()}", child)
            return message

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _extend(self, began_s: float, wait_s: float, pids: Iterable[int]) -> None:
        """Move the deadline by an interruption: a stopped probe does not hang."""
        lasted_s = self._now_s() - began_s
        late_s = stopped_s(lasted_s, wait_s) or lasted_s * any(map(_is_stopped, pids))
        self._stopped_s += late_s
        self._ends_s += late_s

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of the child, or of the last one, which sensors may have seen a moment ago."""
        return self._last_pids if self._child is None else self._child.pids

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            self._last_pids = child.pids
            child.kill()


def environment_of(request: ProbeRequest) -> dict[str, str]:
    """Return the environment in which the child has only its GPU."""
    extra = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if request.visible_gpu is not None:
        # NVML's order, for a GPU that is named by its number.
        extra["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        extra["CUDA_VISIBLE_DEVICES"] = request.visible_gpu
    extra |= dict(pair.split("=", 1) for pair in request.selector.split())
    return extra


def _fault(kind: FaultKind, title: str, child: ProbeChild) -> ProbeFault:
    """Kill the child, and return a fault with its stderr tail."""
    child.kill()
    return ProbeFault(kind, title, tuple(child.stderr_tail))
