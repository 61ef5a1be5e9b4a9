"""The times at which a host sends, so that the hosts of a fleet do not send simultaneously.

Hosts that start together (a rollout, the end of a power outage) would otherwise send together, and a
database would have to be sized for their common peak. Each host sends at its own phase
of the flush interval, a hash of its name: the same after every restart, spread evenly over a fleet,
and without any coordination. A backlog begins at a random moment instead, because an outage makes
all hosts begin at once.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final

from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

# A backlog begins within this many flush intervals: two minutes at the defaults.
BACKLOG_FLUSHES: Final = 12
# A flush this shortly before its scheduled time counts as that flush; a share of the interval.
_SERVED_SHARE: Final = 0.1
_HASH_BYTES: Final = 8


class FlushSchedule:
    """The times at which a host sends to one sink.

    Args:
        host: Name of the host.
        sink: Name of the sink: several sinks of a host may be one server.
        every_s: Time between two flushes in s.
        rng: Random source of the start of a backlog.
        clock: The host's clocks.

    Attributes:
        phase_s: Seconds after each whole interval since 1970 UTC at which the host sends.
    """

    def __init__(self, host: str, sink: str, every_s: float, rng: Random, clock: Clock) -> None:
        digest = blake2b(f"{host}\0{sink}".encode(), digest_size=_HASH_BYTES).digest()
        self._every_s = every_s
        self._rng = rng
        self._clock = clock
        self.phase_s = every_s * int.from_bytes(digest) / 256**_HASH_BYTES

    def first_wait_s(self) -> float:
        """Return the seconds from a start until live rows are first sent."""
        return self.live_wait_s()

    def live_wait_s(self) -> float:
        """Return the seconds until the host's next flush; at most 1.1 intervals.

        A step of the wall clock shifts one flush, by no more than that.
        """
        every_ns = max(1, int(self._every_s * NS_PER_S))
        past_ns = (self._clock.time_ns() - int(self.phase_s * NS_PER_S)) % every_ns
        wait_s = (every_ns - past_ns) / NS_PER_S
        return wait_s if wait_s > _SERVED_SHARE * self._every_s else wait_s + self._every_s

    def backlog_wait_s(self) -> float:
        """Return the seconds until a backlog may begin, random each time."""
        return self._rng.uniform(0.0, BACKLOG_FLUSHES * self._every_s)


class ImmediateSchedule:
    """The times of a single sender: immediately, and then at the interval.

    Args:
        every_s: Time between two flushes in s.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s

    def first_wait_s(self) -> float:
        """Return 0.0: a single sender has no phase offset."""
        return 0.0

    def live_wait_s(self) -> float:
        """Return the seconds until the next flush: the interval."""
        return self._every_s

    def backlog_wait_s(self) -> float:
        """Return 0.0: a single sender needs no spreading."""
        return 0.0
