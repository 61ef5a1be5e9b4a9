"""What real databases answer to a check, and to a worker that must not write."""

from costprobe.core.clock import SystemClock
from costprobe.delivery.kinds import build_sink, check_sink
from fakes.outbox import MemoryOutbox
from fakes.sending import config_of, worker_of
from fakes.servers import InfluxDB, running


def check(api, url, *words, **keys):
    """Check a database, and that it is good, or its error has these words."""
    found = check_sink(config_of(api, url, **keys), SystemClock())
    assert found.ok is not bool(words), found
    assert [word for word in words if word not in found.detail] == []
    assert found.ok or found.fix


def test_missing_permission_and_missing_retention_policy_have_different_errors(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("right")
    absent = {"database": "d", "retention_policy": "a year"}
    with running(InfluxDB, tmp_path / "influx", "influxd") as server:
        for text in (
            "CREATE USER boss WITH PASSWORD 'right' WITH ALL PRIVILEGES",
            "CREATE USER guest WITH PASSWORD 'right'",
            'CREATE DATABASE "d"',
        ):
            server.query(text)
        check("v1", server.url, "a year", **absent)
        outbox = MemoryOutbox(["m v=1 1"])
        sink = build_sink(config_of("v1", server.url, **absent), SystemClock())
        worker = worker_of(outbox, sink)
        worker.step()
        assert (worker.status()["state"], outbox.live.done_seq) == ("misconfigured", 0)
        server.query('CREATE RETENTION POLICY "a year" ON "d" DURATION 52w REPLICATION 1')
        check("v1", server.url, **absent)
        server.stop()
    with running(InfluxDB, tmp_path / "influx", "influxd", auth=True) as server:
        check("v1", server.url, "403", database="d", user="guest", secret_file=secret)
        check("v1", server.url, database="d", user="boss", secret_file=secret)


def test_check_distinguishes_existing_from_missing_databases(influxdb):
    url, name = influxdb.url, influxdb.database
    check("v1", url, database=name)
    check("v1", url, "", database="nowhere")
    check("v2", url, "api", "the server reports InfluxDB 1.")
    check("v1", "http://127.0.0.1:9", "")
    assert influxdb.points(name) == {}
