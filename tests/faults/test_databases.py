"""A week with a database that is away, slow, refusing, answering rubbish and half-taking batches.

The week passes on a clock that is moved; the store, the sink, the wire and the database are real.

Outcome: in the end every row is in the database exactly once, but for those that it will never
take: they are put aside, each with the database's words, and hold up no other. While it does not
take rows, requests stay as few as the back-off allows, however long that is.
"""

import random
import threading
import time
import urllib.error
import urllib.request

import pytest
from fakes.clock import NS_PER_S, FakeClock
from fakes.sending import send
from fakes.servers import Scripted, VictoriaMetrics, running
from fakes.sizes import SEED, TIMEOUT_S, sized

from agent.model import Point
from agent.sinks.pusher import Pusher
from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings
from agent.storage.reader import StoreReader
from agent.storage.writer import Store

WEEK_S = 7 * 86_400
MEASURED_EVERY_S = 300 // sized(1, 10)
DEVICES = sized(4, 8)
OUTAGE_S = sized(1800, 6 * 3600)
OUTAGES_OF_EACH = sized(2, 3)
# A request waits for its real time-out, so that these are short.
SLOW_S = sized(400, 1800)
TIMEOUT_OF_A_REQUEST_S = 0.2
POISONED_EVERY = 97


def forwarded(database, body):
    """The database's own answer."""
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{database.url}/write?db=d&precision=ns", body
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


