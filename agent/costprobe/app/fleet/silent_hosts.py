"""The check for silent hosts of a fleet."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from costprobe.adapters.fleet.question import Question
from costprobe.adapters.fleet.watch_settings import FleetSection
from costprobe.app.fleet.check import FleetCheck, FleetQuery, PartialAnswerError
from costprobe.core.device_names import natural
from costprobe.core.incident import Fault
from costprobe.core.moments import iso
from costprobe.core.records import NS_PER_S
from costprobe.domain.fleet.silence import ALONE, silent_hosts

_NAMED_MAX: Final = 20


class SilentHosts(FleetCheck):
    """Finds hosts without a new row of `agent`.

    If no host of several sends rows, the database receives none: that is a fault of it or of what lies before
    it, and no host is reported. A host that an answer lacks keeps its newest known row.

    Args:
        config: The section [fleet].
    """

    name = "silent hosts"
    is_analysis = False

    def __init__(self, config: FleetSection) -> None:
        self._config = config
        self._newest: dict[str, int] = {}
        self._silent: dict[str, str] = {}

    @property
    def hosts(self) -> int:
        """Number of hosts that belong to the fleet."""
        return len(self._newest)

    @property
    def silent(self) -> int:
        """Number of silent hosts."""
        return len(self._silent)

    def evaluate(self, query: FleetQuery) -> None:
        """See `FleetCheck.evaluate`."""
        now_ns = query.now_ns
        since_ns = now_ns - int(self._config.watched.forget_after_s * NS_PER_S)
        with query.over(since_ns, now_ns, 1) as answers:
            found = answers.groups(Question("agent", "rss_bytes", "newest", by=("host",)))
        newest = dict(self._newest)
        for (host,), time_s in found.items():
            newest[host] = max(newest.get(host, 0), round(time_s * NS_PER_S))
        newest = {host: time_ns for host, time_ns in newest.items() if time_ns > since_ns}
        if not newest:
            raise PartialAnswerError("there is no row of any host; check that the hosts push to it")
        after_ns = int(self._config.silent_after_s * NS_PER_S)
        last_ns = max(newest.values())
        if len(newest) > 1 and last_ns <= now_ns - after_ns:
            raise PartialAnswerError(
                f"no host has sent a row since {iso(last_ns)}; check that the database accepts rows"
            )
        self._newest = newest
        self._silent = silent_hosts(newest, self._silent, now_ns, after_ns)

    def faults(self) -> list[Fault]:
        """Return a fault for each silent host, and for each group of hosts."""
        groups: dict[str, list[str]] = defaultdict(list)
        faults = []
        for host, group in sorted(self._silent.items(), key=lambda item: natural(item[0])):
            groups[group].append(host)
        for host in groups.pop(ALONE, []):
            text = f"{host} is silent: its newest row is of {iso(self._newest[host])}"
            faults.append(Fault("host_silent", host, text, "warning", {"host": host}))
        for since, hosts in groups.items():
            named = ", ".join(hosts[:_NAMED_MAX])
            more = f" and {len(hosts) - _NAMED_MAX} more" if len(hosts) > _NAMED_MAX else ""
            text = f"{len(hosts):,} of {self.hosts:,} hosts are silent since {since}: {named}{more}"
            labels = {"silent_since": since}
            value = float(len(hosts))
            faults.append(
                Fault("host_silent", f"since {since}", text, "critical", labels, value=value)
            )
        return faults

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the newest row of each host, and the silent ones."""
        return {"newest_ns": self._newest, "silent": self._silent}

    def restore(self, document: Any) -> None:  # noqa: ANN401 - any JSON value
        """Replace the state."""
        self._newest = {str(host): int(time_ns) for host, time_ns in document["newest_ns"].items()}
        self._silent = {
            str(host): str(group)
            for host, group in document["silent"].items()
            if host in self._newest
        }
