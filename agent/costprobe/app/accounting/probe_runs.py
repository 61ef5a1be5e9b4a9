"""The times in which probes of models used each device, for the cost of probing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from costprobe.adapters.probing.outcome import ProbeFault, ProbeOutcome
from costprobe.core.records import NS_PER_S

MAX_RUNS = 4096


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """A probe run on a device.

    Attributes:
        start_ns: CLOCK_MONOTONIC ns at which it started to use the device.
        end_ns: CLOCK_MONOTONIC ns at which it stopped.
        pids: Its processes.
    """

    start_ns: int
    end_ns: int
    pids: tuple[int, ...] = ()


class ProbeRuns:
    """The last runs on each device; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[str, int] = {}
        self._runs: dict[str, deque[ProbeRun]] = {}

    def begin(self, device: str, now_ns: int) -> None:
        """Record the start of a run; a device has one at a time."""
        with self._lock:
            self._open[device] = now_ns

    def end(self, device: str, now_ns: int, outcome: ProbeOutcome | ProbeFault | None) -> None:
        """Record the end of a run.

        A run starts an interpreter and loads a model before it uses the device: the device was
        busy for the `busy_s` of its result, up to the end of its steady load. For a failed run
        that is unknown, and its whole duration counts.

        Args:
            device: Name of the device.
            now_ns: CLOCK_MONOTONIC ns.
            outcome: Its outcome; None if that is unknown.
        """
        with self._lock:
            start_ns = self._open.pop(device, now_ns)
            run = ProbeRun(start_ns, now_ns)
            if isinstance(outcome, ProbeOutcome):
                end_ns = min(now_ns, max(outcome.steady_end_ns, start_ns))
                busy_ns = int(outcome.result.busy_s * NS_PER_S)
                run = ProbeRun(max(start_ns, end_ns - busy_ns), end_ns, outcome.pids)
            self._runs.setdefault(device, deque(maxlen=MAX_RUNS)).append(run)

    def is_open_before(self, device: str, end_ns: int) -> bool:
        """Return whether a run that started before an instant is still in progress."""
        with self._lock:
            return self._open.get(device, end_ns) < end_ns

    def between(self, device: str, start_ns: int, end_ns: int) -> Sequence[ProbeRun]:
        """Return the parts of runs that lie between two CLOCK_MONOTONIC ns."""
        with self._lock:
            runs = list(self._runs.get(device, ()))
        return [
            ProbeRun(max(run.start_ns, start_ns), min(run.end_ns, end_ns), run.pids)
            for run in runs
            if run.start_ns < end_ns and run.end_ns > start_ns
        ]
