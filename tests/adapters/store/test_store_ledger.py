"""While the store fails, points wait in a bounded, ordered buffer in memory."""

import sqlite3

import pytest
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from fakes.clock import FakeClock
from store_samples import lines_of, point


@pytest.fixture
def impatient(path):
    store = Store.open(path, FakeClock(), busy_timeout_ms=1)
    yield store
    store.close()


@pytest.fixture
def hold(impatient, path):
    """Another program that holds a write lock on the file."""
    other = sqlite3.connect(path, isolation_level=None)
    yield other.execute
    other.close()


def test_buffered_points_are_stored_in_order_after_recovery(impatient, hold):
    ledger = StoreLedger(impatient)
    ledger.append([point(1)])
    assert ledger.fault is None
    hold("BEGIN IMMEDIATE")
    ledger.append([point(2), point(3)])
    ledger.append([point(4)])
    assert "second daemon" in ledger.fault
    assert ledger.waiting_points == 3
    assert not ledger.flush()
    hold("COMMIT")
    ledger.append([point(5)])
    assert ledger.fault is None
    assert ledger.waiting_points == 0
    assert lines_of(impatient) == [render(point(second)) for second in range(1, 6)]


def test_full_buffer_drops_its_oldest_and_counts_them(impatient, hold):
    ledger = StoreLedger(impatient, capacity_points=10)
    hold("BEGIN IMMEDIATE")
    for second in range(25):
        ledger.append([point(second)])
    assert (ledger.waiting_points, ledger.dropped_points) == (10, 15)
    hold("COMMIT")
    assert ledger.flush()
    assert lines_of(impatient) == [render(point(second)) for second in range(15, 25)]
    assert impatient.dropped_points() == 15
    ledger.append([point(99)])
    assert impatient.dropped_points() == ledger.dropped_points == 15


def test_closed_store_does_not_raise(impatient):
    ledger = StoreLedger(impatient)
    impatient.close()
    ledger.append([point(1)])
    assert "closed" in ledger.fault
    assert ledger.waiting_points == 1


def test_document_waits_with_its_rows_and_invalid_ones_block_no_others(impatient, hold):
    ledger = StoreLedger(impatient)
    hold("BEGIN IMMEDIATE")
    ledger.append([point(1)], {"a": 1})
    with pytest.raises(ValueError, match="does not fit"):
        ledger.append([Point("device", {}, {"power_w": 1.0}, 2**64)])
    with pytest.raises(ValueError, match="Out of range"):
        ledger.append([point(2)], {"b": float("nan")})
    hold("COMMIT")
    assert (impatient.state("a"), ledger.state("a"), ledger.state("b")) == (None, 1, None)
    assert ledger.flush()
    assert impatient.state("a") == 1
    assert lines_of(impatient) == [render(point(1))]
