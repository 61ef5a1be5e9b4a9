"""Appended points are stored completely, once per identity, from any thread."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from store_samples import T0_NS, S, happened, lines_of, point, query


@pytest.fixture(params=["store", "buffer"])
def appender(request, store):
    return store if request.param == "store" else StoreLedger(store)


def test_points_of_one_time_are_all_stored_and_the_later_has_the_next_free_ns(appender, store):
    appender.append([point(1, power_w=1.0), point(2), point(1, power_w=2.0)])
    appender.append([point(1, power_w=3.0), point(1, power_w=2.0)])
    later = [
        replace(point(1, power_w=watts), time_ns=T0_NS + S + n)
        for n, watts in enumerate((1.0, 2.0, 3.0, 2.0))
    ]
    assert sorted(lines_of(store)) == sorted(map(render, [*later, point(2)]))


def test_event_that_is_reported_again_replaces_itself(appender, store):
    for title in ("drift", "drift, again"):
        appender.append([happened(1, title=title)])
    assert lines_of(store) == [render(happened(1, title="drift, again"))]


def test_points_without_fields_are_skipped(appender, store):
    empty = Point("device", {"device": "gpu0"}, {}, T0_NS)
    appender.append([empty, point(1), Point("device", {}, {"power_w": float("nan")}, T0_NS)])
    appender.append([empty])
    appender.append([])
    assert lines_of(store) == [render(point(1))]


def test_invalid_point_rejects_its_batch(appender, store):
    for bad in (Point("", {}, {"a": 1}, 0), Point("m", {}, {"a": 1}, 2**63)):
        with pytest.raises(ValueError, match=r"no measurement name|does not fit into 64 bits"):
            appender.append([point(1), bad])
    appender.append([point(2)])
    assert lines_of(store) == [render(point(2))]


def test_points_of_concurrent_threads_are_stored(appender, store):
    points = [point(second, f"gpu{device}") for device in range(8) for second in range(20)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: appender.append([each]), points))
    assert len(set(lines_of(store))) == 160
    assert len(query(store.path, "SELECT * FROM series")) == 8


def test_commits_are_durable(store, path):
    assert query(path, "PRAGMA journal_mode") == [("wal",)]
    with store._database.reading("look at") as connection:  # noqa: SLF001 - the connection's own setting
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_deleted_file_is_detected_before_a_write(store, path):
    store.append([point(1)])
    path.rename(path.with_suffix(".away"))
    with pytest.raises(StoreError, match=r"deleted or replaced while open.*restart the daemon"):
        store.append([point(2)])
    path.with_suffix(".away").rename(path)
    store.append([point(2)])
    assert len(lines_of(store)) == 2


def test_truncated_file_is_detected_before_a_write(store, path):
    """While the log has all pages SQLite would continue, and other connections see an empty store."""
    store.append([point(1)])
    content = path.read_bytes()
    os.truncate(path, 0)
    with pytest.raises(StoreError, match="truncated while open") as caught:
        store.append([point(2)])
    assert caught.value.fault == "corrupt"
    path.write_bytes(content)


def test_state_that_is_not_json_is_rejected(store):
    store.put_state("a", 1)
    for document, error in (({"x": float("nan")}, ValueError), ({"x": object()}, TypeError)):
        with pytest.raises(error):
            store.put_state("a", document)
    assert store.state("a") == 1
