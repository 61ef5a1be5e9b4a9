"""The worker's end of the pipe to the daemon: requests and reports as JSON lines."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from costprobe_probes.bounded import parse_bounded

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
    if len(line) > MAX_LINE_CHARS:
        return None
    try:
        command = parse_bounded(line.encode())
    except ValueError:
        return None
    return command if isinstance(command, dict) else None
