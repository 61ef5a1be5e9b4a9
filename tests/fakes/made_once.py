"""Folders that take long to make, kept between runs of the tests."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path


def made_once(name, fill, *content):
    """A folder that was filled once by this user; a lock admits one process at a time.

    Args:
        name: What the folder is.
        fill: Creates and fills the folder, which it gets.
        content: What determines the folder's files; for other values it is another folder.
    """
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"costprobe-{os.geteuid()}-{name}-{digest}"
    done = folder.with_suffix(".done")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            if folder.exists():
                shutil.rmtree(folder)
            fill(folder)
            done.touch()
    return folder
