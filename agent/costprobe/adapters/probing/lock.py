"""A host-wide lock per device: one probe at a time, also across daemon and CLI."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from costprobe.adapters.system.safe_open import open_own

logger = logging.getLogger(__name__)

POLL_S = 0.1


@contextmanager
def device_lock(folder: Path, device: str, stop: Event, timeout_s: float) -> Iterator[bool]:
    """Hold the host-wide lock of a device while the block runs.

    The kernel releases the lock when its holder dies, so no stale lock remains.

    Args:
        folder: Folder of the lock files; if it cannot be written, or the file is not this
            user's alone, the block runs without a lock.
        device: Name of the device.
        stop: Ends the wait.
        timeout_s: Longest wait in seconds.

    Yields:
        False if another process held the lock until the wait ended.
    """
    try:
        handle = open_own(folder / f"{device}.lock")
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EPERM}:
            logger.warning(
                "probing %s without a lock: %s %s", device, error.filename, error.strerror
            )
        yield True
        return
    try:
        yield _acquired(handle, stop, timeout_s)
    finally:
        os.close(handle)


def _acquired(handle: int, stop: Event, timeout_s: float) -> bool:
    for _ in range(max(1, int(timeout_s / POLL_S))):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stop.wait(POLL_S):
                return False
        else:
            return True
    return False
