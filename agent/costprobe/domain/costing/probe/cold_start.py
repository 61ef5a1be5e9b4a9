"""Starts of a probe's model, and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from costprobe.core.records import Point
from costprobe.core.schema import make_point

# Whether the files that a start reads were in the page cache.
PageCache = Literal["warm", "cold"]


@dataclass(frozen=True, slots=True)
class ModelStart:
    """A model that was started in a new process.

    Attributes:
        process_start_s: Until the interpreter had started.
        load_s: Until packages were imported, the device was open, and the weights were on it.
        first_answer_s: First pass, with lazy initialization and compilation.
        read_bytes: Bytes that were read from storage; None if unknown.
        fingerprint: Fingerprint of software and model.
    """

    process_start_s: float
    load_s: float
    first_answer_s: float
    read_bytes: int | None
    fingerprint: str

    @property
    def total_s(self) -> float:
        """From the start of the process to the first answer."""
        return self.process_start_s + self.load_s + self.first_answer_s


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
