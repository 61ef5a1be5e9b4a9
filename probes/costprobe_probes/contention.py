"""What took processor time from a probe: other processes, other virtual machines, a quota."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from math import ceil
from pathlib import Path
from typing import NamedTuple, Optional

from costprobe_probes.host_memory import enclosing_groups

# Shares above which a run counts as contended. /proc/stat counts ticks of 10 ms, and a quiet host
# runs some daemons: a tenth, as the utilization from which a GPU counts as busy. Stolen and waiting
# time are zero on a quiet host, except for the wake-ups of threads.
OTHERS_SHARE = 0.1
STEAL_SHARE = 0.05
WAIT_SHARE = 0.1
# A pass was delayed if the probe's threads waited for more than this share of it.
DELAY_SHARE = 0.01
# Largest share of the time that reading what they waited may take.
READING_SHARE = 0.01
READINGS = 5
SCHEDSTAT_BYTES = 128
# Shorter spans have too few ticks.
LEAST_SPAN_S = 0.2
NS_PER_S = 1e9
# Columns of a line of /proc/stat behind its name (proc_stat(5)); guest time is part of user time.
IDLE, IOWAIT, STEAL, COLUMNS = 3, 4, 7, 8


class CpuReading(NamedTuple):
    """Counters at an instant, in seconds.

    Attributes:
        t_s: CLOCK_MONOTONIC.
        own_s: Time that this process ran, on all its threads.
        busy_s: Time that the allowed processors ran anything.
        steal_s: Time that the hypervisor took from them.
        ran_s: Time that the present threads of this process ran; None if the kernel does not count.
        waited_s: Time that they waited for a processor; None if the kernel does not count.
    """

    t_s: float
    own_s: float
    busy_s: float
    steal_s: float
    ran_s: Optional[float]  # noqa: UP045 - evaluated on Python 3.9
    waited_s: Optional[float]  # noqa: UP045 - as above


NOTHING = CpuReading(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Contention(NamedTuple):
    """Processor time that a probe did not get, between two readings.

    Attributes:
        contended: Whether it matters; None if the time was too short to know.
        others_pct: Share of the allowed processors' time that other processes ran, in percent.
        steal_pct: Share that the hypervisor gave to other virtual machines, in percent.
        wait_pct: Share of the time in which the probe's threads could run, that they waited for a
            processor, in percent; None if the kernel does not count it. On a GPU: share of all
            time, of the thread that launches its kernels, which otherwise launches or sleeps.
    """

    contended: Optional[bool] = None  # noqa: UP045 - evaluated on Python 3.9
    others_pct: Optional[float] = None  # noqa: UP045 - as above
    steal_pct: Optional[float] = None  # noqa: UP045 - as above
    wait_pct: Optional[float] = None  # noqa: UP045 - as above


class PassDelays:
    """Finds the timed passes that others delayed.

    Passes are judged one by one; of passes so short that reading would take more than a hundredth of
    the time, by the smallest groups of which it does not. Time that the hypervisor took has ticks of
    10 ms: it counts for a block of passes.

    Args:
        waited_s: Reads the seconds that the probe's threads have waited; None if unknown.
        stolen_share: Returns the share of the processors that the hypervisor took since the last call.
        latency_ms: Approximate latency of a pass.
        clock: The host's clock in s.
    """

    def __init__(
        self,
        waited_s: Callable[[], float] | None,
        stolen_share: Callable[[], float],
        latency_ms: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._waited_s, self._stolen_share = waited_s, stolen_share
        began_s = clock()
        for _ in range(READINGS):
            self._read()
        reading_ms = (clock() - began_s) / READINGS * 1000
        self._group = max(1, ceil(reading_ms / (READING_SHARE * max(latency_ms, 1e-3))))
        self._readings_s: list[float] = []
        self._passes = 0

    def before_pass(self) -> None:
        """Read before the first pass of a group."""
        if self._passes % self._group == 0:
            self._readings_s.append(self._read())
        self._passes += 1

    def of_block(self, latencies_ms: Sequence[float]) -> list[bool]:
        """Return for each pass of a block that ended whether it was delayed."""
        readings_s = [*self._readings_s, self._read()]
        self._readings_s, self._passes = [], 0
        is_stolen = self._stolen_share() > STEAL_SHARE
        delayed = []
        for number, (before_s, after_s) in enumerate(zip(readings_s, readings_s[1:])):
            group = latencies_ms[number * self._group : (number + 1) * self._group]
            waited_ms = (after_s - before_s) * 1000
            is_delayed = self._waited_s is None or waited_ms > DELAY_SHARE * sum(group)
            delayed += [is_stolen or is_delayed] * len(group)
        return delayed

    def _read(self) -> float:
        return 0.0 if self._waited_s is None else self._waited_s()


@contextmanager
def pass_delays(
    files: Iterable[Path], stolen_share: Callable[[], float], latency_ms: float
) -> Iterator[PassDelays]:
    """Keep the schedstat of threads open, to read in microseconds how long they waited.

    Args:
        files: Their schedstat; of a thread that has ended nothing is read.
        stolen_share: As for PassDelays.
        latency_ms: Approximate latency of a pass.
    """
    with ExitStack() as stack:
        opened = []
        for file in files:
            with suppress(
                OSError
            ):  # a kernel without CONFIG_SCHED_INFO, or a thread that has ended
                opened.append(stack.enter_context(file.open("rb", buffering=0)))

        def waited_s() -> float:
            waited_ns = 0
            for file in opened:
                with suppress(OSError):
                    waited_ns += int(os.pread(file.fileno(), SCHEDSTAT_BYTES, 0).split()[1])
            return waited_ns / NS_PER_S

        yield PassDelays(waited_s if opened else None, stolen_share, latency_ms)


class CpuMeter:
    """Reads the processors that this process may use: its affinity, which a cpuset bounds too.

    Args:
        root: Root of the file system.
        allowed: Numbers of the processors; None for this process's affinity.
    """

    def __init__(self, root: str = "/", allowed: frozenset[int] | None = None) -> None:
        self._root = Path(root)
        self._allowed = allowed or frozenset(os.sched_getaffinity(0))
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def delays(self, latency_ms: float) -> AbstractContextManager[PassDelays]:
        """Return what finds the delayed passes of the present threads, of about this latency."""
        last = (time.monotonic(), self._ticks()[1])

        def stolen_share() -> float:
            nonlocal last
            (before_s, before), last = last, (time.monotonic(), self._ticks()[1])
            whole_s = (last[0] - before_s) * len(self._allowed)
            return (last[1] - before) * self._tick_s / whole_s if whole_s > 0 else 0.0

        files = (self._root / "proc/self/task").glob("*/schedstat")
        return pass_delays(files, stolen_share, latency_ms)

    def since(self, before: CpuReading, threads: int) -> Contention:
        """Return what took processor time from this process since a reading.

        Args:
            before: The reading.
            threads: Threads on which it computes.

        Raises:
            OSError: /proc/stat cannot be read.
        """
        processors = len(self._allowed)
        return contention(
            before, self.read(), threads=threads, processors=processors, quota=self._quota()
        )

    def _quota(self) -> float | None:
        """Return the processors that the tightest cgroup quota permits; None without a quota."""
        quotas = []
        for version, folder in enclosing_groups(self._root, "cpu"):
            try:
                if version == 1:
                    quota = (folder / "cpu.cfs_quota_us").read_text()
                    period = (folder / "cpu.cfs_period_us").read_text()
                else:
                    quota, period = (folder / "cpu.max").read_text().split()
                quotas.append(int(quota) / int(period))
            except (OSError, ValueError, ZeroDivisionError):
                continue  # no such group, or none with a quota: "max"
        return min((processors for processors in quotas if processors > 0), default=None)

    def read(self) -> CpuReading:
        """Read all counters.

        Raises:
            OSError: /proc/stat cannot be read.
        """
        busy, steal = self._ticks()
        ran_s, waited_s = self._scheduled()
        return CpuReading(
            time.monotonic(),
            time.process_time(),
            busy * self._tick_s,
            steal * self._tick_s,
            ran_s,
            waited_s,
        )

    def _ticks(self) -> tuple[int, int]:
        """Return busy and stolen ticks of the allowed processors; of all where none is listed."""
        listed = {}
        for line in (self._root / "proc/stat").read_text().splitlines():
            name, *columns = line.split()
            if name.startswith("cpu") and name != "cpu":
                ticks = [int(column) for column in columns[:COLUMNS]]
                ticks += [0] * (COLUMNS - len(ticks))
                idle = ticks[IDLE] + ticks[IOWAIT] + ticks[STEAL]
                listed[int(name[len("cpu") :])] = (sum(ticks) - idle, ticks[STEAL])
        allowed = [listed[number] for number in self._allowed if number in listed]
        counted = allowed or list(listed.values())
        return sum(busy for busy, _ in counted), sum(steal for _, steal in counted)

    def _scheduled(self) -> tuple[float | None, float | None]:
        """Return the seconds that this process's threads ran, and waited to run."""
        ran_ns = waited_ns = 0
        try:
            for task in (self._root / "proc/self/task").iterdir():
                try:
                    ran, waited, _ = (task / "schedstat").read_text().split()
                except FileNotFoundError:
                    if task.exists():
                        return None, None  # a kernel without CONFIG_SCHED_INFO
                    continue  # the thread ended
                ran_ns += int(ran)
                waited_ns += int(waited)
        except (OSError, ValueError):
            return None, None
        return ran_ns / NS_PER_S, waited_ns / NS_PER_S


