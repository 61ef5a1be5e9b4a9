"""CPU time and resident memory of a process and its descendants, from /proc."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

# clock_getcpuclockid(3): the CPU clock of a whole process has a resolution of 1 ns;
# /proc/PID/stat counts in units of 10 ms.
CPUCLOCK_SCHED = 2
KB = 1024
MB = 1e6


class ProcUsage(TypedDict):
    """Use of a process tree.

    Attributes:
        cpu_s_per_h: CPU seconds per hour.
        wakes_per_s: Wake-ups per second.
        pss_mb: Proportional set size in MB, summed over the tree.
        rss_mb: Resident set size in MB, summed over the tree: shared pages count once for each
            process, as if nothing were shared.
        processes: Number of processes.
    """

    cpu_s_per_h: float
    wakes_per_s: float
    pss_mb: float
    rss_mb: float
    processes: int


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, without its children.

    Raises:
        OSError: It has ended.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def children_of(pid: int) -> list[int]:
    """Return the living children of a process."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += [int(text) for text in task.read_text().split()]
        except OSError:
            continue  # the thread has ended
    return children


def tree_of(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    try:
        return [pid, *(descendant for child in children_of(pid) for descendant in tree_of(child))]
    except OSError:
        return [pid]


def name_of(pid: int) -> str:
    """Return the module or the command that a process of costprobe runs."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[words.index("-m") + 1] if "-m" in words else words[-2:][0]


def memory_mb(pid: int) -> tuple[float, float]:
    """Return the proportional and the resident set size (PSS, RSS) of a process in MB."""
    kb = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Pss", "Rss"):
            kb[name] = int(rest.split()[0])
    return kb["Pss"] * KB / MB, kb["Rss"] * KB / MB


def switches(pid: int) -> int:
    """Return the voluntary context switches of all threads of a process."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue  # the thread has ended
        count += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return count


class Usage:
    """Measures the use of a process tree from its construction on.

    Args:
        pid: Root of the tree.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._before: dict[int, tuple[float, int]] = {}
        for member in tree_of(pid):
            with suppress(OSError):  # it has just ended
                self._before[member] = (cpu_s(member), switches(member))
        self._started_s = time.monotonic()

    def measured(self) -> ProcUsage:
        """Return the use since the start."""
        elapsed_s = time.monotonic() - self._started_s
        cpu, wakes, pss_mb, rss_mb = 0.0, 0, 0.0, 0.0
        tree = tree_of(self.pid)
        for pid in tree:
            cpu_before_s, wakes_before = self._before.get(pid, (0.0, 0))
            try:
                used_s, switched, (pss, rss) = cpu_s(pid), switches(pid), memory_mb(pid)
            except OSError:
                continue  # it has just ended
            cpu += used_s - cpu_before_s
            wakes += switched - wakes_before
            pss_mb, rss_mb = pss_mb + pss, rss_mb + rss
        return {
            "cpu_s_per_h": cpu / elapsed_s * 3600,
            "wakes_per_s": wakes / elapsed_s,
            "pss_mb": pss_mb,
            "rss_mb": rss_mb,
            "processes": len(tree),
        }
