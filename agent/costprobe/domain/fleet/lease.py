"""Which of several watchers of a fleet notifies: the one whose lease, a row in the database, is in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# A lease lasts so many intervals after the heartbeat that renewed it.
INTERVALS = 3


class Heartbeat(NamedTuple):
    """The newest row of `watcher` of one watcher in one state.

    Attributes:
        watcher: Name of its host.
        is_active: Whether it held the lease.
        time_ns: UTC in ns of its evaluation.
    """

    watcher: str
    is_active: bool
    time_ns: int


def holds_lease(
    own: str, heartbeats: Sequence[Heartbeat], now_ns: int, every_ns: int, *, held: bool
) -> bool:
    """Return whether a watcher holds the lease from now on.

    It keeps a lease that it held until another watcher holds one in force, so that none changes hands while
    the database is away. A free one goes, after an interval in which all watchers have sent a heartbeat, to the
    smallest name; of two in force, as after a network partition, the smaller name keeps it.

    Args:
        own: Name of the watcher.
        heartbeats: The newest of all watchers, its own included.
        now_ns: UTC in ns of the present evaluation, at a multiple of the interval.
        every_ns: Length of the interval in ns, the same of all watchers.
        held: Whether it held the lease before.
    """
    fresh = [one for one in heartbeats if one.time_ns > now_ns - INTERVALS * every_ns]
    active = {one.watcher for one in fresh if one.is_active}
    if active:
        return own == min(active)
    if held:
        return True
    waited = any(one.watcher == own and one.time_ns <= now_ns - every_ns for one in fresh)
    return waited and own == min(one.watcher for one in fresh)
