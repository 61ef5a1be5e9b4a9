"""Memory of the host as this process may use it: what is free, and what it holds itself."""

from __future__ import annotations

from pathlib import Path

KIB = 1024


class HostMemory:
    """Reads /proc and the control groups above this process, of either version.

    Args:
        root: Root of the file system.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)

    def total_and_available_bytes(self) -> tuple[int, int]:
        """All memory, and what can be had without swapping: the host's or a tighter group's."""
        host = _kib_values((self._root / "proc/meminfo").read_text())
        totals, availables = [host["MemTotal"]], [host["MemAvailable"]]
        for limit_bytes, available_bytes in self._groups():
            totals.append(limit_bytes)
            availables.append(available_bytes)
        return min(totals), max(0, min(availables))

    def resident_bytes(self) -> int:
        """What this process holds now."""
        return self._own("VmRSS")

    def peak_bytes(self) -> int:
        """The most that this process has held since `reset_peak`."""
        return self._own("VmHWM")

    def reset_peak(self) -> None:
        """Begins a new peak; where the kernel does not offer it the old one stays."""
        try:
            (self._root / "proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def _own(self, name: str) -> int:
        text = (self._root / "proc/self/status").read_text(errors="replace")
        return _kib_values(text)[name]

    def _groups(self) -> list[tuple[int, int]]:
        """Limit of each group above us and what is left in it; file cache can be taken back."""
        found = []
        for folder, names in self._group_folders():
            try:
                limit_bytes = int((folder / names[0]).read_text())
                used_bytes = int((folder / names[1]).read_text())
                stat = (folder / "memory.stat").read_text().split()
            except (OSError, ValueError):
                continue  # not a group of ours, or one without a limit: "max"
            counters = dict(zip(stat[::2], stat[1::2]))
            cache_bytes = int(counters.get(names[2], "0"))
            found.append((limit_bytes, limit_bytes - used_bytes + cache_bytes))
        return found

    def _group_folders(self) -> list[tuple[Path, tuple[str, str, str]]]:
        try:
            lines = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top = self._root / "sys/fs/cgroup"
                names = ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                top = self._root / "sys/fs/cgroup/memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            folder = Path(path.lstrip("/"))
            found += [(top / above, names) for above in (folder, *folder.parents)]
        return found


def _kib_values(text: str) -> dict[str, int]:
    """Lines such as "MemTotal:  16 kB", in bytes; other lines are left out."""
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":  # noqa: PLR2004 - a number and its unit
            values[name] = int(words[0]) * KIB
    return values
