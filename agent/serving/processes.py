"""Which processes are a service's: by their names, as the operator gave them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.config_service import ServiceConfig

# The kernel keeps no more of a name.
COMM_CHARS = 15


def service_pids(
    services: Iterable[ServiceConfig], pids: Iterable[int], proc: Path
) -> dict[str, frozenset[int]]:
    """The processes of each service that names processes.

    Args:
        services: The services.
        pids: Processes that use a device.
        proc: Where the kernel shows processes: /proc.
    """
    names: dict[int, str] = {}
    for pid in pids:
        try:
            names[pid] = (proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            # It has ended since.
            continue
    found: dict[str, frozenset[int]] = {}
    for service in services:
        if service.processes:
            own = {name[:COMM_CHARS] for name in service.processes}
            found[service.name] = frozenset(pid for pid, name in names.items() if name in own)
    return found


def busy_by_service(
    busy_s: Mapping[int, float], pids: Mapping[str, frozenset[int]], own_pids: frozenset[int]
) -> tuple[dict[str, float | None], float]:
    """Busy time of each service, and of processes that are nobody's.

    Where no process of a service is there its time is not known, and not 0: its processes may be
    named otherwise, and what they cost would fall to nobody.

    Args:
        busy_s: Seconds in which each process kept a device busy.
        pids: The processes of each service.
        own_pids: Processes of probes, whose time is accounted for apart.
    """
    services: dict[str, float | None] = {
        name: sum(busy_s.get(pid, 0.0) for pid in sorted(own)) if own else None
        for name, own in pids.items()
    }
    taken = own_pids.union(*pids.values())
    return services, sum(seconds for pid, seconds in busy_s.items() if pid not in taken)
