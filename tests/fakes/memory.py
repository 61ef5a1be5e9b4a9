"""A folder in memory, for tests that write much and whose subject is not the disk."""

import os
import tempfile

MEMORY = "/dev/shm"  # noqa: S108 - a temporary folder is created in it


def memory_folder():
    """A temporary folder: in memory where the host has such a place, and otherwise on the disk."""
    return tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
