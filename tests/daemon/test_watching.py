"""What detection and alerting know outlives a store that cannot be written, and a crash."""

import sqlite3
import time

import pytest
from fakes.clock import FakeClock

from agent.alert import Fault
from agent.config import Config
from agent.daemon.accounts import MemoryLedger
from agent.daemon.watching import WatchedLedger, Watching
from agent.series import make_point
from agent.storage.writer import Store

LOST = Fault("device_lost", "gpu0", "gpu0 does not answer", "critical", {"device": "gpu0"})
TAGS = {"host": "h"}
CONFIG = Config.model_validate(
    {
        "probe": [{"name": "e"}],
        "notifier": [{"name": "ops", "kind": "webhook", "url": "http://127.0.0.1:1/"}],
    }
)

HOT = Config.model_validate(
    {
        "alerting": {"defaults": False},
        "rule": [
            {
                "name": "hot",
                "kind": "threshold",
                "measurement": "device",
                "field": "temp_c",
                "above": 85,
                "for": "10m",
            }
        ],
    }
)


@pytest.fixture
def clock():
    return FakeClock(time.time_ns())


@pytest.fixture
def store(tmp_path, clock):
    opened = Store.open(tmp_path / "infercost.db", clock, busy_timeout_ms=50)
    yield opened
    opened.close()


def watching_of(store, clock, ledger=None):
    return Watching(CONFIG, store, ledger or MemoryLedger(), clock, TAGS)


def states(store):
    return [notice.alert["state"] for notice in store.notices("ops", 10)]


def test_incidents_wait_in_memory_while_the_store_cannot_be_written(store, clock):
    watching = watching_of(store, clock)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert watching.tick([LOST]) is False
    assert watching.status()["fault"]
    assert watching.status()["waiting_notices"] == 1
    clock.move(10)
    assert watching.tick([]) is False
    other.execute("ROLLBACK")
    other.close()
    clock.move(10)
    assert watching.tick([]) is True
    assert states(store) == ["firing", "resolved"]
    assert watching.status() == {"fault": None, "waiting_notices": 0, "dropped_notices": 0}


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_stepped_calendar_lengthens_no_duration(store, clock, step_s):
    watching = Watching(HOT, store, MemoryLedger(), clock, TAGS)

    def look(temp_c=90.0, *, move_s=10):
        clock.move(move_s)
        tags = {**TAGS, "device": "gpu0"}
        watching.take([make_point("device", tags, {"temp_c": temp_c}, clock.time_ns())])
        watching.tick([])
        return [alert["state"] for alert in store.state("alerts")["alerts"]]

    assert [look() for _ in range(3)] == [["pending"]] * 3
    clock.step(step_s)
    # The rule wants ten minutes: half of one has passed.
    assert look() == ["pending"]
    clock.step(-step_s)
    # No value has come since the step, and none was to come yet.
    watching.tick([])
    assert [look() for _ in range(56)] == [["pending"]] * 56
    assert look() == ["firing"]
    clock.step(step_s)
    watching.tick([])
    assert look() == ["firing"]
    assert look(60.0) == []


def test_a_crash_after_a_tick_changes_nothing(store, clock):
    watching_of(store, clock).tick([LOST])
    clock.move(10)
    watching_of(store, clock).tick([])
    assert states(store) == ["firing", "resolved"]


def test_damaged_incidents_begin_anew(store, clock):
    store.put_state("alerting", {"incidents": 3})
    store.put_state("detector gpu0 e cost", {"key": 3})
    watching = watching_of(store, clock)
    assert watching.tick([LOST]) is True
    assert states(store) == ["firing"]


def test_a_fault_in_looking_never_stops_keeping(clock):
    def broken(_):
        raise RuntimeError("detection is broken")

    ledger = MemoryLedger()
    point = make_point("agent", TAGS, {"rss_bytes": 1}, clock.time_ns())
    WatchedLedger(ledger, broken).append([point])
    assert ledger.points == [point]


def probe_row(time_ns, latency_ms):
    tags = {**TAGS, "device": "gpu0", "probe": "e", "batch": "8"}
    fields = {"latency_p50_ms": latency_ms, "throughput_per_s": 1000 / latency_ms}
    return make_point("probe", tags, fields, time_ns)


def test_a_new_process_learns_from_what_is_stored_and_tells_only_what_is_new(store, clock):
    begun_ns = clock.time_ns() - 3 * 86_400 * 10**9
    rows = [probe_row(begun_ns + n * 300 * 10**9, 8 + n % 3 / 20) for n in range(3 * 288)]
    slow = [probe_row(row.time_ns, 1.2 * row.fields["latency_p50_ms"]) for row in rows[576:]]
    store.append([*rows[:576], *slow])
    ledger = MemoryLedger()
    first = watching_of(store, clock, ledger)
    assert ledger.points == []
    first.keep_detectors()
    # The next process crashes after it kept the rows and before it told of them.
    for n in range(6):
        clock.move(300)
        store.append([probe_row(clock.time_ns(), 12.0 + n % 2 / 20)])
    second = watching_of(store, clock, ledger)
    assert {row.tags["metric"] for row in ledger.points} == {"latency", "throughput"}
    assert all(row.tags["kind"] == "drift" for row in ledger.points)
    second.tick([])
    assert states(store) == ["firing"]
