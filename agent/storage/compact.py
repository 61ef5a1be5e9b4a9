"""Makes a store that nobody else has open as small as it gets, at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.clock import Clock
from agent.storage.database import size_bytes
from agent.storage.errors import translated
from agent.storage.rollup import KeepSince
from agent.storage.writer import Store

# Nobody waits meanwhile: larger steps mean fewer commits.
_ROWS_A_STEP: Final = 5000
_BUSY_TIMEOUT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compacting did.

    Attributes:
        before_bytes: Of the file with its log.
        after_bytes: Likewise.
        folded: Rows that became part of a coarser one.
        removed: Rows that went for good.
        dropped: Rows among all these that at least one sink never got.
    """

    before_bytes: int
    after_bytes: int
    folded: int
    removed: int
    dropped: int


def compact(
    path: Path, since: KeepSince, clock: Clock, on_step: Callable[[int], None] = lambda _: None
) -> Compacted:
    """Rolls up, removes and gives back all that is due, in steps that may be killed at any time.

    It needs the store for itself. A daemon remembers the numbers of its series: beside it one
    that goes here would be written to again.

    Args:
        path: The store.
        since: From when on rows are kept.
        clock: The host's clocks.
        on_step: Told after each step how many rows were handled so far.

    Raises:
        StoreError: There is none, it cannot be written, or (`locked`) somebody has it open.
    """
    with translated("compact", path):
        path.stat()
    before_bytes = size_bytes(path)
    folded = removed = dropped = 0
    with closing(Store.open(path, clock, _BUSY_TIMEOUT_MS, alone=True)) as store:
        is_done = False
        while not is_done:
            step = store.retain(since, _ROWS_A_STEP)
            folded, removed = folded + step.folded, removed + step.removed
            dropped += step.dropped
            is_done = step.is_done
            on_step(folded + removed)
        while store.give_back(keep=False):
            pass
    return Compacted(before_bytes, size_bytes(path), folded, removed, dropped)
