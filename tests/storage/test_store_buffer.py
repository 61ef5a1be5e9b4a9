"""While the store takes nothing, points wait in memory: in order, bounded, counted."""

import sqlite3

import pytest
from fakes.clock import FakeClock
from store_samples import lines_of, point

from agent.lineprotocol import render
from agent.model import Point
from agent.storage.buffer import BufferedWriter
from agent.storage.writer import Store


@pytest.fixture
def impatient(path):
    store = Store.open(path, FakeClock(), busy_timeout_ms=1)
    yield store
    store.close()


@pytest.fixture
def hold(impatient, path):
    """Another program that holds the file for writing, until it is let go."""
    other = sqlite3.connect(path, isolation_level=None)
    yield other.execute
    other.close()


def test_points_that_wait_follow_in_order_once_the_store_takes_them(impatient, hold):
    buffer = BufferedWriter(impatient)
    buffer.append([point(1)])
    assert buffer.fault is None
    hold("BEGIN IMMEDIATE")
    buffer.append([point(2), point(3)])
    buffer.append([point(4)])
    assert "second daemon" in buffer.fault
    assert buffer.waiting_points == 3
    assert not buffer.flush()
    hold("COMMIT")
    buffer.append([point(5)])
    assert buffer.fault is None
    assert buffer.waiting_points == 0
    assert lines_of(impatient) == [render(point(second)) for second in range(1, 6)]


def test_a_flush_alone_stores_what_waits(impatient, hold):
    buffer = BufferedWriter(impatient)
    hold("BEGIN IMMEDIATE")
    buffer.append([point(second) for second in range(2500)])
    hold("COMMIT")
    assert buffer.flush()
    assert len(lines_of(impatient)) == 2500


def test_the_oldest_go_first_and_the_store_learns_how_many(impatient, hold):
    buffer = BufferedWriter(impatient, capacity_points=10)
    hold("BEGIN IMMEDIATE")
    for second in range(25):
        buffer.append([point(second)])
    assert (buffer.waiting_points, buffer.dropped_points) == (10, 15)
    hold("COMMIT")
    assert buffer.flush()
    assert lines_of(impatient) == [render(point(second)) for second in range(15, 25)]
    assert impatient.dropped_points() == 15
    buffer.append([point(99)])
    assert impatient.dropped_points() == buffer.dropped_points == 15


def test_a_point_that_can_never_be_stored_does_not_hold_up_the_others(impatient, hold):
    buffer = BufferedWriter(impatient)
    hold("BEGIN IMMEDIATE")
    buffer.append([point(1)])
    with pytest.raises(ValueError, match="no time"):
        buffer.append([Point("device", {}, {"power_w": 1.0}, 2**64)])
    hold("COMMIT")
    assert buffer.flush()
    assert lines_of(impatient) == [render(point(1))]


def test_a_store_that_is_closed_already_does_not_raise_either(impatient):
    buffer = BufferedWriter(impatient)
    impatient.close()
    buffer.append([point(1)])
    assert "closed" in buffer.fault
    assert buffer.waiting_points == 1
