"""The service that each process of a device belongs to, also after the process has ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from threading import Lock

from costprobe.adapters.serving.processes import service_pids
from costprobe.adapters.serving.settings import ServiceConfig

MAX_PIDS = 4096


class ProcessOwners:
    """The services of processes, looked up while the processes are alive.

    The busy time of a process that has crashed is attributed to its service, although its name can
    no longer be read.

    Args:
        services: The services; only those with configured process names have processes.
        proc: Root of the proc file system.
    """

    def __init__(self, services: Iterable[ServiceConfig], proc: Path) -> None:
        self._services = [service for service in services if service.processes]
        self._proc = proc
        self._lock = Lock()
        self._owners: dict[int, frozenset[str]] = {}

    def find_owners(self, pids: Collection[int]) -> None:
        """Look up processes that use a device now."""
        pids_by_service = service_pids(self._services, pids, self._proc)
        with self._lock:
            for pid in pids:
                owners = frozenset(
                    name for name, members in pids_by_service.items() if pid in members
                )
                if owners or (self._proc / str(pid)).exists():
                    # The most recent is last, so that the oldest are dropped first.
                    self._owners.pop(pid, None)
                    self._owners[pid] = owners
            for pid in list(self._owners)[:-MAX_PIDS]:
                del self._owners[pid]

    def pids_of(self, services: Iterable[str], pids: Collection[int]) -> dict[str, frozenset[int]]:
        """Return each service's processes among those that used a device."""
        with self._lock:
            return {
                name: frozenset(pid for pid in pids if name in self._owners.get(pid, ()))
                for name in services
            }
