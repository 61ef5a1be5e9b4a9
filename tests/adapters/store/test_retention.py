"""Retention uses a bounded clock, so a wrong wall clock deletes at most one day."""

import pytest
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.upkeep import (
    CATCHES_UP,
    HOURS_NS,
    RETENTION_EVERY_S,
    STATE,
    Retention,
)
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S, Point
from fakes.clock import FakeClock
from fakes.store_access import rows_after

DAY_S = 86_400
HOUR_S = 3600
OUTBOX_S = 180.0 * DAY_S


class Host:
    """A store with an event each hour of the oldest ten days, and the jobs of its daemon."""

    def __init__(self, path):
        self.clock = FakeClock()
        self.path = path
        first_ns = self.clock.time_ns() - HOURS_NS
        self.store = Store.open(path, self.clock)
        self.store.append(
            Point("event", {"host": "h"}, {"title": "t"}, first_ns + hour * HOUR_S * NS_PER_S)
            for hour in range(240)
        )
        self.retention = self._retention()

    def _retention(self):
        return Retention(self.store, StoreLedger(self.store), self.clock)

    def restart(self):
        self.store.close()
        self.store = Store.open(self.path, self.clock)
        self.retention = self._retention()

    def look(self, looks=1):
        for _ in range(looks):
            self.clock.move(RETENTION_EVERY_S)
            self.retention.apply(OUTBOX_S)

    @property
    def events(self):
        return len(rows_after(self.store, 0, 1000))


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path / "s.db")
    yield host
    host.store.close()


def test_rows_are_deleted_as_time_passes_also_after_a_damaged_time(host):
    host.store.put_state(STATE, ["damaged"])
    host.look(6 * 5)
    assert host.events == 240 - 5


def test_wall_clock_wrong_by_years_for_an_hour_deletes_one_day(host):
    host.look()
    before = host.events
    host.clock.step(20 * 365 * DAY_S)
    host.look(6)
    assert before - host.events == CATCHES_UP
    host.clock.step(-20 * 365 * DAY_S)
    left = host.events
    host.look(6 * 20)
    assert host.events == left
    # From here on retention behaves as without the error.
    host.look(6 * 10)
    assert host.events == 240 - 32


def test_wrong_wall_clock_at_the_start_does_not_advance_retention(host):
    host.look()
    before = host.events
    host.clock.step(20 * 365 * DAY_S)
    host.restart()
    host.retention.apply(OUTBOX_S)
    assert before - host.events == CATCHES_UP * RETENTION_EVERY_S / HOUR_S


def test_retention_catches_up_after_the_host_was_off(host):
    host.look()
    host.store.close()
    host.clock.step(5 * DAY_S)
    host.store = Store.open(host.path, host.clock)
    host.restart()
    host.look()
    assert host.events > 230
    host.look(6 * 24 * 5 // CATCHES_UP + 6)
    assert host.events == 120 - 7
