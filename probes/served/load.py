"""A closed loop of requests: each connection sends its next when its last one is answered."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from probes.served.http import Connection, Failure
from probes.served.outcome import Failed, Reply, ServerError, ServerKind

# A server that refuses at once would be sent thousands of requests a second.
PAUSE_S = 0.05
MAX_OUTCOMES = 500_000
MAX_KINDS = 16
JOIN_MARGIN_S = 5.0


class Quota(NamedTuple):
    """When a load ends by itself.

    Attributes:
        answers: After so many answers; None to go on until it is stopped.
        failures: After so many failures.
        cap_s: After so many seconds, in which requests are sent; the last are still answered.
    """

    answers: int | None
    failures: int
    cap_s: float


class Outcomes(NamedTuple):
    """What became of requests."""

    replies: list[Reply]
    failed: list[Failed]

    def is_mostly_failed(self) -> bool:
        """Whether more than half failed."""
        return len(self.failed) > len(self.replies)

    def span_ns(self) -> tuple[int, int]:
        """From the first one's start to the last one's end; there must be one."""
        starts = [x.start_ns for x in self.replies] + [x.start_ns for x in self.failed]
        ends = [x.end_ns for x in self.replies] + [x.end_ns for x in self.failed]
        return min(starts), max(ends)

    def sent_before(self, t_ns: int) -> Outcomes:
        """Those sent before an instant."""
        return Outcomes(
            [x for x in self.replies if x.start_ns < t_ns],
            [x for x in self.failed if x.start_ns < t_ns],
        )

    def within(self, start_ns: int, end_ns: int) -> Outcomes:
        """Those that were under way at any time between two instants."""
        return Outcomes(
            [x for x in self.replies if x.start_ns < end_ns and x.end_ns > start_ns],
            [x for x in self.failed if x.start_ns < end_ns and x.end_ns > start_ns],
        )


class Load:
    """A load on a server, from entering it until leaving it, or its quota.

    Args:
        kind: How the server is spoken to.
        connect: Makes a connection, which is used by one thread.
        concurrency: Requests under way at a time.
        quota: When it ends by itself.
        timeout_s: Of each request; leaving waits at most for so long, and a margin.
    """

    def __init__(
        self,
        kind: ServerKind,
        connect: Callable[[], Connection],
        *,
        concurrency: int,
        quota: Quota,
        timeout_s: float,
    ) -> None:
        self._kind = kind
        self._connect = connect
        self._quota = quota
        self._timeout_s = timeout_s
        self._ends_s = time.monotonic() + quota.cap_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._under_way = 0
        self._replies: list[Reply] = []
        self._failed: list[Failed] = []
        self._bug: Exception | None = None
        self._threads = [
            threading.Thread(target=self._serve, name=f"load {i}", daemon=True)
            for i in range(concurrency)
        ]

    def __enter__(self) -> Load:  # noqa: PYI034 - typing.Self is newer than Python 3.9
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        _exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Sends no more, waits for what is under way, and raises what was no request's failure."""
        self._stopped.set()
        ends_s = time.monotonic() + self._timeout_s + JOIN_MARGIN_S
        for thread in self._threads:
            thread.join(max(0.0, ends_s - time.monotonic()))
        if exc_type is None and self._bug is not None:
            raise self._bug
        if exc_type is None and self.is_on():
            # The one call without a time limit of its own is the look for the host's address.
            raise ServerError("requests hang beyond timeout_s: does the name service answer?")

    def is_on(self) -> bool:
        """Whether requests are under way, or still to come."""
        return any(thread.is_alive() for thread in self._threads)

    def counts(self) -> tuple[int, int]:
        """Requests answered and failed so far."""
        with self._lock:
            return len(self._replies), len(self._failed)

    def outcomes(self) -> Outcomes:
        """What became of the requests that have ended, in the order of their ends."""
        with self._lock:
            return Outcomes(list(self._replies), list(self._failed))

    def _serve(self) -> None:
        connection = self._connect()
        try:
            while self._may_send():
                self._send(connection)
        except Exception as error:  # noqa: BLE001 - raised where the load is left
            self._bug = error
            self._stopped.set()
        finally:
            connection.close()

    def _may_send(self) -> bool:
        if self._stopped.is_set() or time.monotonic() >= self._ends_s:
            return False
        with self._lock:
            answered, failed = len(self._replies), len(self._failed)
            if answered + failed + self._under_way >= MAX_OUTCOMES:
                raise ServerError(f"more than {MAX_OUTCOMES} requests: set a lower concurrency")
            wanted = self._quota.answers
            enough = wanted is not None and answered + self._under_way >= wanted
            if enough or failed >= self._quota.failures:
                return False
            self._under_way += 1
        return True

    def _send(self, connection: Connection) -> None:
        start_ns = time.monotonic_ns()
        try:
            reply = self._kind.send(connection)
        except Failure as failure:
            ended = Failed(start_ns, time.monotonic_ns(), failure.kind, str(failure))
            self._end(self._failed, ended)
            self._stopped.wait(PAUSE_S)
        else:
            self._end(self._replies, reply)

    def _end(self, outcomes: list, outcome: object) -> None:  # type: ignore[type-arg] # of either
        with self._lock:
            outcomes.append(outcome)
            self._under_way -= 1


def counted(failed: Sequence[Failed]) -> dict[str, int]:
    """Failures by kind, the commonest first; those beyond MAX_KINDS kinds together as "other"."""
    common = Counter(x.kind for x in failed).most_common()
    table = dict(common[:MAX_KINDS])
    if common[MAX_KINDS:]:
        table["other"] = sum(count for _, count in common[MAX_KINDS:])
    return table