class LaunchMeter:
    """Reads how long the calling thread, which launches a GPU's kernels, waited for a processor.

    A launch-bound probe takes as much longer as that thread waits. Whether others used the GPU is
    observed by its sensors.

    Args:
        root: Root of the file system.
    """

    def __init__(self, root: str = "/") -> None:
        task = f"proc/self/task/{threading.get_native_id()}/schedstat"
        self._file = Path(root) / task

    def read(self) -> CpuReading:
        """Read the time that the thread waited; other counters are 0."""
        try:
            waited_s = int(self._file.read_text().split()[1]) / NS_PER_S
        except (IndexError, OSError, ValueError):
            waited_s = None  # a kernel without CONFIG_SCHED_INFO
        return NOTHING._replace(t_s=time.monotonic(), waited_s=waited_s)

    def delays(self, latency_ms: float) -> AbstractContextManager[PassDelays]:
        """Return what finds the passes that the calling thread launched late, of about this latency."""
        return pass_delays([self._file], lambda: 0.0, latency_ms)

    def since(self, before: CpuReading, threads: int) -> Contention:  # noqa: ARG002 - as CpuMeter
        """Return the share of the time since a reading in which the thread waited.

        Above 10 % the run is contended; below, its GPU's sensors decide.
        """
        after = self.read()
        span_s = after.t_s - before.t_s
        if before.waited_s is None or after.waited_s is None or span_s < LEAST_SPAN_S:
            return Contention()
        wait = min(1.0, (after.waited_s - before.waited_s) / span_s)
        return Contention(wait > WAIT_SHARE or None, wait_pct=100 * wait)


