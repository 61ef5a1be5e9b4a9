"""The process of a probe child: its own process group, bounded output, killed as a group."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from costprobe.adapters.system.child_environment import child_environment
from costprobe.adapters.system.child_reaper import kill_marked, new_mark
from costprobe.adapters.system.outside_text import outside_document, outside_text
from costprobe.core.bounded import bounded_object

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
LOAD_COMMAND = (sys.executable, "-P", "-m", "costprobe.adapters.load_child.main")


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
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue(MAX_QUEUED)
        self._last_words: deque[str] = deque(maxlen=STDERR_LINES)
        self._killed = threading.Event()
        self._worker_pid: int | None = None
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
        worker = self._worker_pid
        return (self.pid,) if worker is None or worker == self.pid else (self.pid, worker)

    def handle_handshake(self, message: Mapping[str, Any]) -> None:
        """Record the worker's own process id."""
        pid = message.get("pid")
        self._worker_pid = pid if isinstance(pid, int) else None

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

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message; None at the end of the child's output.

        Raises:
            TimeoutError: No message within timeout_s.
        """
        try:
            return self._messages.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def exit_description(self) -> str:
        """Return how the child ended, as text, after a short wait for its end."""
        try:
            code = self._process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "closed its output and hung"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def stderr_tail(self) -> tuple[str, ...]:
        """Return the last lines of its stderr; complete once it is killed."""
        return tuple(self._last_words)

    def dump_stack(self) -> None:
        """Make a worker write its stack to stderr (SIGUSR1 ends any other program)."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STACK_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the process group and close the pipes; may be called twice."""
        if not self._killed.is_set():
            # Once only: after its end the group's id may be reused.
            self._killed.set()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            kill_marked(self._mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_TIMEOUT_S)
        for thread in self._threads:
            thread.join(KILL_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _started(self, listen: Any, pipe: IO[bytes] | None) -> threading.Thread:  # noqa: ANN401 - a bound method of ours
        thread = threading.Thread(target=listen, args=(pipe,), name="probe child", daemon=True)
        thread.start()
        return thread

    def _read_messages(self, pipe: IO[bytes]) -> None:
        for line in iter(lambda: pipe.readline(MAX_LINE_BYTES), b""):
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
                self._messages.put(message, timeout=0.5)
            except queue.Full:
                continue
            return

    def _read_stderr(self, pipe: IO[bytes]) -> None:
        for line in iter(lambda: pipe.readline(MAX_LINE_BYTES), b""):
            words = outside_text(line.decode(errors="replace"), STDERR_LINE_CHARS)
            if words:
                self._last_words.append(words)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = bounded_object(line, MAX_LINE_BYTES)
    except ValueError:
        return None
    if not isinstance(message.get("type"), str):
        return None
    checked: dict[str, Any] = outside_document(message)
    return checked
