"""What a process and all its children use, read from /proc: CPU seconds and resident memory."""

import time
from contextlib import suppress
from pathlib import Path

# clock_getcpuclockid(3): the CPU clock of a whole process, by its number; to the nanosecond, where
# /proc/PID/stat counts in hundredths of a second.
CPUCLOCK_SCHED = 2
KB = 1024
MB = 1e6


def cpu_s(pid):
    """CPU seconds that a process has used so far, without its children.

    Raises:
        OSError: It has ended.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def children_of(pid):
    """The processes that a process started and that live."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue  # the thread has ended
    return found


def tree_of(pid):
    """A process and all that descend from it."""
    try:
        return [pid, *(grand for child in children_of(pid) for grand in tree_of(child))]
    except OSError:
        return [pid]


def memory_mb(pid):
    """Resident memory of a process in MB: (its share of what it shares, all of it)."""
    kb = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Pss", "Rss"):
            kb[name] = int(rest.split()[0])
    return kb["Pss"] * KB / MB, kb["Rss"] * KB / MB


def switches(pid):
    """How often the threads of a process went to sleep of their own accord so far."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue  # the thread has ended
        count += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return count


class Usage:
    """What a tree of processes uses from now on.

    Args:
        pid: The first of them.
    """

    def __init__(self, pid):
        self.pid = pid
        self._before = {}
        for found in tree_of(pid):
            with suppress(OSError):  # it has just ended
                self._before[found] = (cpu_s(found), switches(found))
        self._started_s = time.monotonic()

    def taken(self):
        """Use since the start.

        Returns:
            CPU seconds an hour, wakes a second, PSS and RSS in MB summed over the tree, and the
            number of processes. RSS counts what they share once for each of them: so much they
            would take if nothing were shared, with each other or with the rest of the machine.
        """
        elapsed_s = time.monotonic() - self._started_s
        cpu, wakes, pss_mb, rss_mb = 0.0, 0, 0.0, 0.0
        tree = tree_of(self.pid)
        for pid in tree:
            cpu_before, wakes_before = self._before.get(pid, (0.0, 0))
            try:
                used_s, woken, (pss, rss) = cpu_s(pid), switches(pid), memory_mb(pid)
            except OSError:
                continue  # it has just ended
            cpu += used_s - cpu_before
            wakes += woken - wakes_before
            pss_mb, rss_mb = pss_mb + pss, rss_mb + rss
        return {
            "cpu_s_per_h": cpu / elapsed_s * 3600,
            "wakes_per_s": wakes / elapsed_s,
            "pss_mb": pss_mb,
            "rss_mb": rss_mb,
            "processes": len(tree),
        }
