"""The store: committed is committed, an identity is stored once, each sink has its own place."""

import math
import sqlite3
import stat

import pytest
from fakes.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from agent.lineprotocol import render
from agent.model import Point
from agent.storage.buffer import BufferedWriter
from agent.storage.errors import StoreError
from agent.storage.migrations import MIGRATIONS
from agent.storage.reader import StoreReader
from agent.storage.writer import MAX_REJECTED_KEPT, Store

S = 1_000_000_000


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "infercost.db"


@pytest.fixture
def store(path, clock):
    opened = Store.open(path, clock)
    yield opened
    opened.close()


def point(value, time_ns, device="gpu0", measurement="device", **more):
    return Point(measurement, {"host": "h", "device": device}, {"power_w": value, **more}, time_ns)


def test_what_was_appended_is_read_back_in_order_of_time(store):
    points = [point(float(i), i * S, device=f"gpu{i % 3}") for i in range(2000)]
    store.append(reversed(points))
    assert list(store.reader().points("device", 0, None)) == points
    assert list(store.reader().lines(0, None, "device")) == [render(p) for p in points]


def test_a_range_includes_both_its_ends_and_tags_choose_series(store):
    store.append([point(float(i), i * S, device=f"gpu{i % 2}") for i in range(10)])
    found = store.reader().points("device", 2 * S, 6 * S, {"device": "gpu0"})
    assert [p.time_ns // S for p in found] == [2, 4, 6]


def test_the_same_identity_is_replaced_and_sent_again(store):
    store.append([point(1.0, S), point(2.0, 2 * S)])
    store.register_sink("s", from_beginning=True)
    store.advance("s", store.rows_after(0, 10)[-1].seq, 2, ())
    store.append([point(9.0, S)])
    assert [p.fields["power_w"] for p in store.reader().points("device", 0, None)] == [9.0, 2.0]
    assert [row.line for row in store.rows_after(store.cursor("s"), 10)] == [render(point(9.0, S))]


def test_rows_of_the_outbox_come_in_order_and_once(store):
    store.append([point(float(i), i * S) for i in range(250)])
    seen, seq = [], 0
    while rows := store.rows_after(seq, 100):
        seen += [row.line for row in rows]
        seq = rows[-1].seq
    assert seen == [render(point(float(i), i * S)) for i in range(250)]


def test_each_sink_has_its_own_place(store):
    store.append([point(1.0, S)])
    store.register_sink("early", from_beginning=True)
    store.register_sink("late", from_beginning=False)
    store.append([point(2.0, 2 * S)])
    assert store.backlog("early") == (2, S)
    assert store.backlog("late") == (1, 2 * S)
    store.advance("early", store.rows_after(0, 1)[0].seq, 1, ())
    store.register_sink("early", from_beginning=True)
    assert store.backlog("early") == (1, 2 * S)
    store.forget_sinks_but(["late"])
    assert set(store.reader().sinks()) == {"late"}


def test_a_cursor_never_goes_back(store):
    store.register_sink("s", from_beginning=True)
    store.advance("s", 10, 10, ())
    store.advance("s", 5, 1, ())
    assert store.cursor("s") == 10


def test_refused_lines_are_kept_with_their_reason_within_a_bound(store, path):
    store.register_sink("s", from_beginning=True)
    for first in range(0, MAX_REJECTED_KEPT + 500, 500):
        store.advance("s", first, 0, [(f"line {first + i}", "why") for i in range(500)])
    sink = store.reader().sinks()["s"]
    assert sink["rejected_points"] == MAX_REJECTED_KEPT + 500
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT line, reason FROM rejected ORDER BY id").fetchall()
    connection.close()
    assert len(rows) == MAX_REJECTED_KEPT
    assert rows[-1] == (f"line {MAX_REJECTED_KEPT + 499}", "why")


def test_documents_are_kept(store, clock):
    assert store.state("a") is None
    store.put_state("a", {"x": [1, 2.5, None, "ü"]})
    assert store.state("a") == {"x": [1, 2.5, None, "ü"]}
    assert store.reader().states() == {"a": ({"x": [1, 2.5, None, "ü"]}, clock.time_ns())}


def test_points_past_retention_go_when_every_sink_has_them(store):
    store.append([point(float(i), i * S) for i in range(10)])
    store.register_sink("quick", from_beginning=True)
    store.register_sink("slow", from_beginning=True)
    store.advance("quick", store.rows_after(0, 10)[-1].seq, 10, ())
    store.advance("slow", store.rows_after(0, 4)[-1].seq, 4, ())
    assert store.prune(keep_since_ns=8 * S, outbox_keep_since_ns=0, limit=100) == 4
    assert store.dropped_points() == 0
    # What a dead sink holds back goes at the outbox's own age, and is counted.
    assert store.prune(keep_since_ns=8 * S, outbox_keep_since_ns=6 * S, limit=100) == 2
    assert store.dropped_points() == 2
    assert store.backlog("slow").points == 4


def test_retention_works_in_bounded_steps_and_without_sinks(store):
    store.append([point(float(i), i * S) for i in range(100)])
    assert store.prune(50 * S, 50 * S, limit=30) == 30
    assert store.prune(50 * S, 50 * S, limit=30) == 20
    assert store.prune(50 * S, 50 * S, limit=30) == 0
    assert store.dropped_points() == 0


def test_a_place_is_never_used_twice(store):
    store.append([point(1.0, S)])
    (row,) = store.rows_after(0, 10)
    store.prune(10 * S, 10 * S, limit=10)
    store.append([point(2.0, 20 * S)])
    assert store.rows_after(0, 10)[0].seq > row.seq


def test_a_reader_beside_the_writer_sees_what_is_committed(store, path):
    reader = StoreReader.open(path)
    store.append([point(1.0, S)])
    assert len(list(reader.points("device", 0, None))) == 1
    store.append([point(2.0, 2 * S)])
    assert len(list(reader.points("device", 0, None))) == 2
    reader.close()


def test_values_are_one_field_of_each_series(store):
    store.append(
        [
            point(1.5, S, temp_c=40.0),
            point(2.5, 2 * S, energy_method=',power_w=77 "and" \\'),
            Point("device", {"device": "gpu1"}, {"temp_c": 50.0}, S),
            Point("device", {"device": "gpu0", "host": "h"}, {"a": ",power_w=99"}, 3 * S),
            point(math.pi * 1e-9, 4 * S),
        ]
    )
    (series,) = store.reader().values("device", "power_w", 0, None)
    assert series.tags == {"host": "h", "device": "gpu0"}
    assert series.times_ns == (S, 2 * S, 4 * S)
    assert series.values == (1.5, 2.5, math.pi * 1e-9)
    assert store.reader().values("device", "samples", 0, None) == []


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "power_w", "x power_w"]),
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(-99, 99) | st.text(),
        min_size=1,
    )
)
def test_the_quick_way_to_a_value_agrees_with_the_full_one(tmp_path_factory, fields):
    store = Store.open(tmp_path_factory.mktemp("s") / "s.db", FakeClock())
    store.append([Point("m", {}, fields, S)])
    found = store.reader().values("m", "power_w", 0, None)
    value = fields.get("power_w")
    if isinstance(value, str) or value is None:
        assert found == []
    else:
        assert found[0].values == (float(value),)
    store.close()


