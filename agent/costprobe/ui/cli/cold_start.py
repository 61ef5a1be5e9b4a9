"""Starts of a model: durations of their parts, with a warm and a cold page cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from costprobe.adapters.probe_child.results import ModelStart
from costprobe.core.records import Point
from costprobe.core.units import counted
from costprobe.probing.rows import PageCache, start_point
from costprobe.probing.run import MIB, ColdStarts
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.text import local
from costprobe.unit_costs.compare import summarized

# Starts with each state of the page cache; both are stored in one request to the daemon.
RUNS_MAX: Final = 32
_PARTS: Final = ("process_start_s", "load_s", "first_answer_s", "total_s")


@dataclass(frozen=True, slots=True)
class StartReport:
    """Starts of a probe's model.

    Attributes:
        probe: Name of the probe.
        device: Name of the device.
        time_ns: UTC in ns of their end.
        starts: The starts.
    """

    probe: str
    device: str
    time_ns: int
    starts: ColdStarts

    @property
    def _by_cache(self) -> dict[PageCache, Sequence[ModelStart]]:
        return {"warm": self.starts.warm, "cold": self.starts.cold}

    def document(self) -> dict[str, Any]:
        """Return medians and interquartile ranges as JSON."""
        return {
            "probe": self.probe,
            "device": self.device,
            "time_ns": self.time_ns,
            "fingerprint": self.starts.warm[-1].fingerprint,
            **{cache: _summary(starts) for cache, starts in self._by_cache.items()},
            "not_cold": self.starts.not_cold or None,
        }

    def rows(self, tags: Mapping[str, str]) -> list[Point]:
        """Return a row for each start; one nanosecond apart, because a row is known by its time.

        Args:
            tags: Host and static labels.
        """
        own = {**tags, "device": self.device, "probe": self.probe}
        return [
            start_point(start, cache, own, self.time_ns - len(starts) + number)
            for cache, starts in self._by_cache.items()
            for number, start in enumerate(starts, 1)
        ]

    def lines(self) -> list[str]:
        """Return a table of medians and interquartile ranges."""
        heads = (
            "page cache",
            "starts",
            *(part.replace("_s", " s").replace("_", " ") for part in _PARTS),
        )
        rows = [(*heads, "read MiB")]
        rows += [_cells(cache, starts) for cache, starts in self._by_cache.items() if starts]
        lines = [
            f"{self.probe} on {self.device}, {local(self.time_ns)}: median ± interquartile range"
        ]
        lines += table_lines(rows)
        if self.starts.not_cold:
            missing = len(self.starts.warm) - len(self.starts.cold)
            starts = counted(missing, "start")
            lines.append(f"cold page cache not measured in {starts}: {self.starts.not_cold}")
        return lines


def _cells(cache: PageCache, starts: Sequence[ModelStart]) -> tuple[str, ...]:
    found = _summary(starts) or {}
    durations = [f"{found[part]:.3f} ±{found[_spread(part)]:.3f}" for part in _PARTS]
    read_bytes = found["read_bytes"]
    return (
        cache,
        str(len(starts)),
        *durations,
        "-" if read_bytes is None else f"{read_bytes / MIB:,.0f}",
    )


def _summary(starts: Sequence[ModelStart]) -> dict[str, Any] | None:
    """Return medians, and interquartile ranges of durations; None without a start."""
    if not starts:
        return None
    found: dict[str, Any] = {"runs": len(starts)}
    for part in _PARTS:
        summary = summarized([getattr(start, part) for start in starts])
        if summary is not None:
            found |= {part: summary.value, _spread(part): summary.iqr}
    read = summarized([start.read_bytes for start in starts if start.read_bytes is not None])
    found["read_bytes"] = None if read is None else int(read.value)
    return found


def _spread(part: str) -> str:
    return f"{part.removesuffix('_s')}_iqr_s"
