"""Open the store; a damaged file is renamed, so that measuring continues in a new one."""

from __future__ import annotations

import logging
from pathlib import Path

from costprobe.adapters.storage.errors import translated
from costprobe.adapters.storage.health import is_damaged, quarantine
from costprobe.adapters.storage.store_files import StoreLock, prepare
from costprobe.adapters.storage.writer import Store
from costprobe.core.clock import Clock
from costprobe.core.records import Event

logger = logging.getLogger(__name__)


def open_store(path: Path, clock: Clock) -> tuple[Store, Event | None]:
    """Return the store, locked, and the event of a damaged file that was replaced by a new one.

    Args:
        path: The store's file.
        clock: The host's clocks.

    Raises:
        StoreError: It cannot be opened, another daemon uses it, or a damaged file cannot be renamed.
    """
    with translated("open", path):
        prepare(path)
    lock = StoreLock(path)
    try:
        event = _replaced_if_damaged(path, clock)
    except BaseException:
        lock.release()
        raise
    return Store.open(path, clock, lock=lock), event


def _replaced_if_damaged(path: Path, clock: Clock) -> Event | None:
    event = None
    if is_damaged(path):
        now_ns = clock.time_ns()
        renamed = quarantine(path, now_ns)
        logger.error("%s is damaged: it is kept as %s, and a new store is created", path, renamed)
        event = Event(
            kind="fault",
            severity="critical",
            title="the store was damaged: a new one was created",
            time_ns=now_ns,
            detail=f"the old one is kept as {renamed}; `sqlite3 FILE .recover` saves what it can",
            cause="damaged store",
        )
    return event
