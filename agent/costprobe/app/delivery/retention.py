"""How long rows are kept: by a calendar that cannot leap."""

from __future__ import annotations

from typing import Final

from costprobe.adapters.storage.rollup.rollup import KeepSince
from costprobe.adapters.storage.settings import StoreConfig
from costprobe.adapters.storage.writer import Store
from costprobe.app.accounting.ledger import StoreLedger
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

RETENTION_EVERY_S: Final = 600.0
# A host that was off for a month is done with what is due in less than a day and a half.
CATCHES_UP: Final = 24
STATE: Final = "retention"
_STEPS: Final = 50
_BEGINNING_OF_TIME_NS: Final = -(2**63)


class Retention:
    """Rolls up and lets go of what is past its time.

    The wall clock may be wrong by years for a while: a dead battery, a bad time server, a mistyped
    date. So retention goes by a time of its own, which is never later than the wall clock and
    moves at most CATCHES_UP times as fast as time passes; it is kept in the store.

    Args:
        store: The one writer.
        ledger: Keeps the time that retention has come to.
        clock: The host's clocks.
    """

    def __init__(self, store: Store, ledger: StoreLedger, clock: Clock) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        # What passed before a start is not known: one period of it counts.
        self._looked_ns = clock.monotonic_ns() - int(RETENTION_EVERY_S * NS_PER_S)

    def apply(self, config: StoreConfig) -> None:
        """Does what is due, in a bounded number of steps; the rest is done the next time.

        Args:
            config: How long rows are kept.
        """
        prune(self._store, config, self._now_ns())

    def _now_ns(self) -> int:
        """The time that retention goes by, UTC in ns."""
        now_ns, looked_ns = self._clock.time_ns(), self._clock.monotonic_ns()
        before = self._ledger.state(STATE)
        if before is not None:
            now_ns = min(now_ns, before["time_ns"] + CATCHES_UP * (looked_ns - self._looked_ns))
        self._looked_ns = looked_ns
        self._ledger.put_state(STATE, {"time_ns": now_ns})
        return now_ns


def keep_since(config: StoreConfig, now_ns: int) -> KeepSince:
    """From when on rows are kept.

    Args:
        config: For how long.
        now_ns: UTC in ns of now.
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
    """Rolls up and lets go of rows that are past their retention, in a bounded number of steps.

    Others write between two steps; what is not done yet is done the next time.

    Args:
        store: The one writer.
        config: How long rows are kept.
        now_ns: UTC in ns of now.
    """
    since = keep_since(config, now_ns)
    for _ in range(_STEPS):
        if store.retain(since).is_done:
            break
    for _ in range(_STEPS):
        if not store.release_pages():
            return
