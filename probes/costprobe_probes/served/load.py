"""Load of requests: a closed loop, or an open loop with a schedule.

In a closed loop each connection sends its next request when the previous one is answered. In an
open loop requests are sent at scheduled instants; a connection is opened when all others are in use.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from costprobe_probes.served.arrivals import PoissonArrivals, wait_until
from costprobe_probes.served.http import Failure, ServerConnection
from costprobe_probes.served.outcome import Failed, Reply, Request, ServerClient, ServerError

# Pause after a failure: a server that rejects at once would get thousands of requests per second.
PAUSE_S = 0.05
MAX_OUTCOMES = 500_000
MAX_KINDS = 16
JOIN_MARGIN_S = 5.0


class Quota(NamedTuple):
    """Limits that end a load.

    Attributes:
        answers: Number of answers; None to run until it is stopped.
        failures: Number of failures.
        cap_s: Seconds in which requests are sent; requests in flight are still answered.
    """

    answers: int | None
    failures: int
    cap_s: float


class Outcomes(NamedTuple):
    """Outcomes of requests."""

    replies: list[Reply]
    failed: list[Failed]

    def is_mostly_failed(self) -> bool:
        """Return whether more than half failed."""
        return len(self.failed) > len(self.replies)

    def span_ns(self) -> tuple[int, int]:
        """Return the first start and the last end; there must be at least one outcome."""
        starts = [x.start_ns for x in self.replies] + [x.start_ns for x in self.failed]
        ends = [x.end_ns for x in self.replies] + [x.end_ns for x in self.failed]
        return min(starts), max(ends)

    def sent_before(self, t_ns: int) -> Outcomes:
        """Return the outcomes of requests sent before an instant."""
        return Outcomes(
            [x for x in self.replies if x.start_ns < t_ns],
            [x for x in self.failed if x.start_ns < t_ns],
        )

    def within(self, start_ns: int, end_ns: int) -> Outcomes:
        """Return the outcomes of requests in flight at any time between two instants."""
        return Outcomes(
            [x for x in self.replies if x.start_ns < end_ns and x.end_ns > start_ns],
            [x for x in self.failed if x.start_ns < end_ns and x.end_ns > start_ns],
        )


class LoadGenerator:
    """Context in which requests are sent to a server, until it is left or the quota is reached.

    Args:
        client: Client of the server.
        connect: Opens a connection, which one thread uses.
        concurrency: Requests in flight; in an open loop at most.
        quota: Limits that end the load.
        timeout_s: Timeout of each request; leaving the context waits for at most that and a margin.
        arrivals: Schedule of an open loop; None for a closed loop.
    """

    def __init__(
        self,
        client: ServerClient,
        connect: Callable[[], ServerConnection],
        *,
        concurrency: int,
        quota: Quota,
        timeout_s: float,
        arrivals: PoissonArrivals | None = None,
    ) -> None:
        self._client = client
        self._connect = connect
        self._quota = quota
        self._timeout_s = timeout_s
        self._ends_s = time.monotonic() + quota.cap_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._in_flight = 0
        self._arrivals = arrivals
        self._concurrency = concurrency
        # One thread waits for the next instant of the schedule at a time.
        self._turn = threading.Lock()
        self._idle = 0
        # When the request that a thread has, or waits to send, began; by the thread's identifier.
        self._begun: dict[int, int] = {}
        self._replies: list[Reply] = []
        self._failed: list[Failed] = []
        self._error: Exception | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> LoadGenerator:  # noqa: PYI034 - typing.Self is newer than Python 3.9
        for _ in range(self._concurrency if self._arrivals is None else 1):
            self._start_thread()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        _exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Stop sending, wait for requests in flight, and raise errors other than failed requests."""
        self._stopped.set()
        ends_s = time.monotonic() + self._timeout_s + JOIN_MARGIN_S
        for thread in self._all_threads():
            thread.join(max(0.0, ends_s - time.monotonic()))
        if exc_type is None and self._error is not None:
            raise self._error
        if exc_type is None and self.is_running():
            # getaddrinfo is the only call without a timeout.
            raise ServerError("requests exceed timeout_s: check the name server")

    def is_running(self) -> bool:
        """Return whether requests are in flight or will be sent."""
        return any(thread.is_alive() for thread in self._all_threads())

    def pending(self) -> int:
        """Return the requests that threads have in flight or wait to send."""
        with self._lock:
            return len(self._begun)

    def is_settled(self, t_ns: int) -> bool:
        """Return whether all requests that began before an instant, which has passed, have ended."""
        if self._arrivals is not None and self._arrivals.next_ns() < t_ns:
            return False
        with self._lock:
            return not any(begin_ns < t_ns for begin_ns in self._begun.values())

    def counts(self) -> tuple[int, int]:
        """Return the numbers of answered and failed requests."""
        with self._lock:
            return len(self._replies), len(self._failed)

    def outcomes(self) -> Outcomes:
        """Return the outcomes of completed requests, in the order of completion."""
        with self._lock:
            return Outcomes(list(self._replies), list(self._failed))

    def _all_threads(self) -> list[threading.Thread]:
        with self._lock:
            return list(self._threads)

    def _start_thread(self) -> None:
        with self._lock:
            thread = threading.Thread(
                target=self._send_requests, name=f"load {len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
        thread.start()

    def _send_requests(self) -> None:
        connection = self._connect()
        send = self._send_next if self._arrivals is None else self._send_scheduled
        try:
            while send(connection):
                pass
        except Exception as error:  # noqa: BLE001 - raised when the context is left
            self._error = error
            self._stopped.set()
        finally:
            connection.close()

    def _send_next(self, connection: ServerConnection) -> bool:
        """Send a request of a closed loop; return False at the end of the load."""
        if not self._may_send():
            return False
        self._send(connection, self._client.next_request(), None)
        return True

    def _send_scheduled(self, connection: ServerConnection) -> bool:
        """Send the request of the next scheduled instant; return False at the end of the load."""
        arrivals = self._arrivals
        if arrivals is None:
            return False
        with self._lock:
            self._idle += 1
        with self._turn:
            with self._lock:
                self._idle -= 1
                is_last = not self._idle and len(self._threads) < self._concurrency
            if not self._may_send():
                return False
            if is_last:
                self._start_thread()
            # Registered before it is taken: is_settled must see it in one of both places.
            self._begin(arrivals.next_ns())
            scheduled_ns = arrivals.take()
            # Before its instant: a long prompt takes milliseconds to write.
            request = self._client.next_request()
            if not wait_until(scheduled_ns, self._stopped):
                return False
        self._send(connection, request, scheduled_ns)
        return True

    def _begin(self, begin_ns: int) -> None:
        with self._lock:
            self._begun[threading.get_ident()] = begin_ns

    def _may_send(self) -> bool:
        if self._stopped.is_set() or time.monotonic() >= self._ends_s:
            return False
        with self._lock:
            answered, failed = len(self._replies), len(self._failed)
            if answered + failed + self._in_flight >= MAX_OUTCOMES:
                raise ServerError(f"more than {MAX_OUTCOMES} requests: set a lower concurrency")
            answers = self._quota.answers
            enough = answers is not None and answered + self._in_flight >= answers
            if enough or failed >= self._quota.failures:
                return False
            self._in_flight += 1
        return True

    def _send(
        self, connection: ServerConnection, request: Request, scheduled_ns: int | None
    ) -> None:
        start_ns = time.monotonic_ns()
        if scheduled_ns is None:
            self._begin(start_ns)
        try:
            reply = request(connection)
        except Failure as failure:
            ended = Failed(start_ns, time.monotonic_ns(), failure.kind, str(failure), scheduled_ns)
            self._end(self._failed, ended)
            self._stopped.wait(PAUSE_S)
        else:
            self._end(self._replies, reply._replace(scheduled_ns=scheduled_ns))

    def _end(self, outcomes: list, outcome: object) -> None:  # type: ignore[type-arg] # of either
        with self._lock:
            outcomes.append(outcome)
            self._in_flight -= 1
            del self._begun[threading.get_ident()]


def count_by_kind(failed: Sequence[Failed]) -> dict[str, int]:
    """Count failures by kind, most frequent first; kinds beyond MAX_KINDS together as "other"."""
    common = Counter(x.kind for x in failed).most_common()
    table = dict(common[:MAX_KINDS])
    if common[MAX_KINDS:]:
        table["other"] = sum(count for _, count in common[MAX_KINDS:])
    return table
