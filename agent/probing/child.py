"""A probe child's process: spawned in a group of its own, heard within bounds, killed whole."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import agent
from agent.child_environment import child_environment
from agent.child_mark import kill_marked, new_mark

MAX_LINE_BYTES = 256 * 1024
MAX_QUEUED = 1000
MAX_RUBBISH_LINES = 100
LAST_WORDS = 40
LAST_WORDS_CHARS = 300
KILL_TIMEOUT_S = 2.0
STACK_TIMEOUT_S = 0.3

PROBES_FOLDER = Path(agent.__file__).resolve().parents[1] / "probes"
# The package is put in place by its path alone: a foreign interpreter must not see the rest of
# the folder that it lies in, which may hold another torch.
# The working folder, which -c puts in front, may be anybody's; -P is unknown before Python 3.11.
_BOOTSTRAP = """
import sys
if sys.path[0] == "": del sys.path[0]
import importlib.util, runpy
folder = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "probes", folder + "/__init__.py", submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules["probes"] = package
spec.loader.exec_module(package)
runpy.run_module("probes.worker", run_name="__main__", alter_sys=True)
"""


def worker_command(python: str) -> tuple[str, ...]:
    """The command line of a worker under an interpreter that may know nothing of infercost."""
    return (python, "-c", _BOOTSTRAP, str(PROBES_FOLDER))


class ProbeChild:
    """A running worker.

    Args:
        command: Its command line.
        extra_env: Added to our own environment, of which it gets no secrets.

    Raises:
        OSError: It could not be started.
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
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._killed = threading.Event()
        self._hello_pid: int | None = None
        self.rubbish_lines = 0
        self._threads = [
            self._started(self._hear, self._process.stdout),
            self._started(self._overhear, self._process.stderr),
        ]

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that may hold the device: ours, and the worker that a wrapper started."""
        worker = self._hello_pid
        return (self.pid,) if worker is None or worker == self.pid else (self.pid, worker)

    def take_hello(self, message: Mapping[str, Any]) -> None:
        """Takes the worker's own word on its process."""
        pid = message.get("pid")
        self._hello_pid = pid if isinstance(pid, int) else None

    def send(self, line: str) -> bool:
        """Sends a line; False if the child is gone."""
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
        """The next message; None if the child's output has ended.

        Raises:
            TimeoutError: Nothing came in time.
        """
        try:
            return self._messages.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def died_of(self) -> str:
        """How the child ended, in words; waits for its end briefly."""
        try:
            code = self._process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "closed its output and hung"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def last_words(self) -> tuple[str, ...]:
        """The last lines of its standard error; all of them once it is killed."""
        return tuple(self._last_words)

    def say_where_it_hangs(self) -> None:
        """Has a worker write its stack to its last words; anything else ends by it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STACK_TIMEOUT_S)

    def kill(self) -> None:
        """Kills all that it started and frees its pipes; may be called twice."""
        if not self._killed.is_set():
            # Only once: when the group is gone its id may be another's.
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

    def _hear(self, pipe: IO[bytes]) -> None:
        for line in iter(lambda: pipe.readline(MAX_LINE_BYTES), b""):
            message = _parsed(line)
            if message is None:
                self.rubbish_lines += 1
            if message is not None or self.rubbish_lines == MAX_RUBBISH_LINES:
                self._put(message or {"type": "rubbish"})
        self._put(None)

    def _put(self, message: dict[str, Any] | None) -> None:
        """Waits for room, so that a child that writes too much is held up by its own pipe."""
        while not self._killed.is_set():
            try:
                self._messages.put(message, timeout=0.5)
            except queue.Full:
                continue
            return

    def _overhear(self, pipe: IO[bytes]) -> None:
        for line in iter(lambda: pipe.readline(MAX_LINE_BYTES), b""):
            words = line.decode(errors="replace").strip()
            if words:
                self._last_words.append(words[:LAST_WORDS_CHARS])


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None
