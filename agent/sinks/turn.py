"""When a host's points leave, so that the hosts of a fleet do not all send at the same moment.

Hosts that are started together (a rollout, power that returns) would otherwise push together ever
after, and a database would have to be as large as their common peak. Each host takes its own moment
of the flush interval, by a hash of its name: the same after every restart, spread evenly over a
fleet, and agreed with nobody. What an outage left behind begins to leave at a random moment
instead, because it is an outage that makes all hosts begin at once.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final

from agent.model import NS_PER_S

# A backlog begins within so many flush intervals: two minutes at the defaults.
BACKLOG_FLUSHES: Final = 12
# A thread that wakes so shortly before its moment has served it; as a share of the interval.
_SERVED_SHARE: Final = 0.1
_HASH_BYTES: Final = 8


class Turn:
    """A host's moments at one sink.

    Args:
        host: Name of the host.
        sink: Name of the sink: a host's sinks may be one server.
        every_s: Time between two flushes in seconds.
        rng: Picks when a backlog begins.

    Attributes:
        phase_s: Seconds after each whole interval since 1970 UTC at which the host sends.
    """

    def __init__(self, host: str, sink: str, every_s: float, rng: Random) -> None:
        digest = blake2b(f"{host}\0{sink}".encode(), digest_size=_HASH_BYTES).digest()
        self._every_s = every_s
        self._rng = rng
        self.phase_s = every_s * int.from_bytes(digest) / 256**_HASH_BYTES

    def first_wait_s(self, utc_ns: int) -> float:
        """Seconds from a start, in UTC ns, until rows are first looked for."""
        return self.live_wait_s(utc_ns)

    def live_wait_s(self, utc_ns: int) -> float:
        """Seconds until the host's next moment; never longer than 1.1 intervals.

        A wall clock that is stepped shifts one flush, by no more than that.

        Args:
            utc_ns: UTC in ns.
        """
        every_ns = max(1, int(self._every_s * NS_PER_S))
        past_ns = (utc_ns - int(self.phase_s * NS_PER_S)) % every_ns
        wait_s = (every_ns - past_ns) / NS_PER_S
        return wait_s if wait_s > _SERVED_SHARE * self._every_s else wait_s + self._every_s

    def backlog_wait_s(self) -> float:
        """Seconds until a backlog may begin to leave, at random each time."""
        return self._rng.uniform(0.0, BACKLOG_FLUSHES * self._every_s)


class AtOnce:
    """The moments of a sender that is alone: now, and at the interval from then on.

    Args:
        every_s: Time between two flushes in seconds.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s

    def first_wait_s(self, utc_ns: int) -> float:  # noqa: ARG002 - as a turn has it
        """None."""
        return 0.0

    def live_wait_s(self, utc_ns: int) -> float:  # noqa: ARG002 - as a turn has it
        """Seconds until the next flush: the interval."""
        return self._every_s

    def backlog_wait_s(self) -> float:
        """None."""
        return 0.0
