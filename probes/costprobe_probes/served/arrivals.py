"""The schedule of an open loop: request times that do not depend on answers."""

from __future__ import annotations

import time
from random import Random
from threading import Event, Lock

NS_PER_S = 1_000_000_000


class PoissonArrivals:
    """Instants of a Poisson process; thread-safe.

    A request that no thread is free to send is late, and the instants after it stay as they are:
    its latency counts from its own instant, as of a user who had to wait. A generator that would
    send later instead hides the queue of an overloaded server ("coordinated omission", G. Tene).

    Args:
        rate_per_s: Mean number of requests per second.
        start_ns: CLOCK_MONOTONIC ns at which the process begins.
        seed: Of the random gaps.
    """

    def __init__(self, rate_per_s: float, start_ns: int, seed: int) -> None:
        self._rate_per_s = rate_per_s
        self._rng = Random(seed)  # noqa: S311 - gaps between requests
        self._lock = Lock()
        self._next_ns = start_ns
        self._times_ns: list[int] = []
        self._advance()

    def take(self) -> int:
        """Return the next instant, in CLOCK_MONOTONIC ns; each is returned once."""
        with self._lock:
            taken_ns = self._next_ns
            self._times_ns.append(taken_ns)
            self._advance()
        return taken_ns

    def next_ns(self) -> int:
        """Return the first instant that is not taken."""
        with self._lock:
            return self._next_ns

    def count(self, start_ns: int, end_ns: int) -> int:
        """Return the instants from start_ns to before end_ns; those not taken yet are taken."""
        while self.next_ns() < end_ns:
            self.take()
        with self._lock:
            return sum(start_ns <= t_ns < end_ns for t_ns in self._times_ns)

    def _advance(self) -> None:
        self._next_ns += round(self._rng.expovariate(self._rate_per_s) * NS_PER_S)


def wait_until(t_ns: int, stopped: Event) -> bool:
    """Wait for an instant of CLOCK_MONOTONIC; return False as soon as `stopped` is set."""
    while (left_ns := t_ns - time.monotonic_ns()) > 0:
        if stopped.wait(left_ns / NS_PER_S):
            return False
    return not stopped.is_set()
