"""The processes of a service, by their configured names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from costprobe.adapters.serving.settings import ServiceConfig

# The kernel truncates names to this length.
COMM_CHARS = 15


def service_pids(
    services: Iterable[ServiceConfig], pids: Iterable[int], proc: Path
) -> dict[str, frozenset[int]]:
    """Return the processes of each service that configures process names.

    Args:
        services: The services.
        pids: Processes that use a device.
        proc: The root of procfs: /proc.
    """
    names: dict[int, str] = {}
    for pid in pids:
        try:
            names[pid] = (proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            # It ended in the meantime.
            continue
    pids_by_service: dict[str, frozenset[int]] = {}
    for service in services:
        if service.processes:
            comm_names = {name[:COMM_CHARS] for name in service.processes}
            pids_by_service[service.name] = frozenset(
                pid for pid, name in names.items() if name in comm_names
            )
    return pids_by_service


def busy_by_service(
    busy_s: Mapping[int, float], pids: Mapping[str, frozenset[int]], own_pids: frozenset[int]
) -> tuple[dict[str, float | None], float]:
    """Return the busy time of each service, and of the remaining processes.

    The time of a service without a running process is unknown (None), not 0: its processes may have
    another name, and their cost would become part of the remainder.

    Args:
        busy_s: Seconds in which each process kept a device busy.
        pids: The processes of each service.
        own_pids: Processes of probes, whose time is accounted for separately.
    """
    services: dict[str, float | None] = {
        name: sum(busy_s.get(pid, 0.0) for pid in sorted(members)) if members else None
        for name, members in pids.items()
    }
    known_pids = own_pids.union(*pids.values())
    return services, sum(seconds for pid, seconds in busy_s.items() if pid not in known_pids)
