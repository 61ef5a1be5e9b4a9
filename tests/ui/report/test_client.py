"""Tables for notebooks, and the terminal commands."""

import os
import pty
import select
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from costprobe.client import open_store
from fakes.reported import HOUR_NS, end_ns, month


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return month(tmp_path_factory.mktemp("days"), hours=48)


@pytest.fixture
def store(config):
    with open_store(config.parent / "costprobe.db") as opened:
        yield opened


def test_pandas_has_tags_as_columns_and_times_in_utc(store):
    frame = store.pandas("cost", tags={"probe": "ranker"})
    assert len(frame) == 48
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["time"].is_monotonic_increasing
    assert set(frame["device"]) == {"gpu0"}
    assert frame["cost_per_inference"].to_list() == pytest.approx([1.2e-6] * 48)
    assert (frame["period_s"] == 0).all()


def test_arrow_has_the_same_rows(store):
    table = store.arrow("device", fields=["power_w", "mem_used_bytes"])
    assert table.num_rows == 48 * 12
    assert str(table.schema.field("time").type) == "timestamp[ns, tz=UTC]"
    assert str(table.schema.field("mem_used_bytes").type) == "int64"
    assert set(table["power_w"].to_pylist()) == {300.0}


def test_time_range_accepts_every_format(store):
    since_ns = end_ns() - 10 * HOUR_NS
    moment = datetime.fromtimestamp(since_ns // 10**9, UTC)
    lengths = {
        len(store.pandas("cost", since=when, tags={"probe": "ranker"}))
        for when in (since_ns, moment, moment.isoformat())
    }
    assert len(lengths) == 1
    assert 9 <= lengths.pop() <= 10
    assert store.pandas("cost", since=0, until=1).empty
    with pytest.raises(KeyError):
        store.pandas("nothing")
    with pytest.raises(ValueError, match="is not a duration"):
        store.pandas("cost", since="yesterday")


def test_top_ends_on_q_on_a_terminal(config):
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "costprobe", "-c", str(config), "status", "--watch"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
    ) as process:
        os.close(theirs)
        seen = b""
        while b"q quit" not in seen:
            ready, _, _ = select.select([ours], [], [], 60)
            assert ready
            seen += os.read(ours, 65536)
        os.write(ours, b"q")
        while process.poll() is None:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    os.read(ours, 65536)
                except OSError:
                    break
        assert process.wait(60) == 0
    os.close(ours)
