"""A proxy in front of a database, which forwards requests, answers in its place or cuts the connection."""

import time
from collections import Counter

from fakes.servers import Scripted, answered

# How the database fails, and its answer if that is all.
ANSWERS = {
    "unreachable": None,
    "overloaded": (503, {"Retry-After": "120"}, b'{"error":"engine: cache maximum memory size"}'),
    "rejecting": (401, {}, b'{"error":"authorization failed"}'),
    "malformed": (200, {}, bytes(range(256)) * 400),
    "accepting without an answer": None,
    "accepting half": (400, {}, b'{"error":"partial write: points beyond the limit dropped=1"}'),
    "slow": (503, {}, b"late"),
}


class FaultyProxy(Scripted):
    """A proxy; a server while the context is open.

    Args:
        database: Where it forwards to.
        state_of_next: Returns the state for each request: a key of ANSWERS, or "available".
        slow_s: Time of a slow answer.

    Attributes:
        seen: The number of requests in each state.
    """

    def __init__(self, database, state_of_next, slow_s=0.0):
        super().__init__(self._pass_on)
        self.seen = Counter()
        self._database, self._state_of_next, self._slow_s = database, state_of_next, slow_s

    def _pass_on(self, method, path, _headers, body):
        state = self._state_of_next()
        self.seen[state] += 1
        if state == "slow":
            time.sleep(self._slow_s)
        if state in ("available", "accepting without an answer", "accepting half"):
            lines = body.split(b"\n")
            kept = (len(lines) + 1) // 2 if state == "accepting half" else len(lines)
            content = b"\n".join(lines[:kept]) if method == "POST" else None
            status, headers, answer = answered(f"{self._database.url}{path}", content)
            if state == "available" or (state == "accepting half" and len(lines) == 1):
                return status, dict(headers), answer
        if ANSWERS[state] is None:
            raise ConnectionResetError
        return ANSWERS[state]
