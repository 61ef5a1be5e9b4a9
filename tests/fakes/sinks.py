"""A sink in memory."""

import threading

from costprobe.adapters.http.errors import Rejected, RetryLater
from costprobe.delivery.contract import Sink


class RecordingSink(Sink):
    """Stores accepted lines, rejects those with "poison", and fails as configured; thread-safe.

    Attributes:
        lines: The accepted lines.
        requests: Number of posts.
        failures: Errors of the next posts.
        is_away: Whether every post and check fails.
        limit_bytes: Largest body; None for any.
        too_large: Number of posts that were larger.
        is_doubtful: Whether rejections do not have the form of a database.
        is_internal: Whether "poison" causes an internal error instead.
        counts: Whether rejections have the number of rows with "poison"; the others are stored.
        refuses_everything: Whether a check is rejected, too.
    """

    def __init__(self, *, limit_bytes=None):
        self.lines = []
        self.requests = 0
        self.failures = []
        self.is_away = False
        self.limit_bytes = limit_bytes
        self.too_large = 0
        self.is_doubtful = False
        self.refuses_everything = False
        self.is_internal = False
        self.counts = False
        self.is_closed = False
        self._lock = threading.Lock()

    def encode(self, points):
        return points

    def post(self, body):
        with self._lock:
            self._post(body)

    def _post(self, body):
        self.requests += 1
        if self.is_away:
            raise RetryLater("away")
        if self.failures:
            raise self.failures.pop(0)
        if self.limit_bytes and len(body) > self.limit_bytes:
            self.too_large += 1
            raise Rejected("too large", too_large=True)
        found = body.decode().split("\n")
        poisoned = sum("poison" in line for line in found)
        if poisoned and self.is_internal:
            raise RetryLater("it is poison", is_internal=True)
        if poisoned:
            dropped = poisoned if self.counts else 0
            raise Rejected("it is poison", doubtful=self.is_doubtful, dropped=dropped)
        self.lines += found

    def check(self):
        if self.is_away:
            raise RetryLater("away")
        if self.refuses_everything:
            raise Rejected("go away", doubtful=True)
        return "fine"

    def close(self):
        self.is_closed = True
