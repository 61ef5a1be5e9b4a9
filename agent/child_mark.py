"""Finding again whatever a child started, also what left its process group and its parents.

A process group ends with one signal, and a process leaves it with one call (setsid(2)), which every
program that makes itself a daemon does. What it rarely does is to empty its environment: so each
child gets a word in its own that no other has, and every process that carries it is the child's.
"""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "INFERCOST_CHILD"
ROUNDS_MAX: Final = 20
_PROC: Final = Path("/proc")


def new_mark() -> dict[str, str]:
    """A variable to add to a child's environment."""
    return {NAME: secrets.token_hex(8)}


def kill_marked(mark: dict[str, str], proc: Path = _PROC) -> set[int]:
    """Kills every process that carries a mark, round after round until none is found.

    A process is held by a descriptor while it is looked at, so that none that took over its id is
    hit. What starts processes faster than they are found is left after twenty rounds.

    Args:
        mark: What `new_mark` gave.
        proc: Where the kernel tells of processes; other users' are not told.

    Returns:
        The ids that they had.
    """
    wanted = b"%b=%b" % (NAME.encode(), mark[NAME].encode())
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        pids = [int(path.name) for path in proc.iterdir() if path.name.isdigit()]
        found = {pid for pid in pids if _killed(pid, wanted, proc)}
        if not found:
            break
        killed |= found
    return killed


def _killed(pid: int, wanted: bytes, proc: Path) -> bool:
    """True if a process carried the mark and was killed; a dead one has no environment."""
    # Gone meanwhile, another user's, or a kernel before 5.3, which knows no such descriptors.
    with suppress(OSError):
        held = os.pidfd_open(pid)
        try:
            if wanted in (proc / str(pid) / "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(held, signal.SIGKILL)
                return True
        finally:
            os.close(held)
    return False
