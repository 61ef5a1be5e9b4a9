"""The state of a fleet: its hosts, who is silent, versions, faults and incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.fleet.question import Question
from costprobe.app.fleet.answers import FleetAnswers, Group
from costprobe.core.device_names import natural
from costprobe.core.records import NS_PER_S

# What distinguishes incidents, beside the host.
_SUBJECT: Final = ("rule", "device", "probe", "service", "served_model", "budget")


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
