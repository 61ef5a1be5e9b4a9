"""When probes of models kept each device busy: what probing costs is its own line."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from agent.model import NS_PER_S
from agent.probing.outcome import ProbeFault, ProbeOutcome

MAX_RUNS = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """A run on a device.

    Attributes:
        start_ns: CLOCK_MONOTONIC ns from which it kept the device busy.
        end_ns: CLOCK_MONOTONIC ns until which it did.
        pids: Its processes.
    """

    start_ns: int
    end_ns: int
    pids: tuple[int, ...] = ()


class ProbeRuns:
    """The last runs on each device; any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[str, int] = {}
        self._runs: dict[str, deque[Run]] = {}

    def begin(self, device: str, now_ns: int) -> None:
        """A run begins; a device has one at a time."""
        with self._lock:
            self._open[device] = now_ns

    def end(self, device: str, now_ns: int, outcome: ProbeOutcome | ProbeFault | None) -> None:
        """A run has ended.

        Before its load it starts an interpreter and reads a model: the device was busy for as long
        as the run says, up to the end of its steady load. Of one that failed nobody can say: all
        of it counts.

        Args:
            device: Name of the device.
            now_ns: CLOCK_MONOTONIC ns.
            outcome: What it came to; None if not even that is known.
        """
        with self._lock:
            start_ns = self._open.pop(device, now_ns)
            run = Run(start_ns, now_ns)
            if isinstance(outcome, ProbeOutcome):
                end_ns = min(now_ns, max(outcome.steady_end_ns, start_ns))
                busy_ns = int(outcome.result.busy_s * NS_PER_S)
                run = Run(max(start_ns, end_ns - busy_ns), end_ns, outcome.pids)
            self._runs.setdefault(device, deque(maxlen=MAX_RUNS)).append(run)

    def is_open_before(self, device: str, end_ns: int) -> bool:
        """Whether a run that began before an instant has yet to end."""
        with self._lock:
            return self._open.get(device, end_ns) < end_ns

    def between(self, device: str, start_ns: int, end_ns: int) -> Sequence[Run]:
        """The parts of runs that lie between two CLOCK_MONOTONIC ns."""
        with self._lock:
            runs = list(self._runs.get(device, ()))
        return [
            Run(max(run.start_ns, start_ns), min(run.end_ns, end_ns), run.pids)
            for run in runs
            if run.start_ns < end_ns and run.end_ns > start_ns
        ]
