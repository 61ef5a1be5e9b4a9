"""Killing all descendants of a child process, also those that left its process group.

A process group is killed by one signal, but every program that daemonizes leaves it (setsid(2)). It
rarely clears its environment, so each child gets a unique variable there, and every process with
that variable is a descendant.
"""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "COSTPROBE_CHILD"
ROUNDS_MAX: Final = 20
_PROC: Final = Path("/proc")


def new_mark() -> dict[str, str]:
    """Return a unique variable to add to a child's environment."""
    return {NAME: secrets.token_hex(8)}


def kill_marked(mark: dict[str, str], proc: Path = _PROC) -> set[int]:
    """Kill every process with a mark, repeatedly until none is found, at most ROUNDS_MAX times.

    A pidfd refers to each process while its environment is read, so that a process that reuses its
    id is not killed.

    Args:
        mark: The result of `new_mark`.
        proc: Root of procfs; the environment of other users' processes is not readable.

    Returns:
        Their process ids.
    """
    marking = b"%b=%b" % (NAME.encode(), mark[NAME].encode())
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        pids = [int(path.name) for path in proc.iterdir() if path.name.isdigit()]
        killed_pids = {pid for pid in pids if _killed(pid, marking, proc)}
        if not killed_pids:
            break
        killed |= killed_pids
    return killed


def _killed(pid: int, marking: bytes, proc: Path) -> bool:
    """Return whether a process had the mark and was killed; a zombie has no environment."""
    # It ended, belongs to another user, or the kernel is older than 5.3 and has no pidfd.
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if marking in (proc / str(pid) / "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False
