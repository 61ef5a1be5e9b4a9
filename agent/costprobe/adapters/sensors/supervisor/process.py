"""The sensor child as a process: a process group, three pipes, and the tail of its stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from costprobe.adapters.sensors.protocol.messages import (
    COMMAND_BYTES_MAX,
    LineSplitter,
    Message,
    encode,
)
from costprobe.adapters.system.child_environment import child_environment

STDERR_TAIL_BYTES: Final = 2000
READ_BYTES: Final = 65536


class ChildProcess:
    """A started child. The kernel kills it when the thread that started it ends.

    Args:
        command: Program and arguments.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # Its own session, so that Ctrl-C in the daemon's terminal reaches only the daemon.
        self._process = subprocess.Popen(  # noqa: S603 - the daemon's own configuration
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=child_environment(os.environ),
            start_new_session=True,
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise OSError("the child has no pipes")
        self._pipes = (stdin, stdout, stderr)
        os.set_blocking(stdin.fileno(), False)
        self._write_lock = threading.Lock()
        self._lines = LineSplitter()
        self._stderr_tail = b""
        self.pid = self._process.pid
        self.stdout_fd = stdout.fileno()
        self.stderr_fd = stderr.fileno()

    @property
    def overlong_lines(self) -> int:
        """Number of lines that were discarded because they were too long."""
        return self._lines.overlong_lines

    def send(self, message: Message) -> bool:
        """Write a command without blocking; False if the child is gone or does not read."""
        line = encode(message)
        if len(line) > COMMAND_BYTES_MAX:
            return False
        with self._write_lock:
            try:
                return os.write(self._pipes[0].fileno(), line) == len(line)
            except (OSError, ValueError):  # ValueError: the pipe was closed
                return False

    def read_lines(self) -> list[bytes] | None:
        """Return the available lines of its output; None once it is closed."""
        data = os.read(self.stdout_fd, READ_BYTES)
        return self._lines.feed(data) if data else None

    def read_stderr(self) -> bool:
        """Read the tail of its stderr; return False once it is closed."""
        data = os.read(self.stderr_fd, READ_BYTES)
        self._stderr_tail = (self._stderr_tail + data)[-STDERR_TAIL_BYTES:]
        return bool(data)

    def kill(self) -> None:
        """Kill the child and its descendants."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def end(self, grace_s: float, kill_wait_s: float) -> int | None:
        """Wait for its end, then kill it; return its exit status, or None if it does not end."""
        status = self.reap(grace_s)
        if status is None:
            self.kill()
            status = self.reap(kill_wait_s)
        return status

    def reap(self, timeout_s: float) -> int | None:
        """Wait for its end and return its exit status; None if it does not end.

        SIGKILL has no effect on a process that is blocked inside the driver until the call
        returns.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Close the daemon's ends of the pipes."""
        with self._write_lock:
            for pipe in self._pipes:
                pipe.close()

    def stderr_line(self) -> str:
        """Return the last line of its stderr; empty if there is none."""
        lines = self._stderr_tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
