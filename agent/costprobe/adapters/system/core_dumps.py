"""Preventing core dumps, which would contain secrets."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Imported here: every command imports this module, and most do not need it.
    from pathlib import Path

FILTER: Final = "/proc/self/coredump_filter"


def forbid_core_dumps(dump_filter: str | Path = FILTER) -> None:
    """Prevent core dumps of this process and its children; both settings survive exec.

    RLIMIT_CORE prevents a core file, but not a dump that the kernel pipes to a program such as
    systemd-coredump (core(5)); for these the filter excludes all memory. The process stays dumpable
    (PR_SET_DUMPABLE), because otherwise /proc/PID/smaps would not be readable for its operator.

    Args:
        dump_filter: The kernel's file that selects the memory of a dump.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A kernel without ELF core dumps has no such file.
    with suppress(OSError), open(dump_filter, "w", encoding="ascii") as file:  # noqa: PTH123 - without pathlib
        file.write("0")
