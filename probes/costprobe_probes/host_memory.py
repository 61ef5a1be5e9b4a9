"""Memory of the host that this process may use, and its own use, from /proc and cgroups (v1 or v2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def enclosing_groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield version and folder of each cgroup around this process, innermost first.

    Folders may be missing: a container sees its own groups as the top.

    Args:
        root: Root of the file system.
        controller: Name of the controller in v1, such as "memory".
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            version, top = 2, root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            version, top = 1, root / "sys/fs/cgroup" / controller
        else:
            continue
        folder = Path(path.lstrip("/"))
        for above in (folder, *folder.parents):
            yield version, top / above


KIB = 1024
# By version of the cgroups: limit and usage, and the file cache in memory.stat.
GROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


class HostMemory:
    """Read /proc and the cgroups (v1 or v2) of this process.

    Args:
        root: Root of the file system.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)

    def total_and_available_bytes(self) -> tuple[int, int]:
        """Return total memory and memory available without swapping, of the host or a tighter cgroup."""
        host = _kib_values((self._root / "proc/meminfo").read_text())
        totals, availables = [host["MemTotal"]], [host["MemAvailable"]]
        for limit_bytes, available_bytes in self._groups():
            totals.append(limit_bytes)
            availables.append(available_bytes)
        return min(totals), max(0, min(availables))

    def resident_bytes(self) -> int:
        """Return the resident memory of this process."""
        return self._own("VmRSS")

    def peak_bytes(self) -> int:
        """Return the peak resident memory of this process since `reset_peak`."""
        return self._own("VmHWM")

    def reset_peak(self) -> None:
        """Restart the peak; without effect where the kernel does not support it."""
        try:
            (self._root / "proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def _own(self, name: str) -> int:
        text = (self._root / "proc/self/status").read_text(errors="replace")
        return _kib_values(text)[name]

    def _groups(self) -> list[tuple[int, int]]:
        """Return limit and available memory of each enclosing cgroup; file cache counts as available."""
        groups = []
        for version, folder in enclosing_groups(self._root, "memory"):
            limit, usage, cache = GROUP_FILES[version]
            try:
                limit_bytes = int((folder / limit).read_text())
                used_bytes = int((folder / usage).read_text())
                stat = (folder / "memory.stat").read_text().split()
            except (OSError, ValueError):
                continue  # not an enclosing cgroup, or one without a limit: "max"
            counters = dict(zip(stat[::2], stat[1::2]))
            cache_bytes = int(counters.get(cache, "0"))
            groups.append((limit_bytes, limit_bytes - used_bytes + cache_bytes))
        return groups


def _kib_values(text: str) -> dict[str, int]:
    """Parse lines such as "MemTotal:  16 kB" to bytes; skip other lines."""
    values = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":  # noqa: PLR2004 - a number and its unit
            values[name] = int(words[0]) * KIB
    return values
