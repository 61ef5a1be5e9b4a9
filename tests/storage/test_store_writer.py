"""What is appended is kept, whole, once for each identity, by any thread."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from store_samples import T0_NS, lines_of, point, query

from agent.lineprotocol import render
from agent.model import Point
from agent.storage.buffer import BufferedWriter
from agent.storage.errors import StoreError
from agent.storage.writer import Store


@pytest.fixture(params=["store", "buffer"])
def appender(request, store):
    return store if request.param == "store" else BufferedWriter(store)


def test_points_are_kept_in_the_order_they_came_as_ready_lines(appender, store):
    points = [point(2), point(1, "gpu1"), point(3, measurement="agent", rss_bytes=5)]
    appender.append(points[:2])
    appender.append(points[2:])
    rows = store.rows_after(0, 10)
    assert [row.line for row in rows] == [render(each) for each in points]
    assert [row.seq for row in rows] == [1, 2, 3]
    assert store.rows_after(1, 1) == rows[1:2]
    assert store.rows_after(3, 10) == []


def test_the_same_identity_again_replaces_the_point_under_a_new_seq(appender, store):
    appender.append([point(1, power_w=1.0), point(2)])
    appender.append([point(1, util_pct=9.0)])
    assert [row.seq for row in store.rows_after(0, 10)] == [2, 3]
    assert lines_of(store) == [render(point(2)), render(point(1, util_pct=9.0))]


def test_the_last_of_two_with_one_identity_in_a_batch_stays(appender, store):
    appender.append([point(1, power_w=1.0), point(1, power_w=2.0)])
    assert lines_of(store) == [render(point(1, power_w=2.0))]


def test_points_without_fields_are_skipped(appender, store):
    empty = Point("device", {"device": "gpu0"}, {}, T0_NS)
    appender.append([empty, point(1), Point("device", {}, {"power_w": float("nan")}, T0_NS)])
    appender.append([empty])
    appender.append([])
    assert lines_of(store) == [render(point(1))]


@pytest.mark.parametrize("bad", [Point("", {}, {"a": 1}, 0), Point("m", {}, {"a": 1}, 2**63)])
def test_a_point_that_cannot_be_stored_is_refused_with_its_batch(appender, store, bad):
    with pytest.raises(ValueError, match=r"needs the name|no time that can be stored"):
        appender.append([point(1), bad])
    appender.append([point(2)])
    assert lines_of(store) == [render(point(2))]


def test_every_point_of_many_threads_is_kept(appender, store):
    with ThreadPoolExecutor(8) as threads:
        for done in [
            threads.submit(appender.append, [point(second, f"gpu{device}")])
            for device in range(8)
            for second in range(20)
        ]:
            done.result()
    assert len(set(lines_of(store))) == 160
    assert len(query(store.path, "SELECT * FROM series")) == 8


def test_a_store_opened_again_goes_on_with_seqs_that_were_never_used(path, clock):
    for expected in (1, 2, 3):
        store = Store.open(path, clock)
        store.append([point(0)])  # the same identity each time
        assert [row.seq for row in store.rows_after(0, 10)] == [expected]
        store.close()


def test_file_and_directory_are_the_owners_alone(store, path):
    store.append([point()])
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_commits_wait_for_the_disk(store, path):
    assert query(path, "PRAGMA journal_mode") == [("wal",)]
    with store._database.reading("look at") as connection:  # noqa: SLF001 - the connection's own setting
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_the_size_is_that_of_all_its_files(store, path):
    store.append([point(second) for second in range(500)])
    assert store.size_bytes() == sum(file.stat().st_size for file in path.parent.iterdir()) > 50_000


def test_a_closed_store_says_so_with_a_store_error(store):
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append([point()])


def test_a_store_whose_file_was_taken_away_does_not_write_into_nowhere(store, path):
    store.append([point(1)])
    path.rename(path.with_suffix(".away"))
    with pytest.raises(StoreError, match=r"taken away while open.*restart the daemon"):
        store.append([point(2)])
    path.with_suffix(".away").rename(path)
    store.append([point(2)])
    assert len(lines_of(store)) == 2


def test_states_are_kept_with_their_time(store, path, clock):
    assert store.state("batch gpu0") is None
    store.put_state("batch gpu0", {"batch": 8})
    store.put_state("batch gpu0", {"batch": 16, "why": "é\ud800", "null": None})
    assert store.state("batch gpu0") == {"batch": 16, "why": "é\ud800", "null": None}
    assert query(path, "SELECT name, time_ns FROM states") == [("batch gpu0", clock.time_ns())]


@pytest.mark.parametrize(
    ("document", "error"), [({"x": float("nan")}, ValueError), ({"x": object()}, TypeError)]
)
def test_a_state_that_is_no_json_is_refused(store, document, error):
    store.put_state("a", 1)
    with pytest.raises(error):
        store.put_state("a", document)
    assert store.state("a") == 1
