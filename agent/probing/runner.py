"""Runs a probe in a child and never lets the child's misdeeds become the daemon's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock
from typing import Any

from agent.probing.child import ProbeChild, worker_command
from agent.probing.outcome import (
    FaultKind,
    ProbeFault,
    ProbeOutcome,
    ProbeProgress,
    read_batch_point,
    read_outcome,
    read_progress,
)
from agent.probing.request import ProbeRequest, ServedRequest
from agent.probing.served_outcome import read_served_outcome

POLL_S = 0.2
MAX_CURVE_POINTS = 64
MAX_TITLE_CHARS = 1000
_ERROR_KINDS: Mapping[str, FaultKind] = {"oom": "oom", "config": "config", "device": "device"}


class ProbeRunner:
    """Runs one probe on one device, or of one server, one run at a time.

    Args:
        python: Interpreter to run the worker under.
        deadline_s: Longest run in seconds; a child that takes longer is killed.
        keep_alive: True to keep the child for the next run; after a fault it is a new one.
        stop: Ends a run.
        command: The worker's command line, by interpreter.
    """

    def __init__(
        self,
        python: str,
        deadline_s: float,
        stop: Event,
        *,
        keep_alive: bool = False,
        command: Callable[[str], tuple[str, ...]] = worker_command,
    ) -> None:
        self._command = command(python)
        self._deadline_s = deadline_s
        self._stop = stop
        self._keep_alive = keep_alive
        self._child: ProbeChild | None = None
        self._lock = Lock()

    def run(
        self,
        request: ProbeRequest | ServedRequest,
        device: str,
        *,
        on_edge: Callable[[], None],
        on_progress: Callable[[ProbeProgress], None],
    ) -> ProbeOutcome | ProbeFault:
        """Runs the probe once.

        Args:
            request: What to run.
            device: Our name of the device, or devices.
            on_edge: Called at both edges of the steady-state region, while the load goes on:
                the moment for the sensors to read.
            on_progress: Told where the run is.

        Raises:
            Exception: What on_edge or on_progress raises, with the child ended; nothing that
                the child does raises anything.
        """
        with self._lock:
            kept = False
            try:
                outcome = self._run(request, device, on_edge, on_progress)
                kept = self._keep_alive and isinstance(outcome, ProbeOutcome)
                return outcome
            finally:
                # Also where a listener of ours raised: the child would go on with its run, and
                # the next one would hear of it.
                if not kept:
                    self._end_child()

    def close(self) -> None:
        """Ends a run that goes on, and a child that is kept."""
        child = self._child
        if child is not None:
            child.kill()
        with self._lock:
            self._end_child()

    def _run(
        self,
        request: ProbeRequest | ServedRequest,
        device: str,
        on_edge: Callable[[], None],
        on_progress: Callable[[ProbeProgress], None],
    ) -> ProbeOutcome | ProbeFault:
        if self._child is None:
            try:
                self._child = ProbeChild(self._command, _environment(request))
            except OSError as error:
                title = f"{self._command[0]} cannot be started ({error.strerror}); set python"
                return ProbeFault("spawn", title, ())
        self._child.send(request.to_wire())
        curve: list[Mapping[str, float]] = []
        ends_s = time.monotonic() + self._deadline_s
        while True:
            message = self._next(self._child, ends_s)
            if isinstance(message, ProbeFault):
                return message
            ended = self._ended(message, request.probe, device, self._child, curve)
            if ended is not None:
                return ended
            if message["type"] == "hello":
                self._child.take_hello(message)
            elif message["type"] in {"region_start", "region_end"}:
                on_edge()
                self._child.send('{"cmd": "continue"}')
            elif message["type"] == "progress":
                on_progress(read_progress(message))
            elif message["type"] == "batch_point" and len(curve) < MAX_CURVE_POINTS:
                curve.append(read_batch_point(message))

    def _ended(
        self,
        message: Mapping[str, Any],
        probe: str,
        device: str,
        child: ProbeChild,
        curve: Sequence[Mapping[str, float]],
    ) -> ProbeOutcome | ProbeFault | None:
        """What the run came to, if this message says so."""
        if message["type"] in {"result", "served_result"}:
            try:
                if message["type"] == "served_result":
                    return read_served_outcome(probe, device, message, child.pids)
                return read_outcome(probe, device, message, child.pids, curve)
            except ValueError as error:
                return _fault("rubbish", f"its result is no result: {error}", child)
        if message["type"] == "error":
            kind = _ERROR_KINDS.get(str(message.get("kind")), "crash")
            title = str(message.get("message", "it gave no reason"))[:MAX_TITLE_CHARS]
            return _fault(kind, title, child)
        if message["type"] == "rubbish":
            title = f"it wrote {child.rubbish_lines} lines that are no report"
            return _fault("rubbish", title, child)
        return None

    def _next(self, child: ProbeChild, ends_s: float) -> dict[str, Any] | ProbeFault:
        """The child's next message, or why there will be none."""
        while True:
            if self._stop.is_set():
                return ProbeFault("cancelled", "the run was ended", ())
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                child.say_where_it_hangs()
                title = (
                    f"no result in {self._deadline_s:g} s: killed; if its last words show no"
                    " hang, set a longer deadline"
                )
                return _fault("deadline", title, child)
            try:
                message = child.receive(min(POLL_S, left_s))
            except TimeoutError:
                continue
            if message is None:
                if self._stop.is_set():
                    return ProbeFault("cancelled", "the run was ended", ())
                return _fault("died", f"the child {child.died_of()}", child)
            return message

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


def _environment(request: ProbeRequest | ServedRequest) -> dict[str, str]:
    """Shows the child its one GPU, whatever order CUDA would give them."""
    extra = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if request.gpu_uuid is not None:
        extra["CUDA_VISIBLE_DEVICES"] = request.gpu_uuid
    return extra


def _fault(kind: FaultKind, title: str, child: ProbeChild) -> ProbeFault:
    """A fault with all that the child had to say, which is known once it is gone."""
    child.kill()
    return ProbeFault(kind, title, child.last_words())