def test_the_file_is_its_owners_alone(store, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_store_of_a_newer_version_is_left_alone(store, path, clock):
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO migrations (name, applied_ns) VALUES ('9999 more', 0)")
    connection.close()
    with pytest.raises(StoreError, match="newer infercost"):
        Store.open(path, clock)
    with pytest.raises(StoreError, match="newer infercost"):
        StoreReader.open(path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"this is no database at all, but long enough" * 50, "corrupt")],
)
def test_a_file_that_is_no_store_is_named_and_left_alone(path, clock, content, fault):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Store.open(path, clock)
    assert caught.value.fault == fault
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(path, clock):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreError) as caught:
        Store.open(path, clock)
    assert caught.value.fault == "foreign"


def test_no_store_says_how_to_make_one(path):
    with pytest.raises(StoreError, match="infercost run"):
        StoreReader.open(path)


def test_every_migration_is_recorded(store, path):
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT name FROM migrations ORDER BY position").fetchall()
    connection.close()
    assert [name for (name,) in names] == [migration.name for migration in MIGRATIONS]


def test_points_wait_while_the_disk_is_full_and_follow_in_order(store, path):
    buffer = BufferedWriter(store)
    connection = store._database._connection  # noqa: SLF001 - SQLite's own bound stands for a full disk
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    points = [point(float(i), i * S, title="x" * 500) for i in range(300)]
    for first in range(0, 300, 100):
        buffer.append(points[first : first + 100])
    assert "free space" in buffer.fault
    assert buffer.waiting_points >= 200
    connection.execute("PRAGMA max_page_count = 1000000")
    buffer.append([point(300.0, 300 * S)])
    assert buffer.fault is None
    assert buffer.waiting_points == 0
    assert len(list(store.reader().points("device", 0, None))) == 301
    assert buffer.dropped_points == 0


class FullDisk:
    """A writer that never takes anything."""

    def __init__(self, path):
        self.path = path

    def append(self, points):
        raise StoreError("write to", self.path, "full", str(len(points)))


def test_what_waits_is_bounded_and_the_oldest_go_first(path):
    buffer = BufferedWriter(FullDisk(path), max_points=10)
    for i in range(25):
        buffer.append([point(float(i), i * S)])
    assert buffer.waiting_points == 10
    assert buffer.dropped_points == 15


def test_another_writer_that_holds_the_file_is_an_error_that_passes(path, clock):
    store = Store.open(path, clock, busy_timeout_ms=50)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as caught:
        store.append([point(1.0, S)])
    assert caught.value.passing
    other.execute("COMMIT")
    other.close()
    store.append([point(1.0, S)])
    store.close()


def test_a_place_that_cannot_be_is_an_error_that_names_it(tmp_path, clock):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match=r"file/infercost\.db"):
        Store.open(tmp_path / "file" / "infercost.db", clock)
