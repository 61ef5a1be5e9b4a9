"""Load of requests: a closed loop, or an open loop with a schedule; and its steady-state window.

In a closed loop each connection sends its next request when the previous one is answered. In an
open loop requests are sent at scheduled instants; a connection is opened when all others are in use.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, Self

from costprobe_probes.stats import (
    READ_S,
    RISE_S,
    ProbeWindow,
    WindowSettings,
)

from costprobe.adapters.load_child.clients import Request, ServerClient
from costprobe.adapters.load_child.connection import Failure, Reply, ServerConnection, ServerError
from costprobe.core.records import NS_PER_S

# Pause after a failure: a server that rejects at once would get thousands of requests per second.
PAUSE_S: Final = 0.05
MAX_OUTCOMES: Final = 500_000
JOIN_MARGIN_S: Final = 5.0
POLL_S: Final = 0.02


class PoissonArrivals:
    """Instants of a Poisson process; one thread takes them at a time.

    A request that no thread is free to send is late, and the instants after it stay as they are:
    its latency counts from its own instant, as of a user who had to wait. A generator that would
    send later instead hides the queue of an overloaded server ("coordinated omission", G. Tene).

    Args:
        rate_per_s: Mean number of requests per second.
        start_ns: CLOCK_MONOTONIC ns at which the process begins.
        seed: Of the random gaps.

    Attributes:
        next_ns: The first instant that is not taken.
    """

    def __init__(self, rate_per_s: float, start_ns: int, seed: int) -> None:
        self._rate_per_s = rate_per_s
        self._rng = Random(seed)  # noqa: S311 - gaps between requests
        self._times_ns: list[int] = []
        self.next_ns = start_ns
        self._advance()

    def take(self) -> int:
        """Return the next instant, in CLOCK_MONOTONIC ns; each is returned once."""
        self._times_ns.append(self.next_ns)
        self._advance()
        return self._times_ns[-1]

    def count(self, start_ns: int, end_ns: int) -> int:
        """Return the instants from start_ns to before end_ns; those not taken yet are taken."""
        while self.next_ns < end_ns:
            self.take()
        return sum(start_ns <= t_ns < end_ns for t_ns in self._times_ns)

    def _advance(self) -> None:
        self.next_ns += round(self._rng.expovariate(self._rate_per_s) * NS_PER_S)


def wait_until(t_ns: int, stopped: threading.Event) -> bool:
    """Wait for an instant of CLOCK_MONOTONIC; return False as soon as `stopped` is set."""
    while (left_ns := t_ns - time.monotonic_ns()) > 0:
        if stopped.wait(left_ns / NS_PER_S):
            return False
    return not stopped.is_set()


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
    failed: list[Reply]

    def is_mostly_failed(self) -> bool:
        """Return whether more than half failed."""
        return len(self.failed) > len(self.replies)

    def span_ns(self) -> tuple[int, int]:
        """Return the first start and the last end; there must be at least one outcome."""
        return min(x.start_ns for x in self.ended), max(x.end_ns for x in self.ended)

    @property
    def ended(self) -> list[Reply]:
        """All of them."""
        return [*self.replies, *self.failed]

    def where(self, is_kept: Callable[[Reply], bool]) -> Outcomes:
        """Return some of the outcomes."""
        return Outcomes(list(filter(is_kept, self.replies)), list(filter(is_kept, self.failed)))

    def sent_before(self, t_ns: int) -> Outcomes:
        """Return the outcomes of requests sent before an instant."""
        return self.where(lambda x: x.start_ns < t_ns)

    def within(self, start_ns: int, end_ns: int) -> Outcomes:
        """Return the outcomes of requests in flight at any time between two instants."""
        return self.where(lambda x: x.start_ns < end_ns and x.end_ns > start_ns)


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
        self._arrivals = arrivals
        self._concurrency = concurrency
        # One thread waits for the next instant of the schedule at a time.
        self._turn = threading.Lock()
        self._idle = 0
        # When the request that a thread has, or waits to send, began; by the thread's identifier.
        self._begun: dict[int, int] = {}
        self._replies: list[Reply] = []
        self._failed: list[Reply] = []
        self._error: Exception | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for _ in range(self._concurrency if self._arrivals is None else 1):
            self._start_thread()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Stop sending, wait for requests in flight, and raise errors other than failed requests."""
        self._stopped.set()
        ends_s = time.monotonic() + self._timeout_s + JOIN_MARGIN_S
        for thread in list(self._threads):
            thread.join(max(0.0, ends_s - time.monotonic()))
        if exc_type is None and self._error is not None:
            raise self._error
        if exc_type is None and self.is_running():
            # getaddrinfo is the only call without a timeout.
            raise ServerError("requests exceed timeout_s: check the name server")

    def is_running(self) -> bool:
        """Return whether requests are in flight or will be sent."""
        return any(thread.is_alive() for thread in list(self._threads))

    def pending(self) -> int:
        """Return the requests that threads have in flight or wait to send."""
        with self._lock:
            return len(self._begun)

    def is_settled(self, t_ns: int) -> bool:
        """Return whether all requests that began before an instant, which has passed, have ended."""
        if self._arrivals is not None and self._arrivals.next_ns < t_ns:
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

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._send_requests, name="load", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send_requests(self) -> None:
        connection, arrivals = self._connect(), self._arrivals
        try:
            while (
                self._send_next(connection)
                if arrivals is None
                else self._send_scheduled(connection, arrivals)
            ):
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

    def _send_scheduled(self, connection: ServerConnection, arrivals: PoissonArrivals) -> bool:
        """Send the request of the next scheduled instant; return False at the end of the load."""
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
            self._begin(arrivals.next_ns)
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
            pending = len(self._begun)
            if answered + failed + pending >= MAX_OUTCOMES:
                raise ServerError(f"more than {MAX_OUTCOMES} requests: set a lower concurrency")
            answers = self._quota.answers
            enough = answers is not None and answered + pending >= answers
            if enough or failed >= self._quota.failures:
                return False
            self._begun[threading.get_ident()] = time.monotonic_ns()
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
            end_ns, message = time.monotonic_ns(), str(failure)
            reply = Reply(start_ns, end_ns, failure=failure.kind, message=message)
        with self._lock:
            outcomes = self._failed if reply.failure else self._replies
            outcomes.append(reply._replace(scheduled_ns=scheduled_ns))
            del self._begun[threading.get_ident()]
        if reply.failure:
            self._stopped.wait(PAUSE_S)


