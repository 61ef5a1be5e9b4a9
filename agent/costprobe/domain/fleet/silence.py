"""Which hosts are silent, and which of them became silent together."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.core.moments import iso
from costprobe.core.records import NS_PER_S

# So many hosts, with their newest rows within the span, are one incident: a switch, a rack, a sink.
GROUP_HOSTS = 5
SPAN_NS = 120 * NS_PER_S
# A host that is no part of a group.
ALONE = ""


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