def contention(
    before: CpuReading,
    after: CpuReading,
    *,
    threads: int,
    processors: int,
    quota: float | None = None,
) -> Contention:
    """Return what took processor time from a probe between two readings.

    A run is contended if the hypervisor took more than 5 % of the processors, if other processes
    ran for more than 10 % of their time and for more than the probe's threads, or its quota, leave
    free, or if its threads waited for a processor for more than 10 % of their time. Threads that
    are more than the processors or the quota permit wait for each other: their waiting is no sign
    of others.

    Args:
        before: Reading at the start.
        after: Reading at the end.
        threads: Threads on which the probe computes.
        processors: Processors that it may use.
        quota: Processors that its cgroups permit it to use at a time; None without a quota.
    """
    span_s = after.t_s - before.t_s
    if span_s < LEAST_SPAN_S:
        return Contention()
    whole_s = span_s * processors
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    others = min(1.0, max(0.0, others_s / whole_s))
    steal = min(1.0, max(0.0, (after.steal_s - before.steal_s) / whole_s))
    wait = _wait_share(before, after)
    permitted = processors if quota is None else min(processors, quota)
    left_free = max(0.0, 1 - min(threads, permitted) / processors)
    return Contention(
        steal > STEAL_SHARE
        or others > max(OTHERS_SHARE, left_free)
        or (wait is not None and threads <= permitted and wait > WAIT_SHARE),
        100 * others,
        100 * steal,
        None if wait is None else 100 * wait,
    )


def _wait_share(before: CpuReading, after: CpuReading) -> float | None:
    if None in (before.ran_s, before.waited_s, after.ran_s, after.waited_s):
        return None
    # A thread that ended takes its counts with it.
    ran_s = max(0.0, (after.ran_s or 0.0) - (before.ran_s or 0.0))
    waited_s = max(0.0, (after.waited_s or 0.0) - (before.waited_s or 0.0))
    return waited_s / (ran_s + waited_s) if ran_s + waited_s > 0 else None