def count_by_kind(failed: Sequence[Reply]) -> dict[str, int]:
    """Count failures by kind, most frequent first."""
    return dict(Counter(x.failure for x in failed).most_common())


class WindowWork(NamedTuple):
    """Work within a window; a request that lies partly within it counts by its share.

    Attributes:
        requests: Answered requests.
        tokens_in: Prompt tokens; None if one of the counts is unknown.
        tokens_out: Generated tokens; None if there are none to count.
    """

    requests: float
    tokens_in: float | None
    tokens_out: float | None


def mark_steady_window(
    settings: WindowSettings,
    on_progress: Callable[[float], None],
    *,
    is_enough: Callable[[], bool] = lambda: True,
    longest_s: float = 0.0,
) -> ProbeWindow:
    """Mark a window of a load that other threads maintain.

    Args:
        settings: Shortest length of the window, and its connection to the sensors.
        on_progress: Called with the completed share of it, from 0 to 1.
        is_enough: Whether a window of this length has enough requests.
        longest_s: Length in s at which it ends even if they are not enough.
    """
    steady_start_ns = time.monotonic_ns()
    time.sleep(RISE_S + settings.phase_s)
    start_ns = time.monotonic_ns()
    settings.on_edge("window_start", start_ns)
    elapsed_s = 0.0
    while elapsed_s < settings.window_s or (elapsed_s < longest_s and not is_enough()):
        left_s = settings.window_s - elapsed_s
        time.sleep(min(POLL_S, left_s) if left_s > 0 else POLL_S)
        elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
        on_progress(min(elapsed_s / settings.window_s, 1.0))
    end_ns = time.monotonic_ns()
    settings.marked.clear()
    settings.on_edge("window_end", end_ns)
    settings.marked.wait(settings.tail_s)
    time.sleep(READ_S)
    return ProbeWindow(steady_start_ns, start_ns, end_ns, time.monotonic_ns())


def overlap(start_ns: int, end_ns: int, window_start_ns: int, window_end_ns: int) -> float:
    """Return the share of a request's duration that lies within a window, from 0 to 1."""
    if end_ns <= start_ns:
        return 1.0 if window_start_ns <= start_ns < window_end_ns else 0.0
    within_ns = min(end_ns, window_end_ns) - max(start_ns, window_start_ns)
    return max(0, within_ns) / (end_ns - start_ns)


def work_within(
    replies: Sequence[Reply], start_ns: int, end_ns: int, tokens_out: Callable[[Reply], int | None]
) -> WindowWork:
    """Return the work within a window, each request by the share of its duration within it.

    Requests in flight at an edge were served on both sides of it. Counting completions would
    include all requests that end in the window and none that only begin in it: an error of up to
    the concurrency, which is large for requests of seconds in a window of a few seconds. With
    shares, the error at each edge depends only on the variation of work within a request.

    Args:
        replies: Answered requests, in any order.
        start_ns: Start of the window, CLOCK_MONOTONIC ns.
        end_ns: End of the window, CLOCK_MONOTONIC ns.
        tokens_out: Tokens that a request generated; None if unknown.
    """
    shares = [(overlap(x.start_ns, x.end_ns, start_ns, end_ns), x) for x in replies]
    shares = [(share, x) for share, x in shares if share > 0]
    return WindowWork(
        sum(share for share, _ in shares),
        _weighted_sum([(share, x.tokens_in) for share, x in shares]),
        _weighted_sum([(share, tokens_out(x)) for share, x in shares]),
    )


def _weighted_sum(counts: Sequence[tuple[float, int | None]]) -> float | None:
    total = 0.0
    for share, count in counts:
        if count is None:
            return None
        total += share * count
    return total if counts else None
