"""Retention of rows, robust against a wrong wall clock."""

from __future__ import annotations

from typing import Final

from costprobe.adapters.storage.rollup.rollup import KeepSince
from costprobe.adapters.storage.settings import StoreConfig
from costprobe.adapters.storage.writer import Store
from costprobe.app.accounting.ledger import StoreLedger, restored
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

RETENTION_EVERY_S: Final = 600.0
# A host that was off for a month completes its retention in less than 36 hours.
CATCHES_UP: Final = 24
STATE: Final = "retention"
_STEPS: Final = 50
_BEGINNING_OF_TIME_NS: Final = -(2**63)


class Retention:
    """Aggregates and deletes rows past their retention, and summarizes full hours.

    The wall clock may be wrong by years for a while, after a dead battery, a wrong time server or a
    mistyped date. Retention therefore uses a separate time, which is never later than the wall clock
    and advances at most CATCHES_UP times as fast as CLOCK_MONOTONIC; it is stored.

    Args:
        store: The store that this process writes.
        ledger: Stores the time of retention.
        clock: The host's clocks.
    """

    def __init__(self, store: Store, ledger: StoreLedger, clock: Clock) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        # The time before a start is unknown: one period of it counts.
        self._looked_ns = clock.monotonic_ns() - int(RETENTION_EVERY_S * NS_PER_S)

    def apply(self, config: StoreConfig, device_row_s: float) -> None:
        """Apply the retention in a bounded number of steps; the next call continues.

        Args:
            config: The retention of each resolution.
            device_row_s: Configured length of a row of `device` in s.
        """
        now_ns = self._now_ns()
        prune(self._store, config, now_ns)
        for _ in range(_STEPS):
            if self._store.summarize(now_ns, device_row_s):
                break

    def _now_ns(self) -> int:
        """Return the time of retention, UTC in ns."""
        now_ns, looked_ns = self._clock.time_ns(), self._clock.monotonic_ns()
        before_ns = restored(self._ledger, STATE, lambda document: int(document["time_ns"]))
        if before_ns is not None:
            now_ns = min(now_ns, before_ns + CATCHES_UP * (looked_ns - self._looked_ns))
        self._looked_ns = looked_ns
        self._ledger.put_state(STATE, {"time_ns": now_ns})
        return now_ns


def keep_since(config: StoreConfig, now_ns: int) -> KeepSince:
    """Return the times since which rows are kept.

    Args:
        config: The retention of each resolution.
        now_ns: Current UTC in ns.
    """
    return KeepSince(
        *(
            # A retention of a thousand years exceeds the range of stored timestamps.
            max(now_ns - int(kept_s * NS_PER_S), _BEGINNING_OF_TIME_NS)
            for kept_s in (
                config.retention_s,
                config.rollup_1m_retention_s,
                config.rollup_1h_retention_s,
                config.outbox_retention_s,
            )
        )
    )


def prune(store: Store, config: StoreConfig, now_ns: int) -> None:
    """Aggregate and delete rows past their retention, in a bounded number of steps.

    Other threads may write between two steps; the next call continues.

    Args:
        store: The store that this process writes.
        config: The retention of each resolution.
        now_ns: Current UTC in ns.
    """
    since = keep_since(config, now_ns)
    for _ in range(_STEPS):
        if store.retain(since).is_done:
            break
    for _ in range(_STEPS):
        if not store.release_pages():
            return
