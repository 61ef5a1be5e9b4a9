"""Days with a database that is down, slow, rejecting, sending garbage or accepting half of a batch.

The days pass on a fake clock; the store, the sink, the connection and the database are real.

Expected: every row is in the database exactly once in the end, except the rows that it rejects. They
are quarantined with the database's error and delay no other row. During an outage the number of
requests stays within the limit of the back-off.
"""

import random
from contextlib import closing

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.clock import NS_PER_S, FakeClock
from fakes.faulty_proxy import ANSWERS, FaultyProxy
from fakes.sending import sink_of, worker_of
from fakes.sizes import SEED, TIMEOUT_S, sized

PERIOD_S = sized(1, 7) * 86_400
MEASURED_EVERY_S = 600 // sized(1, 20)
DEVICES = sized(4, 8)
OUTAGE_S = sized(1800, 6 * 3600)
OUTAGES_OF_EACH = sized(1, 3)
# A slow request waits for its real timeout, so these outages are short.
SLOW_S = sized(400, 1800)
TIMEOUT_OF_A_REQUEST_S = 0.2
POISONED_EVERY = 97


STATES = [*ANSWERS]


def outages(rng):
    """Return start, end (in s) and kind of each outage: evenly spread, in random order."""
    states = STATES * OUTAGES_OF_EACH
    rng.shuffle(states)
    apart_s = PERIOD_S / len(states)
    found = []
    for number, state in enumerate(states):
        length_s = SLOW_S if state == "slow" else OUTAGE_S
        start_s = number * apart_s + rng.uniform(0, apart_s - length_s)
        found.append((start_s, start_s + length_s, state))
    return found


def rows_at(time_ns, number):
    """Return the measured rows, every POISONED_EVERY times with one that the database rejects."""
    rows = [
        Point("device", {"device": f"gpu{n}"}, {"power_w": 300.0 + number}, time_ns)
        for n in range(DEVICES)
    ]
    if number % POISONED_EVERY == 50:
        rows[1:1] = [Point("device", {"device": "odd"}, {"power_w": "much"}, time_ns)]
    return rows


@pytest.mark.timeout(TIMEOUT_S)
def test_every_row_arrives_exactly_once_after_outages(tmp_path, own_influxdb, figures):
    own_influxdb.query('CREATE DATABASE "d"')
    rng, clock = random.Random(SEED), FakeClock()
    begins_ns, planned = clock.time_ns(), outages(rng)

    def now_s():
        return (clock.time_ns() - begins_ns) / NS_PER_S

    def state():
        found = (state for start_s, end_s, state in planned if start_s <= now_s() < end_s)
        return next(found, "available")

    store = Store.open(tmp_path / "costprobe.db", clock)
    store.register_sink("one")
    outbox = store.outbox_of("one")
    with FaultyProxy(own_influxdb, state, 2 * TIMEOUT_OF_A_REQUEST_S) as proxy:
        sink = sink_of("v1", proxy.url, timeout_s=TIMEOUT_OF_A_REQUEST_S)
        worker = worker_of(
            outbox,
            sink,
            clock=clock,
            batch_points=500,
            flush_every_s=MEASURED_EVERY_S,
            drain_points_per_s=1000,
            rng=rng,
        )
        given, poisoned, number = 0, 0, 0
        while now_s() < PERIOD_S or store.backlog("one").points:
            while number * MEASURED_EVERY_S <= min(now_s(), PERIOD_S):
                rows = rows_at(begins_ns + number * MEASURED_EVERY_S * NS_PER_S, number)
                store.append(rows)
                given += len(rows)
                poisoned += len(rows) > DEVICES
                number += 1
            clock.move(max(0.001, worker.step()))
            assert now_s() < 2 * PERIOD_S
        sink.close()
    (status,) = store.sinks()
    store.close()
    with closing(StoreReader.open(tmp_path / "costprobe.db")) as reader:
        rejected = {row.line for _, row in reader.rejected("one")}
    arrived = own_influxdb.points("d")
    assert len(arrived) == given - poisoned
    assert poisoned
    assert status.rejected_points == poisoned
    assert len(rejected) == min(poisoned, 100)
    assert all("device=odd" in line for line in rejected)
    assert status.dropped_points == 0
    assert set(proxy.seen) == {"available", *STATES}
    # With back-off up to a minute there are about two requests a minute.
    outage_s = OUTAGES_OF_EACH * OUTAGE_S
    assert proxy.seen["unreachable"] < outage_s / 15
    figures(
        "a week of database outages",
        rows=given,
        rows_lost=given - poisoned - len(arrived),
        rows_duplicated=max(0, len(arrived) - (given - poisoned)),
        rows_rejected=poisoned,
        requests_by_state=proxy.seen,
    )
