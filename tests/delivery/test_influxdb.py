"""Delivery to real databases: what is stored arrives once, through outages."""

import time

from costprobe.core.clock import SystemClock
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from costprobe.delivery.kinds import build_sink
from costprobe.delivery.kinds import check_sink as check
from fakes.outbox import MemoryOutbox
from fakes.sending import config_of, worker_of
from fakes.servers import InfluxDB, running


def v1(server, database, **more):
    return config_of("v1", server.url, database=database, **more)


def v2(url, **more):
    return config_of("v2", url, **more)


def check_sink(config):
    return check(config, SystemClock())


def lines(count, start=0):
    return [
        render(Point("m", {"host": f"h{i % 7}"}, {"v": i / 3, "n": i}, (start + i) * 10**6))
        for i in range(count)
    ]


def test_rows_older_than_the_database_keeps_cost_few_requests(influxdb):
    """Half a million of them are in a backlog of weeks."""
    influxdb.query(
        f'ALTER RETENTION POLICY autogen ON "{influxdb.database}" DURATION 1d SHARD DURATION 1h'
    )
    now_ns = time.time_ns() // 10**6 * 10**6
    stored = lines(3500) + lines(500, start=now_ns // 10**6)
    outbox = MemoryOutbox(stored)
    sink = build_sink(v1(influxdb, influxdb.database), SystemClock())
    posted, post = [], sink.post
    sink.post = lambda body: (posted.append(len(body)), post(body))
    worker = worker_of(outbox, sink, batch_points=1000)
    while not outbox.is_drained:
        worker.step()
    assert [line for line, _ in outbox.rejected] == stored[:3500]
    assert "points beyond retention policy dropped=1000" in outbox.rejected[0][1]
    assert (outbox.sent, len(influxdb.points(influxdb.database))) == (500, 500)
    assert len(posted) <= 6
    sink.close()


def test_missing_permission_and_missing_retention_policy_have_different_errors(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("right")
    with running(InfluxDB, tmp_path / "influx", "influxd") as server:
        for text in (
            "CREATE USER boss WITH PASSWORD 'right' WITH ALL PRIVILEGES",
            "CREATE USER guest WITH PASSWORD 'right'",
            'CREATE DATABASE "d"',
        ):
            server.query(text)
        absent = check_sink(v1(server, "d", retention_policy="a year"))
        assert not absent.ok
        assert "a year" in absent.detail
        outbox = MemoryOutbox(lines(3))
        worker = worker_of(
            outbox, build_sink(v1(server, "d", retention_policy="a year"), SystemClock())
        )
        worker.step()
        assert worker.status()["state"] == "misconfigured"
        assert outbox.live.done_seq == 0
        server.query('CREATE RETENTION POLICY "a year" ON "d" DURATION 52w REPLICATION 1')
        assert check_sink(v1(server, "d", retention_policy="a year")).ok
        server.stop()
    with running(InfluxDB, tmp_path / "influx", "influxd", auth=True) as server:
        guest = check_sink(v1(server, "d", user="guest", secret_file=secret))
        assert not guest.ok
        assert "403" in guest.detail
        boss = check_sink(v1(server, "d", user="boss", secret_file=secret))
        assert boss.ok


def test_check_distinguishes_existing_from_missing_databases(influxdb):
    good = check_sink(v1(influxdb, influxdb.database))
    assert good.ok, good
    assert "1.6" in good.detail
    assert not check_sink(v1(influxdb, "nowhere")).ok
    wrong_api = check_sink(v2(influxdb.url))
    assert not wrong_api.ok
    assert "api" in wrong_api.detail
    assert "the server reports InfluxDB 1." in wrong_api.detail
    assert influxdb.points(influxdb.database) == {}
    away = check_sink(config_of("v1"))
    assert not away.ok
    assert away.fix
