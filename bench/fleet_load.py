"""Sends what so many hosts send into one database, and measures what that took of it.

Each host's rows come in the order of time and leave by the product's own client. Time is simulated:
rounds of ten seconds follow each other as fast as the database acknowledges them, each sender
having its share of the hosts, so that what is found is a rate that is sustained and not offered.
"""

import random
import threading
import time
import zlib
from dataclasses import dataclass

from fleet_rows import NS, line

from agent.clock import NS_PER_MS
from agent.sinks.errors import RetryLater

ROUND_S = 10
PAUSE_S = 0.5
SENDERS = 4
BATCH_ROWS = 5000
DAY_S = 86_400
# All that is sent lies within yesterday.
START_S = int(time.time()) // DAY_S * DAY_S - DAY_S


@dataclass
class Sent:
    """What a stretch of sending came to.

    Attributes:
        rows: Rows that were acknowledged.
        requests: In so many requests.
        seconds: In so long.
        rounds: Rounds of simulated time that were begun.
        cpu_s: CPU seconds of the database.
        rss_bytes: Its resident memory at the end.
        slow_s: 99th percentile of a request's time.
        put_off: Requests that the database was too busy for, and that were sent again.
    """

    rows: int = 0
    requests: int = 0
    seconds: float = 0.0
    rounds: int = 0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    slow_s: float = 0.0
    put_off: int = 0

    @property
    def per_s(self):
        """Rows acknowledged in a second."""
        return self.rows / self.seconds

    @property
    def cpu_per_million_s(self):
        """CPU seconds of the database for a million rows."""
        return self.cpu_s / self.rows * 1e6 if self.rows else float("nan")


class Sender(threading.Thread):
    """Speaks for a share of the hosts.

    Args:
        load: What it is a part of.
        number: Which of the senders it is.
    """

    def __init__(self, load, number):
        super().__init__(daemon=True)
        self._load, self._number = load, number
        self._rng = random.Random(number)
        self.rows, self.requests, self.rounds, self.times = 0, 0, 0, []
        self.put_off = 0
        self.error = None

    def run(self):
        """Sends rounds until it is time to end."""
        sink = self._load.server.sink(self._load.database)
        try:
            while not self._load.is_over():
                self._round(sink)
        except Exception as error:  # noqa: BLE001 - it is told where the threads are joined
            self.error = error
        finally:
            sink.close()

    def _round(self, sink):
        load = self._load
        since_s = load.from_round * ROUND_S + self.rounds * ROUND_S
        due = load.rows.shapes if load.everything else load.rows.due(since_s, ROUND_S)
        waiting = []
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

    def _host(self, host, due, since_s):
        """A host's rows of a round: its sensors have a phase of their own."""
        rng, load = self._rng, self._load
        phase_ns = zlib.crc32(b"%d" % host) * 1_000_003 % (ROUND_S * NS)
        time_ns = (START_S + since_s) * NS + phase_ns + rng.choice(load.rows.wobble_ns)
        # What a clock says beyond the millisecond; the product's rows leave it out.
        time_ns += rng.randrange(NS_PER_MS)
        time_ns -= time_ns % load.grid_ns
        return [line(shape, host, time_ns, rng) for shape in due]

    def _send(self, sink, lines):
        body = "\n".join(lines).encode()
        began_s = time.perf_counter()
        while True:
            try:
                sink.post(sink.pack(body))
                break
            except RetryLater:
                # As the product does: what is not acknowledged is sent again.
                self.put_off += 1
                if self._load.is_over():
                    return
                time.sleep(PAUSE_S)
        self.times.append(time.perf_counter() - began_s)
        self.rows += len(lines)
        self.requests += 1


class Load:
    """So many hosts, sent for so long.

    Args:
        server: The database.
        rows: What a host sends.
        hosts: How many.
        seconds: Most time.
        request_rows: Rows that a request has at least: 1 for one request of each host.
        from_round: Where in simulated time it begins.
        rounds: Most rounds.
        everything: Whether each series has a row in each round.
        grid_ns: What timestamps are multiples of.
        database: Where to.
    """

    def __init__(  # noqa: PLR0913 - a run's settings
        self,
        server,
        rows,
        hosts,
        seconds,
        *,
        request_rows=1,
        from_round=0,
        rounds=DAY_S // ROUND_S,
        everything=False,
        grid_ns=NS_PER_MS,
        database="fleet",
    ):
        self.server, self.rows, self.hosts, self.seconds = server, rows, hosts, seconds
        self.request_rows, self.from_round, self.rounds = request_rows, from_round, rounds
        self.everything, self.grid_ns, self.database = everything, grid_ns, database
        self._ends_s = 0.0
        self._senders = []

    def is_over(self):
        """Whether time is up, or the simulated day, or something went wrong."""
        if time.monotonic() >= self._ends_s:
            return True
        me = threading.current_thread()
        return me.rounds >= self.rounds or any(sender.error for sender in self._senders)

    def run(self):
        """Sends; what it came to."""
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
        times = sorted(took for sender in self._senders for took in sender.times)
        return Sent(
            rows=sum(sender.rows for sender in self._senders),
            requests=len(times),
            seconds=seconds,
            rounds=max(sender.rounds for sender in self._senders) + 1,
            cpu_s=now_s - cpu_s,
            rss_bytes=rss_bytes,
            slow_s=times[int(len(times) * 0.99)] if times else 0.0,
            put_off=sum(sender.put_off for sender in self._senders),
        )
