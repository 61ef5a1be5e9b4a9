"""Evicting files from the page cache, without effect on any other file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from costprobe.core.regular_file import open_regular


def evict(paths: Iterable[Path]) -> int:
    """Evict files from the page cache; pages that a process has mapped stay.

    Dropping all caches (/proc/sys/vm/drop_caches) would slow down whatever else runs on the host.

    Returns:
        Size of the files in bytes; those that cannot be opened are left out.
    """
    size_bytes = 0
    for path in paths:
        try:
            with open_regular(path) as handle:
                # Pages that are not on storage yet cannot be evicted.
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                size_bytes += os.fstat(handle).st_size
        except OSError:
            continue
    return size_bytes
