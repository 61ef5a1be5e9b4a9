"""Repeated starts of a model, with its files in the page cache and after they were evicted from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from costprobe.adapters.probing.outcome import ProbeFault
from costprobe.adapters.probing.start_outcome import StartOutcome
from costprobe.domain.costing.probe.reported import ModelStart

MIB: Final = 1 << 20
# Least share of the evicted bytes that a cold start reads from storage: of a library only the parts
# that are used are read.
COLD_SHARE_MIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class ColdStarts:
    """Starts of a model.

    Attributes:
        warm: With the files that a start reads in the page cache.
        cold: Without; fewer if they could not be evicted each time.
        not_cold: Why there are fewer; empty if there are not.
    """

    warm: tuple[ModelStart, ...]
    cold: tuple[ModelStart, ...]
    not_cold: str = ""


class Start(Protocol):
    """Starts the model once."""

    def __call__(self, *, list_files: bool) -> StartOutcome | ProbeFault:
        """Return the start, with the files that it read if they are asked for."""
        ...


def measured_starts(
    start: Start, evict: Callable[[Iterable[Path]], int], runs: int
) -> ColdStarts | ProbeFault:
    """Measure starts, with a warm and a cold page cache in turn.

    The first start is not measured: it fills the page cache, and lists the files.

    Args:
        start: Starts the model.
        evict: Evicts files from the page cache, and returns their size in bytes.
        runs: Number of starts with each state of the page cache.
    """
    first = start(list_files=True)
    if isinstance(first, ProbeFault):
        return first
    warm: list[ModelStart] = []
    cold: list[ModelStart] = []
    not_cold = ""
    for _ in range(runs):
        outcome = start(list_files=False)
        if isinstance(outcome, ProbeFault):
            return outcome
        warm.append(outcome.start)
        evicted_bytes = evict(first.files)
        outcome = start(list_files=False)
        if isinstance(outcome, ProbeFault):
            return outcome
        reason = _why_not_cold(outcome.start.read_bytes, evicted_bytes)
        if reason:
            not_cold = reason
        else:
            cold.append(outcome.start)
    return ColdStarts(tuple(warm), tuple(cold), not_cold)


def _why_not_cold(read_bytes: int | None, evicted_bytes: int) -> str:
    """Return why a start was not cold, by what it read from storage; empty if it was."""
    if read_bytes is None:
        return "the kernel does not count what a process reads from storage (/proc/self/io)"
    if read_bytes < COLD_SHARE_MIN * evicted_bytes or not evicted_bytes:
        return (
            f"{read_bytes / MIB:,.0f} of {evicted_bytes / MIB:,.0f} MiB were read from storage: the"
            " files are in use by other processes, or in memory (tmpfs)"
        )
    return ""
