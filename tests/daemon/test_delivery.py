"""A daemon with real databases: all stored rows arrive there unchanged."""

import csv
import io
from pathlib import Path

import pytest
from costprobe.adapters.host.processes import PAGE_BYTES
from costprobe.adapters.store.read import StoreReader
from costprobe.core.periods import iso
from costprobe.core.records import Point
from fakes.scenes import GPU_PROBE, QUICK

MEASUREMENTS = {"device", "probe", "cost", "event", "alert", "agent"}
LOOKING = '[alerting]\nevaluate_every = "500ms"\n'
# With the sensor child the limit is 80 MB of PSS: a v2 sink loads influxdb-client, and a host without a
# price the catalogue.
DAEMON_MEMORY_BYTES = 76_000_000


def sinks(influxdb, victoria):
    return f"""
[[sink]]
name = "one"
api = "v1"
url = "{influxdb.url}"
database = "d"
flush_every = "200ms"
[[sink]]
name = "two"
api = "v2"
url = "{victoria.url}"
org = "o"
bucket = "b"
flush_every = "200ms"
"""


def with_reader(daemon, query):
    reader = StoreReader.open(daemon.store)
    try:
        return query(reader)
    finally:
        reader.close()


def stored_points(daemon):
    return with_reader(
        daemon, lambda reader: [p for m in MEASUREMENTS for p in reader.points(m, 0, 2**62)]
    )


def is_drained(daemon):
    """Both sinks have acknowledged all that is stored."""
    found = with_reader(daemon, lambda reader: reader.sinks())
    return all(sink.backlog.points == 0 for sink in found)


def test_series_arrive_in_both_databases_and_agree_with_the_export(
    daemon_in, gpus, own_influxdb, victoria
):
    own_influxdb.query('CREATE DATABASE "d"')
    daemon = daemon_in(**gpus.env())
    daemon.start(QUICK + GPU_PROBE + "energy = false\n" + LOOKING + sinks(own_influxdb, victoria))
    daemon.wait_for(lambda: len(daemon.points("cost")) == 2 and daemon.points("agent"))

    # One database is unavailable, then the other, while measuring continues.
    own_influxdb.stop()
    daemon.wait_for(lambda: daemon.status()["sinks"]["one"]["last_error"])
    assert daemon.status()["sinks"]["two"]["last_error"] is None
    victoria.stop()
    gpus.gpus[1].vanish()
    daemon.wait_for(lambda: daemon.points("event", kind="fault", device="gpu1"))
    daemon.wait_for(lambda: daemon.points("alert", rule="broken", state="firing"))
    own_influxdb.start()
    victoria.start()

    statm = Path(f"/proc/{daemon.pid}/statm").read_text().split()
    assert int(statm[1]) * PAGE_BYTES <= DAEMON_MEMORY_BYTES
    # Without devices nothing is measured, and the sinks drain the backlog.
    off = "[telemetry]\ngpus = false\ncpu = false\n"
    daemon.write(off + LOOKING + sinks(own_influxdb, victoria))
    daemon.signal(1)
    daemon.wait_for(lambda: "reloaded" in daemon.output.read_text())
    daemon.wait_for(lambda: is_drained(daemon))
    points = stored_points(daemon)
    daemon.stop()

    assert {point.measurement for point in points} == MEASUREMENTS
    arrived = own_influxdb.points("d")
    for point in points:
        key = (point.measurement, tuple(sorted(point.tags.items())), point.time_ns)
        got, sent = arrived[key], dict(point.fields)
        assert {k: v for k, v in got.items() if isinstance(v, str)} == {
            k: v for k, v in sent.items() if isinstance(v, str)
        }
        assert numbers(got) == pytest.approx(numbers(sent))
    assert len(arrived) - len(points) in (0, 1, 2)

    expected = {
        (f"{p.measurement}_{field}", tuple(sorted(p.tags.items())), p.time_ns // 10**6): value
        for p in points
        for field, value in numbers(p.fields).items()
    }
    seen = victoria.samples(expected)
    assert {key: seen.get(key) for key in expected} == pytest.approx(expected)
    agrees_with_export(daemon, points)


def numbers(fields):
    return {k: float(v) for k, v in fields.items() if not isinstance(v, str)}


def agrees_with_export(daemon, points: list[Point]):
    rows = csv.DictReader(io.StringIO(daemon.look("export", "--format", "csv")))
    exported = {(r["measurement"], r["time"], r["tags"], r["field"]): r["value"] for r in rows}
    for point in points:
        tags = " ".join(f"{name}={value}" for name, value in sorted(point.tags.items()))
        for field, value in point.fields.items():
            assert exported[point.measurement, iso(point.time_ns), tags, field] == str(value)
