"""Stored rows of one time together, as detectors receive them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from costprobe.adapters.storage.reader import StoreReader
from costprobe.core.records import Point


def by_time(
    reader: StoreReader,
    measurements: Sequence[str],
    since_ns: int,
    until_ns: int,
    tags: Mapping[str, str] | None = None,
) -> Iterator[list[Point]]:
    """Yield rows of measurements of the same time together, oldest first."""
    rows = heapq.merge(
        # Detectors learn from samples only, not from rolled-up medians.
        *(reader.points(name, since_ns, until_ns, tags, coarsest_s=0) for name in measurements),
        key=attrgetter("time_ns"),
    )
    for _, together in groupby(rows, key=attrgetter("time_ns")):
        yield list(together)