class Moody:
    """What stands before the database: it passes requests on, or misbehaves, by the hour.

    Attributes:
        mood: How it answers now.
        seen: How many requests it got in each mood.
    """

    def __init__(self, database):
        self.mood = "well"
        self.seen = {}
        self._database = database

    def __call__(self, _method, _path, _headers, body):
        self.seen[self.mood] = self.seen.get(self.mood, 0) + 1
        return getattr(self, self.mood.replace(" ", "_"))(body)

    def well(self, body):
        return forwarded(self._database, body)

    def away(self, _):
        raise ConnectionResetError

    def slow(self, _):
        time.sleep(2 * TIMEOUT_OF_A_REQUEST_S)
        return 503, {}, b"late"

    def busy(self, _):
        return (
            503,
            {"Retry-After": "120"},
            b'{"error":"engine: cache maximum memory size exceeded"}',
        )

    def refusing(self, _):
        return 401, {}, b'{"error":"authorization failed"}'

    def rubbish(self, _):
        return 200, {}, bytes(range(256)) * 400

    def taking_and_not_saying(self, body):
        forwarded(self._database, body)
        raise ConnectionResetError

    def taking_half(self, body):
        lines = body.split(b"\n")
        half = b"\n".join(lines[: (len(lines) + 1) // 2])
        status, headers, said = forwarded(self._database, half)
        if len(lines) == 1:
            return status, headers, said
        return 400, {}, b'{"error":"partial write: points beyond the limit dropped=1"}'


MOODS = [
    "away",
    "busy",
    "refusing",
    "rubbish",
    "taking and not saying",
    "taking half",
    "slow",
]


def troubles(rng):
    """When which trouble begins and ends, in s of the week: one after the other, in any order."""
    moods = MOODS * OUTAGES_OF_EACH
    rng.shuffle(moods)
    apart_s = WEEK_S / len(moods)
    found = []
    for number, mood in enumerate(moods):
        length_s = SLOW_S if mood == "slow" else OUTAGE_S
        start_s = number * apart_s + rng.uniform(0, apart_s - length_s)
        found.append((start_s, start_s + length_s, mood))
    return found


def rows_at(time_ns, number):
    """What the host measured, and now and then something that the database never takes."""
    rows = [
        Point("device", {"device": f"gpu{n}"}, {"power_w": 300.0 + number}, time_ns)
        for n in range(DEVICES)
    ]
    if number % POISONED_EVERY == 50:
        rows[1:1] = [Point("device", {"device": "odd"}, {"power_w": "much"}, time_ns)]
    return rows


@pytest.mark.timeout(TIMEOUT_S)
def test_after_a_week_of_trouble_every_row_is_there_once(tmp_path, own_influxdb, figures):
    own_influxdb.query('CREATE DATABASE "d"')
    rng, clock = random.Random(SEED), FakeClock()
    begins_ns, planned = clock.time_ns(), troubles(rng)
    store = Store.open(tmp_path / "infercost.db", clock)
    store.register_sink("one")
    outbox = store.outbox_of("one", important_first=True, max_points=10**9)
    moody = Moody(own_influxdb)
    with Scripted(moody) as server:
        sink = build_sink(
            SinkSettings("v1", server.url, database="d", timeout_s=TIMEOUT_OF_A_REQUEST_S)
        )
        pusher = Pusher(
            "one",
            outbox,
            sink,
            threading.Event(),
            batch_points=500,
            flush_every_s=MEASURED_EVERY_S,
            drain_points_per_s=1000,
            rng=rng,
            clock=clock,
        )
        given, poisoned, number, ends_s = 0, 0, 0, 0.0
        while ends_s < WEEK_S or store.backlog("one").points:
            now_s = (clock.time_ns() - begins_ns) / NS_PER_S
            while number * MEASURED_EVERY_S <= min(now_s, WEEK_S):
                rows = rows_at(begins_ns + number * MEASURED_EVERY_S * NS_PER_S, number)
                store.append(rows)
                given += len(rows)
                poisoned += len(rows) > DEVICES
                number += 1
            moody.mood = next(
                (mood for start_s, end_s, mood in planned if start_s <= now_s < end_s), "well"
            )
            clock.move(max(0.001, pusher.step()))
            ends_s = (clock.time_ns() - begins_ns) / NS_PER_S
            assert ends_s < 2 * WEEK_S
        sink.close()
    (status,) = store.sinks()
    store.close()
    rejected = {row.line for _, row in rejected_of(tmp_path / "infercost.db")}
    arrived = own_influxdb.points("d")
    assert len(arrived) == given - poisoned
    assert poisoned
    assert status.rejected_points == poisoned
    assert len(rejected) == min(poisoned, 100)
    assert all("device=odd" in line for line in rejected)
    assert status.dropped_points == 0
    assert set(moody.seen) == {"well", *MOODS}
    # Of a back-off of up to a minute about two requests a minute are left.
    away_s = OUTAGES_OF_EACH * OUTAGE_S
    assert moody.seen["away"] < away_s / 15
    figures(
        "a week of database troubles",
        rows=given,
        rows_lost=given - poisoned - len(arrived),
        rows_doubled=max(0, len(arrived) - (given - poisoned)),
        rows_put_aside=poisoned,
        requests_by_mood=moody.seen,
    )


def rejected_of(path):
    reader = StoreReader.open(path)
    try:
        return list(reader.rejected("one"))
    finally:
        reader.close()


def test_what_is_sent_again_is_there_once(tmp_path, own_influxdb):
    """As after an answer that was lost: InfluxDB by its nature, VictoriaMetrics where it is told to."""
    own_influxdb.query('CREATE DATABASE "d"')
    line = b"device,device=gpu0 power_w=300 1780000000000000000"
    options = ("-dedup.minScrapeInterval=1ms",)
    with running(VictoriaMetrics, tmp_path / "v", "victoria-metrics", options=options) as victoria:
        for server in (own_influxdb, victoria):
            sink = build_sink(SinkSettings("v1", server.url, database="d"))
            for _ in range(3):
                send(sink, line)
            sink.close()
        assert len(own_influxdb.points("d")) == 1
        labels = (("db", "d"), ("device", "gpu0"))
        key = ("device_power_w", labels, 1_780_000_000_000)
        assert victoria.samples({key}) == {key: 300.0}
