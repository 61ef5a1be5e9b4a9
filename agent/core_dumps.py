"""Keeping secrets out of core dumps: of this process, and of all that it starts."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Every command imports this, and most have no other use for it.
    from pathlib import Path

FILTER: Final = "/proc/self/coredump_filter"


def forbid_core_dumps(dump_filter: str | Path = FILTER) -> None:
    """Makes a crash leave no memory behind; children inherit it, and keep it through exec.

    The limit keeps the kernel from writing a file. It does not hold for a program that the kernel
    pipes dumps into, such as systemd-coredump (core(5)); for these the filter leaves all memory
    out. Being dumpable at all is kept: without it, /proc would hide from an operator what the
    process maps and how much of it is resident.

    Args:
        dump_filter: The kernel's file of which kinds of memory are dumped.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A kernel without ELF dumps has no such file.
    with suppress(OSError), open(dump_filter, "w", encoding="ascii") as file:  # noqa: PTH123 - without pathlib
        file.write("0")
