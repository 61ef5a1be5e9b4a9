"""The hosts of a fleet: which are silent, or became silent together; versions, faults, incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.databases.question import Question
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S, natural
from costprobe.fleet.answers import FleetAnswers, Group

# What distinguishes incidents, beside the host.
_SUBJECT: Final = ("rule", "device", "probe", "service", "served_model", "budget")

# So many hosts, with their newest rows within the span, are one incident: a switch, a rack, a sink.
GROUP_HOSTS = 5
SPAN_NS = 120 * NS_PER_S
# A host that is no part of a group.
ALONE = ""


@dataclass(frozen=True, slots=True)
class HostState:
    """A host that sent rows in the period.

    Attributes:
        host: Its name.
        label: Value of the label that hosts are grouped by; empty without one.
        version: The version of costprobe that sent the newest row.
        newest_ns: Time of the newest row of `agent`, UTC in ns.
        is_silent: Whether it sent none for the time after which a host is silent.
        devices: Number of devices with a cost.
        faults: Number of faults that began in the period.
        firing: Number of firing incidents.
    """

    host: str
    label: str
    version: str
    newest_ns: int
    is_silent: bool
    devices: int
    faults: int
    firing: int


def fleet_status(answers: FleetAnswers, silent_after_s: float, label: str = "") -> list[HostState]:
    """Return the hosts that sent a row in the period, silent ones first, then those with the most firing incidents and faults, then by name.

    Args:
        answers: The database, and the period; a host without a row in it is unknown.
        silent_after_s: A host without a row for so long, in s, is silent.
        label: Label to group the hosts by; empty for none.

    Raises:
        DeliveryError: The database did not answer.
    """
    tags = ("host", "version", *([label] if label else []))
    seen: dict[str, tuple[float, Group]] = {}
    newest, devices, faults, alerts = answers.each(
        Question("agent", "rss_bytes", "newest", by=tags),
        Question("device", "cost", "count", "count", by=("host",)),
        Question("event", "title", "count", by=("host",), where={"kind": "fault"}),
        Question("alert", "symptoms", "newest", by=("host", *_SUBJECT, "state")),
    )
    for group, time_s in newest.items():
        seen[group[0]] = max(seen.get(group[0], (0.0, ())), (time_s, group))
    firing = _firing(alerts)
    silent_s = answers.period.end_ns / NS_PER_S - silent_after_s
    states = [
        HostState(
            host=host,
            label=group[2] if label else "",
            version=group[1],
            newest_ns=int(time_s * NS_PER_S),
            is_silent=time_s < silent_s,
            devices=int(devices.get((host,), 0)),
            faults=round(faults.get((host,), 0)),
            firing=firing[host],
        )
        for host, (time_s, group) in seen.items()
    ]
    return sorted(
        states,
        key=lambda one: (not one.is_silent, -one.firing, -one.faults, natural(one.host)),
    )


def _firing(newest: Mapping[Group, float]) -> Mapping[str, int]:
    """Return the number of incidents by host whose newest row says that they fire.

    Args:
        newest: Time of the newest row of each incident and state, UTC in s.
    """
    states: dict[Group, tuple[float, str]] = {}
    for (*subject, state), time_s in newest.items():
        key = tuple(subject)
        states[key] = max(states.get(key, (0.0, "")), (time_s, state))
    return Counter(key[0] for key, (_, state) in states.items() if state == "firing")


def silent_hosts(
    newest: Mapping[str, int], before: Mapping[str, str], now_ns: int, after_ns: int
) -> dict[str, str]:
    """Return the silent hosts, each with its group: the time of the first one's newest row, or ALONE.

    A host stays in its group until it sends a row, so that no incident changes while it lasts.

    Args:
        newest: Time of the newest row of each host, UTC in ns.
        before: The result of the previous call.
        now_ns: UTC in ns.
        after_ns: A host without a row for so long is silent, in ns; longer than SPAN_NS, so that a group is
            complete when its first host is silent.
    """
    silent_ns = now_ns - after_ns
    # A host of a group that is complete may have been silent for a little less.
    kept = {host: group for host, group in before.items() if _is_kept(newest, host, silent_ns)}
    new = sorted((time_ns, host) for host, time_ns in newest.items() if host not in kept)
    while new and new[0][0] <= silent_ns:
        first_ns = new[0][0]
        together = [(time_ns, host) for time_ns, host in new if time_ns <= first_ns + SPAN_NS]
        if len(together) >= GROUP_HOSTS:
            group = iso(first_ns)
        else:
            group = ALONE
            together = [(time_ns, host) for time_ns, host in together if time_ns <= silent_ns]
        kept |= dict.fromkeys((host for _, host in together), group)
        new = new[len(together) :]
    return kept


def _is_kept(newest: Mapping[str, int], host: str, silent_ns: int) -> bool:
    return host in newest and newest[host] <= silent_ns + SPAN_NS
