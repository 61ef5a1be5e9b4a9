"""The sensor child as the daemon holds it: a process group, three pipes, and its last words."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from agent.child_environment import child_environment
from agent.telemetry.wire import COMMAND_BYTES_MAX, LineSplitter, Message, encode

LAST_WORDS_BYTES: Final = 2000
READ_BYTES: Final = 65536


class ChildProcess:
    """A started child. Its thread of creation must outlive it: the kernel kills it with that one.

    Args:
        command: Program and arguments.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # A session of its own: Ctrl-C in the daemon's terminal is for the daemon alone.
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
        self._last_words = b""
        self.pid = self._process.pid
        self.stdout_fd = stdout.fileno()
        self.stderr_fd = stderr.fileno()

    @property
    def overlong_lines(self) -> int:
        """Lines thrown away because they were too long."""
        return self._lines.overlong_lines

    def send(self, message: Message) -> bool:
        """Writes a command, without waiting; False where the child is gone or does not read."""
        line = encode(message)
        if len(line) > COMMAND_BYTES_MAX:
            return False
        with self._write_lock:
            try:
                return os.write(self._pipes[0].fileno(), line) == len(line)
            except (OSError, ValueError):  # ValueError: the pipe was closed
                return False

    def read_lines(self) -> list[bytes] | None:
        """The lines that stand ready on its output; None once that is closed."""
        data = os.read(self.stdout_fd, READ_BYTES)
        return self._lines.feed(data) if data else None

    def read_words(self) -> bool:
        """Keeps the end of what it says on stderr; False once that is closed."""
        data = os.read(self.stderr_fd, READ_BYTES)
        self._last_words = (self._last_words + data)[-LAST_WORDS_BYTES:]
        return bool(data)

    def kill(self) -> None:
        """Kills the child and whatever it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def end(self, grace_s: float, kill_wait_s: float) -> int | None:
        """Waits a while for its end, then kills it; its exit status, or None if it will not go."""
        status = self.reap(grace_s)
        if status is None:
            self.kill()
            status = self.reap(kill_wait_s)
        return status

    def reap(self, timeout_s: float) -> int | None:
        """Waits for its end and gives its exit status; None if it will not go.

        A process that hangs inside the driver does not even die of SIGKILL until the driver
        lets go of it.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Closes the daemon's ends of the pipes."""
        with self._write_lock:
            for pipe in self._pipes:
                pipe.close()

    def last_words(self) -> str:
        """The last line of what it said on stderr; empty where it said nothing."""
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
