"""How long starts of models take, from measured starts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costprobe.core.records import Point
from costprobe.core.row_values import number
from costprobe.core.units import counted


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The start of a model until its first answer.

    Attributes:
        seconds: Its duration.
        words: Where it is from, as text.
    """

    seconds: float
    words: str


def measured_cold_starts(rows: Iterable[Point]) -> Mapping[tuple[str, str], ColdStart]:
    """Return the median start of each probe on each device, of the newest software.

    Starts with a cold page cache are preferred: a device that was released has none.

    Args:
        rows: Rows of `cold_start`.
    """
    by_place: dict[tuple[str, str], list[Point]] = {}
    for row in rows:
        if number(row, "total_s") is not None:
            by_place.setdefault((row.tags["probe"], row.tags["device"]), []).append(row)
    return {place: _median_start(place, starts) for place, starts in by_place.items()}


def _median_start(place: tuple[str, str], starts: list[Point]) -> ColdStart:
    newest = max(starts, key=lambda row: row.time_ns).fields.get("fingerprint")
    present = [row for row in starts if row.fields.get("fingerprint") == newest]
    cold = [row for row in present if row.tags.get("cache") == "cold"]
    totals_s = [number(row, "total_s") or 0.0 for row in cold or present]
    cache = "cold" if cold else "warm"
    runs = counted(len(totals_s), "start")
    words = f"{place[0]} on {place[1]}, median of {runs} with a {cache} page cache"
    return ColdStart(statistics.median(totals_s), words)
