"""Run a probe in a child process; no fault of the child affects the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event, Lock
from typing import Any, TypeVar

from costprobe.adapters.probing.child import ProbeChild
from costprobe.adapters.probing.interruption import Interruptions
from costprobe.adapters.probing.outcome import (
    FaultKind,
    ProbeFault,
    ProbeOutcome,
    ProbeProgress,
    read_batch_point,
    read_outcome,
    read_progress,
)
from costprobe.adapters.probing.probe_request import ProbeRequest
from costprobe.adapters.probing.served_outcome import read_served_outcome
from costprobe.adapters.probing.start_outcome import StartOutcome, read_start
from costprobe.core.clock import Clock, SystemClock
from costprobe.core.records import NS_PER_S

HOST_CLOCK = SystemClock()
POLL_S = 0.2
MAX_CURVE_POINTS = 64
MAX_TITLE_CHARS = 1000
_ERROR_KINDS: Mapping[str, FaultKind] = {"oom": "oom", "config": "config", "device": "device"}

Curve = Sequence[Mapping[str, float]]
Outcome = TypeVar("Outcome", ProbeOutcome, StartOutcome)
# Reads the outcome from the message that ends a run; raises ValueError for an invalid one.
Reader = Callable[[Mapping[str, Any], ProbeChild, Curve], Outcome]


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
        self._clock = clock
        self._interruptions = Interruptions(clock)
        self._phase = ""
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
    ) -> ProbeOutcome | ProbeFault:
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

        def read(message: Mapping[str, Any], child: ProbeChild, curve: Curve) -> ProbeOutcome:
            if message["type"] == "served_result":
                return read_served_outcome(request.probe, device, message, child.pids)
            return read_outcome(request.probe, device, message, child.pids, curve)

        with self._lock:
            keep_child = False
            try:
                self._interruptions = Interruptions(self._clock)
                outcome = self._run(request, read, on_edge, on_progress)
                keep_child = self._keep_alive and isinstance(outcome, ProbeOutcome)
                return self._unless_interrupted(outcome)
            finally:
                # Also after an error of a callback: otherwise the child would continue, and the next
                # run would receive its messages.
                if not keep_child:
                    self._end_child()

    def start(
        self, request: ProbeRequest, *, on_progress: Callable[[ProbeProgress], None]
    ) -> StartOutcome | ProbeFault:
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

            def read(message: Mapping[str, Any], _child: ProbeChild, _curve: Curve) -> StartOutcome:
                return read_start(message, began_ns)

            try:
                self._interruptions = Interruptions(self._clock)
                return self._unless_interrupted(self._run(request, read, lambda: None, on_progress))
            finally:
                self._end_child()

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
        read: Reader[Outcome],
        on_edge: Callable[[], None],
        on_progress: Callable[[ProbeProgress], None],
    ) -> Outcome | ProbeFault:
        if self._child is None:
            try:
                self._child = ProbeChild(self._command, _environment(request))
            except OSError as error:
                title = f"{self._command[0]} cannot be started ({error.strerror}); set python"
                return ProbeFault("spawn", title, ())
        self._phase, self._compilations = "", 0
        self._child.send(request.to_wire())
        curve: list[Mapping[str, float]] = []
        self._ends_s = self._now_s() + self._deadline_s
        while True:
            message = self._next(self._child)
            if isinstance(message, ProbeFault):
                return message
            outcome = self._outcome_in(message, read, self._child, curve)
            if outcome is not None:
                return outcome
            if message["type"] == "handshake":
                self._child.handle_handshake(message)
            elif message["type"] in {"window_start", "window_end"}:
                on_edge()
                self._child.send('{"cmd": "continue"}')
            elif message["type"] == "progress":
                progress = read_progress(message)
                self._note_phase(progress)
                on_progress(progress)
            elif message["type"] == "batch_point" and len(curve) < MAX_CURVE_POINTS:
                curve.append(read_batch_point(message))

    def _unless_interrupted(self, outcome: Outcome | ProbeFault) -> Outcome | ProbeFault:
        """Return the outcome; a fault in place of a result that an interruption distorts."""
        lasted_s = self._interruptions.total_s()
        if isinstance(outcome, ProbeFault) or not lasted_s:
            return outcome
        title = (
            f"the result is discarded: the probe, this process or the host was stopped for"
            f" {lasted_s:.1f} s meanwhile"
        )
        return ProbeFault("interrupted", title, ())

    def _note_phase(self, progress: ProbeProgress) -> None:
        """Record the phase for a fault, and restart the deadline if a batch is compiled."""
        phase = f"{progress.phase} {progress.note}".strip()
        is_new = phase != self._phase
        self._phase = phase
        if progress.phase == "compile" and is_new and self._compilations < MAX_CURVE_POINTS:
            self._compilations += 1
            self._ends_s = self._now_s() + self._deadline_s

    def _outcome_in(
        self,
        message: Mapping[str, Any],
        read: Reader[Outcome],
        child: ProbeChild,
        curve: Curve,
    ) -> Outcome | ProbeFault | None:
        """Return the outcome if this message ends the run."""
        if message["type"] in {"result", "served_result", "cold_start"}:
            try:
                return read(message, child, curve)
            except ValueError as error:
                return _fault("malformed", f"invalid result: {error}", child)
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
                message = child.receive(wait_s)
            except TimeoutError:
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
        self._ends_s += self._interruptions.add_wait(lasted_s, wait_s, pids)

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


def _environment(request: ProbeRequest) -> dict[str, str]:
    """Return the environment in which the child has only its GPU, independent of CUDA's order."""
    extra = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if request.gpu_uuid is not None:
        extra["CUDA_VISIBLE_DEVICES"] = request.gpu_uuid
    return extra


def _fault(kind: FaultKind, title: str, child: ProbeChild) -> ProbeFault:
    """Kill the child, and return a fault with its stderr tail."""
    child.kill()
    return ProbeFault(kind, title, child.stderr_tail())
