"""Send the rows of a fleet to one database, and measure its resource usage.

Each host's rows are in time order and are sent by the product's own client. Time is simulated:
rounds of ten seconds follow each other as fast as the database acknowledges them, and each sender
has its share of the hosts, so that the result is the sustained rate, not the offered rate.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from costprobe.adapters.http.errors import RetryLater
from costprobe.core.clock import NS_PER_MS
from costprobe.delivery.influx import InfluxV1
from fleet_rows import NS, Rows, Shape, line
from fleet_servers import MeasuredServer

ROUND_S = 10
PAUSE_S = 0.5
SENDERS = 4
BATCH_ROWS = 5000
DAY_S = 86_400
# All timestamps are within yesterday.
START_S = int(time.time()) // DAY_S * DAY_S - DAY_S


@dataclass
class Sent:
    """Result of sending for a while.

    Attributes:
        rows: Acknowledged rows.
        requests: Number of requests.
        seconds: Duration, in s.
        rounds: Started rounds of simulated time.
        cpu_s: CPU seconds of the database.
        rss_bytes: Its resident memory at the end.
        slow_s: 99th percentile of a request's time.
        retries: Requests that were sent again because the database was overloaded.
    """

    rows: int = 0
    requests: int = 0
    seconds: float = 0.0
    rounds: int = 0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    slow_s: float = 0.0
    retries: int = 0

    @property
    def per_s(self) -> float:
        """Acknowledged rows per second."""
        return self.rows / self.seconds

    @property
    def cpu_per_million_s(self) -> float:
        """CPU seconds of the database per million rows."""
        return self.cpu_s / self.rows * 1e6 if self.rows else float("nan")


class Sender(threading.Thread):
    """Sends the rows of a share of the hosts.

    Args:
        load: Load that it belongs to.
        number: Index of the sender.
    """

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(daemon=True)
        self._load, self._number = load, number
        self._rng = random.Random(number)
        self.rows, self.requests, self.rounds, self.retries = 0, 0, 0, 0
        self.times_s: list[float] = []
        self.error: Exception | None = None

    def run(self) -> None:
        """Send rounds until the load is over."""
        sink = self._load.server.sink()
        try:
            while not self._load.is_over():
                self._round(sink)
        except Exception as error:  # noqa: BLE001 - raised again where the threads are joined
            self.error = error
        finally:
            sink.close()

    def _round(self, sink: InfluxV1) -> None:
        load = self._load
        since_s = load.from_round * ROUND_S + self.rounds * ROUND_S
        due = load.rows.shapes if load.everything else load.rows.due(since_s, ROUND_S)
        waiting: list[str] = []
        for host in range(self._number, load.hosts, SENDERS):
            waiting += self._host(host, due, since_s)
            if len(waiting) >= load.request_rows:
                self._send(sink, waiting)
                waiting = []
            if load.is_over():
                return
        if waiting:
            self._send(sink, waiting)
        self.rounds += 1

    def _host(self, host: int, due: Iterable[Shape], since_s: int) -> list[str]:
        """Return a host's rows of a round; each host has its own sampling phase."""
        rng, load = self._rng, self._load
        phase_ns = zlib.crc32(b"%d" % host) * 1_000_003 % (ROUND_S * NS)
        time_ns = (START_S + since_s) * NS + phase_ns + rng.choice(load.rows.jitter_ns)
        time_ns -= time_ns % NS_PER_MS
        return [line(shape, host, time_ns, rng) for shape in due]

    def _send(self, sink: InfluxV1, lines: list[str]) -> None:
        body = "\n".join(lines).encode()
        began_s = time.perf_counter()
        while True:
            try:
                sink.post(sink.encode(body))
                break
            except RetryLater:
                # As in the product, unacknowledged rows are sent again.
                self.retries += 1
                if self._load.is_over():
                    return
                time.sleep(PAUSE_S)
        self.times_s.append(time.perf_counter() - began_s)
        self.rows += len(lines)
        self.requests += 1


class Load:
    """The load of a number of hosts for a limited time.

    Args:
        server: The database.
        rows: Rows of a host.
        hosts: Number of hosts.
        seconds: Maximum duration, in s.
        request_rows: Minimum number of rows of a request; 1 for one request per host.
        from_round: First round of simulated time.
        rounds: Maximum number of rounds.
        everything: Whether each series has a row in each round.
    """

    def __init__(  # noqa: PLR0913 - a run's settings
        self,
        server: MeasuredServer,
        rows: Rows,
        hosts: int,
        seconds: float,
        *,
        request_rows: int = 1,
        from_round: int = 0,
        rounds: int = DAY_S // ROUND_S,
        everything: bool = False,
    ) -> None:
        self.server, self.rows, self.hosts, self.seconds = server, rows, hosts, seconds
        self.request_rows, self.from_round, self.rounds = request_rows, from_round, rounds
        self.everything = everything
        self._ends_s = 0.0
        self._senders: list[Sender] = []

    def is_over(self) -> bool:
        """Return whether the time or the simulated day is over, or a sender failed."""
        if time.monotonic() >= self._ends_s:
            return True
        sender = threading.current_thread()
        is_done = isinstance(sender, Sender) and sender.rounds >= self.rounds
        return is_done or any(sender.error for sender in self._senders)

    def run(self) -> Sent:
        """Send until the load is over, and return the result."""
        cpu_s, _ = self.server.usage()
        began_s = time.monotonic()
        self._ends_s = began_s + self.seconds
        self._senders = [Sender(self, number) for number in range(SENDERS)]
        for sender in self._senders:
            sender.start()
        for sender in self._senders:
            sender.join()
        seconds = time.monotonic() - began_s
        for sender in self._senders:
            if sender.error is not None:
                raise sender.error
        now_s, rss_bytes = self.server.usage()
        times_s = sorted(time_s for sender in self._senders for time_s in sender.times_s)
        return Sent(
            rows=sum(sender.rows for sender in self._senders),
            requests=len(times_s),
            seconds=seconds,
            rounds=max(sender.rounds for sender in self._senders) + 1,
            cpu_s=now_s - cpu_s,
            rss_bytes=rss_bytes,
            slow_s=times_s[int(len(times_s) * 0.99)] if times_s else 0.0,
            retries=sum(sender.retries for sender in self._senders),
        )
