"""Exponential back-off with full jitter, so that a fleet does not retry in step."""

from __future__ import annotations

from random import Random

from costprobe.adapters.net.retry_after import MAX_RETRY_AFTER_S

# Limits 2**failures; every maximum in use is reached before.
_DOUBLINGS_MAX = 20
# Maximum jitter added to a wait that the server requested, in s.
_ASKED_SPREAD_S = 1.0


class RetryBackoff:
    """Computes the wait after each of a series of failures.

    The upper limit doubles with each failure, and the wait is uniform between `least_s` and it: "full
    jitter" (Brooker, "Exponential Backoff And Jitter", AWS 2015).

    Args:
        first_s: Upper limit after the first failure in s.
        max_s: Maximum of the upper limit in s.
        rng: Random source of the waits.
        least_s: Shortest wait in s.

    Attributes:
        failures: Failures since the last success.
    """

    def __init__(self, first_s: float, max_s: float, rng: Random, least_s: float = 0.1) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._least_s = least_s
        self._rng = rng
        self.failures = 0

    def failed(self, after_s: float | None = None) -> float:
        """Count a failure; return the seconds to wait before the next attempt.

        Args:
            after_s: Wait that the server requested (Retry-After), at most MAX_RETRY_AFTER_S: the wait
                is never shorter, and spread over another second.
        """
        self.failures += 1
        doublings = min(self.failures - 1, _DOUBLINGS_MAX)
        ceiling_s = min(self._max_s, self._first_s * 2.0**doublings)
        wait_s = self._rng.uniform(self._least_s, ceiling_s)
        if after_s is None:
            return wait_s
        return max(wait_s, min(after_s, MAX_RETRY_AFTER_S) + min(wait_s, _ASKED_SPREAD_S))

    def succeeded(self) -> None:
        """Reset the back-off after a success."""
        self.failures = 0
