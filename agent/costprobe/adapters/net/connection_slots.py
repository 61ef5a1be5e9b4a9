"""Which connections of a server stay open: limits for all and per client address, and deadlines.

A connection without a complete request gives way to a new one, so that clients which open
connections and send nothing, or a byte now and then, cannot lock others out.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

# The request of a client that means to send one has arrived after this time.
SETTLED_S: Final = 0.2
_IPV6_SITE_BITS: Final = 64


class SlotLimits(NamedTuple):
    """Limits of the open connections of a server.

    Attributes:
        total: Most open connections.
        per_address: Most connections of one address outside this host; of IPv6, of one /64.
        reserve: Connections out of `total` for clients on this host.
        request_s: Timeout in s of a request with its body, from the connection or the end of the
            previous response.
        response_s: Timeout in s of a response.
    """

    total: int
    per_address: int
    reserve: int
    request_s: float
    response_s: float


class Admission(NamedTuple):
    """The decision on a new connection.

    Attributes:
        is_accepted: Whether it may stay open.
        is_reserved: Whether it uses the reserve.
        displaced: Connection to close instead; None for none.
    """

    is_accepted: bool
    is_reserved: bool = False
    displaced: Hashable | None = None


@dataclass(slots=True)
class _Slot:
    site: str
    began_s: float
    ends_s: float
    is_reserved: bool
    is_waiting: bool = True


class ConnectionSlots:
    """The open connections of a server; for one thread at a time.

    Args:
        limits: Limits.
    """

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        # In the order of admission.
        self._slots: dict[Hashable, _Slot] = {}

    def admit(self, key: Hashable, address: str, now_s: float) -> Admission:
        """Decide on a new connection; one that is accepted occupies a slot until `release`.

        Args:
            key: The connection.
            address: IP address of the client.
            now_s: Monotonic seconds.
        """
        limits, site = self._limits, site_of(address)
        waiting = {key: slot for key, slot in self._slots.items() if slot.is_waiting}
        displaced, is_reserved = None, False
        if site and self._of(site) >= limits.per_address:
            displaced = _oldest(waiting, {site})
            is_accepted = displaced is not None
        elif len(self._slots) < limits.total - limits.reserve:
            is_accepted = True
        else:
            displaced = self._displaced(waiting, now_s, may_use_reserve=not site)
            is_reserved = displaced is None and not site and len(self._slots) < limits.total
            is_accepted = is_reserved or displaced is not None
        if displaced is not None:
            is_reserved = self._slots.pop(displaced).is_reserved
        if is_accepted:
            self._slots[key] = _Slot(site, now_s, now_s + limits.request_s, is_reserved)
        return Admission(is_accepted, is_reserved, displaced)

    def has_request(self, key: Hashable, now_s: float, response_s: float | None = None) -> None:
        """Record that a connection's request is complete: it is not displaced any more.

        Args:
            key: The connection.
            now_s: Monotonic seconds.
            response_s: Timeout of its response in s; the server's by default.
        """
        slot = self._slots.get(key)
        if slot is not None and slot.is_waiting:
            slot.is_waiting = False
            slot.ends_s = now_s + (self._limits.response_s if response_s is None else response_s)

    def awaits_request(self, key: Hashable, now_s: float) -> None:
        """Record that a response is complete, and the connection waits for the next request."""
        slot = self._slots.get(key)
        if slot is not None and not slot.is_waiting:
            slot.is_waiting, slot.ends_s = True, now_s + self._limits.request_s

    def release(self, key: Hashable) -> None:
        """Remove a closed connection; one that is not known is ignored."""
        self._slots.pop(key, None)

    def take_late(self, now_s: float) -> list[Hashable]:
        """Remove and return the connections past their deadline; the caller closes them."""
        late = [key for key, slot in self._slots.items() if now_s > slot.ends_s]
        for key in late:
            del self._slots[key]
        return late

    def _of(self, site: str) -> int:
        return sum(slot.site == site for slot in self._slots.values())

    def _displaced(
        self, waiting: Mapping[Hashable, _Slot], now_s: float, *, may_use_reserve: bool
    ) -> Hashable | None:
        """Return the connection that a new one displaces; None to use the reserve, or to refuse."""
        shared = {key: slot for key, slot in waiting.items() if not slot.is_reserved}
        settled = {key: slot for key, slot in shared.items() if slot.began_s < now_s - SETTLED_S}
        if settled:
            return _oldest(settled, _busiest_sites(settled))
        if may_use_reserve and len(self._slots) < self._limits.total:
            return None
        chosen = shared or (waiting if may_use_reserve else {})
        return _oldest(chosen, _busiest_sites(chosen))


def _busiest_sites(slots: Mapping[Hashable, _Slot]) -> set[str]:
    counts = Counter(slot.site for slot in slots.values())
    most = max(counts.values(), default=0)
    return {site for site, count in counts.items() if count == most}


def _oldest(slots: Mapping[Hashable, _Slot], sites: set[str]) -> Hashable | None:
    return next((key for key, slot in slots.items() if slot.site in sites), None)


def site_of(address: str) -> str:
    """Return what counts as one client: an IPv4 address, an IPv6 /64; empty for this host.

    Args:
        address: An IP address; other text is one client too.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address or "?"
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if parsed.is_loopback:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _IPV6_SITE_BITS), strict=False))
    return str(parsed)
