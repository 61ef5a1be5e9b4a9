"""Starts of a probe's model, and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from costprobe.core.records import Point
from costprobe.core.schema import make_point
from costprobe.domain.costing.probe.reported import ModelStart

# Whether the files that a start reads were in the page cache.
PageCache = Literal["warm", "cold"]


def start_point(
    start: ModelStart,
    cache: PageCache,
    tags: Mapping[str, str],
    time_ns: int,
) -> Point:
    """Return the row of a start.

    Args:
        start: The start.
        cache: State of the page cache.
        tags: `device`, `probe`, host and static labels.
        time_ns: UTC in ns of the first answer.
    """
    fields = {
        "process_start_s": start.process_start_s,
        "load_s": start.load_s,
        "first_answer_s": start.first_answer_s,
        "total_s": start.total_s,
        "read_bytes": start.read_bytes,
        "fingerprint": start.fingerprint,
    }
    return make_point("cold_start", {**tags, "cache": cache}, fields, time_ns)
