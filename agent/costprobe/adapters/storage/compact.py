"""Offline compaction: all due retention and shrinking at once, with exclusive access."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from costprobe.adapters.storage.database import size_bytes
from costprobe.adapters.storage.errors import translated
from costprobe.adapters.storage.rollup.rollup import KeepSince
from costprobe.adapters.storage.store_files import StoreLock
from costprobe.adapters.storage.writer import Store
from costprobe.core.clock import Clock

# No other writer waits: larger steps mean fewer commits.
_ROWS_A_STEP: Final = 5000
_BUSY_TIMEOUT_MS: Final = 500
_LOCK_TIMEOUT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction.

    Attributes:
        before_bytes: Size of the file with its log before.
        after_bytes: Size after.
        aggregated: Rows that were merged into a row of a coarser tier.
        removed: Rows that were deleted.
        dropped: Rows among these that at least one sink never received.
    """

    before_bytes: int
    after_bytes: int
    aggregated: int
    removed: int
    dropped: int


def compact(path: Path, since: KeepSince, clock: Clock) -> Compacted:
    """Aggregate, delete and release all that is due, in steps that may be killed at any time.

    Requires exclusive access: a daemon caches series ids and would write to a deleted series.

    Args:
        path: The store.
        since: Retention limits.
        clock: Clocks of the host.

    Raises:
        StoreError: It does not exist, cannot be written, or (`in_use`, `locked`) is open elsewhere.
    """
    with translated("compact", path):
        path.stat()
    before_bytes = size_bytes(path)
    aggregated = removed = dropped = 0
    lock = StoreLock(path, _LOCK_TIMEOUT_S)
    with closing(Store.open(path, clock, _BUSY_TIMEOUT_MS, alone=True, lock=lock)) as store:
        is_done = False
        while not is_done:
            step = store.retain(since, _ROWS_A_STEP)
            aggregated, removed = aggregated + step.aggregated, removed + step.removed
            dropped += step.dropped
            is_done = step.is_done
        while store.release_pages(keep=False):
            pass
    return Compacted(before_bytes, size_bytes(path), aggregated, removed, dropped)
