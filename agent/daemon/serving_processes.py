"""Which of a device's processes are whose, remembered beyond their end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from threading import Lock

from agent.config_service import ServiceConfig
from agent.serving.processes import service_pids

MAX_PIDS = 4096


class ProcessOwners:
    """The services that processes belong to, learnt while these are alive.

    A process that crashed kept a device busy before: nobody else should pay for that, and it is its
    service's though its name can no longer be read.

    Args:
        services: The services; those that name processes have some.
        proc: Where the kernel shows processes.
    """

    def __init__(self, services: Iterable[ServiceConfig], proc: Path) -> None:
        self._services = [service for service in services if service.processes]
        self._proc = proc
        self._lock = Lock()
        self._owners: dict[int, frozenset[str]] = {}

    def look(self, pids: Collection[int]) -> None:
        """Looks up processes that keep a device busy now."""
        found = service_pids(self._services, pids, self._proc)
        with self._lock:
            for pid in pids:
                owners = frozenset(name for name, own in found.items() if pid in own)
                if owners or (self._proc / str(pid)).exists():
                    # The last one stands last, so that the longest gone are forgotten first.
                    self._owners.pop(pid, None)
                    self._owners[pid] = owners
            for pid in list(self._owners)[:-MAX_PIDS]:
                del self._owners[pid]

    def pids_of(self, services: Iterable[str], pids: Collection[int]) -> dict[str, frozenset[int]]:
        """The processes of each of some services among those that kept a device busy."""
        with self._lock:
            return {
                name: frozenset(pid for pid in pids if name in self._owners.get(pid, ()))
                for name in services
            }
