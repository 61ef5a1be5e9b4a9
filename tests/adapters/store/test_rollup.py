"""Hours of old rows become one row each; no row counts twice or is deleted unsent."""

from dataclasses import replace

import pytest
from costprobe.adapters.store.read import RolledPoint, StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.upkeep import keep_since, prune
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from fakes.clock import FakeClock
from store_samples import DAY_NS, T0_NS, S, lines_of, point, query

NEVER_NS = -(2**63)
ALWAYS = (-(2**63), 2**63 - 1)
HOUR_NS = 3600 * S
END_NS = T0_NS + 1000 * DAY_NS


NEVER_REDUCED = ("event", "alert", "sweep", "cold_start", "calibration")


def since(raw=NEVER_NS, sampled=NEVER_NS, hours=NEVER_NS, outbox=NEVER_NS):
    return KeepSince(raw, sampled, hours, outbox)


def retain(store, keep):
    """Run all due steps; return the numbers of rows aggregated, removed and dropped."""
    totals = [0, 0, 0]
    while True:
        step = store.retain(keep, 500)
        counts = (step.aggregated, step.removed, step.dropped)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        if step.is_done:
            return tuple(totals)


@pytest.fixture
def reader(store, path):
    reader = StoreReader.open(path)
    yield reader
    reader.close()


def device(second, device="gpu0"):
    return point(second, device, energy_j=float(second), power_w=100.0 + second)


def test_rows_past_retention_become_one_an_hour(store, reader):
    store.append([device(second) for second in range(0, 7300, 10)])
    store.append([device(100_000, "gpu1")])
    # The hour that contains the limit is not complete yet.
    keep = since(raw=T0_NS + 2 * HOUR_NS + 50 * S)
    assert retain(store, keep) == (720, 0, 0)
    first, second, *raw = reader.points("device", *ALWAYS, {"device": "gpu0"})
    tags, fields = first.tags, {"energy_j": sum(range(0, 3600, 10)), "power_w": 1895.0}
    assert first == RolledPoint("device", tags, fields, T0_NS, 360, T0_NS + 3590 * S)
    assert (second.time_ns, second.rows) == (T0_NS + HOUR_NS, 360)
    assert raw == [device(second) for second in range(7200, 7300, 10)]
    assert list(reader.points("device", *ALWAYS, {"device": "gpu0"}, with_hours=False)) == raw
    assert retain(store, keep) == (0, 0, 0)
    assert retain(store, replace(keep, sampled_ns=END_NS, hours_ns=T0_NS + HOUR_NS)) == (0, 1, 0)
    assert next(reader.points("device", *ALWAYS)) == second
    end_ns = T0_NS + 20 * HOUR_NS
    retain(store, since(raw=end_ns, sampled=end_ns, hours=end_ns))
    assert [series.tags["device"] for series in reader.series()] == ["gpu1"]


def test_late_row_is_added_to_its_hour_and_does_not_change_the_newest_value(store, reader):
    keep = since(raw=T0_NS + HOUR_NS)
    store.append([point(s, energy_j=float(s), ecc_uncorrected=5) for s in (10, 30)])
    retain(store, keep)
    late = point(20, energy_j=20.0, ecc_uncorrected=4)
    store.append([late])
    rolled, found = reader.points("device", *ALWAYS)
    assert (rolled.rows, found) == (2, late)
    retain(store, keep)
    (rolled,) = reader.points("device", *ALWAYS)
    assert (rolled.rows, rolled.fields) == (3, {"energy_j": 60.0, "ecc_uncorrected": 5})
    # The newest row is not the one that arrived last.
    assert rolled.newest_ns == T0_NS + 30 * S


def test_extreme_timestamps_do_not_stop_retention(store, reader):
    ends = [
        Point("device", {}, {"energy_j": 1.0}, time_ns) for time_ns in (-(2**63) + 2, 2**63 - 2)
    ]
    store.append(ends)
    store.settle(2**63 - 1)
    retain(store, since(raw=2**63 - 1))
    points = list(reader.points("device", *ALWAYS))
    assert sum(p.fields["energy_j"] for p in points) == 2.0


def test_lines_of_hour_rows_are_series_of_their_own(store, reader):
    store.append([device(second) for second in (0, 600, 3600, 3700)])
    store.append([point(700, temp_c=40.0)])
    retain(store, since(raw=T0_NS + HOUR_NS))
    fields = "energy_j=600.0,power_w=400.0,power_w_max=700.0,power_w_min=100.0,rows=3i,temp_c=40.0"
    assert list(reader.lines(*ALWAYS, "device")) == [
        f"device,device=gpu0,host=h,rollup=1h {fields} {T0_NS}",
        render(device(3600)),
        render(device(3700)),
    ]


def test_aggregation_during_a_read_hides_and_repeats_no_row(store, reader):
    for every_s, device in ((7, "gpu0"), (600, "gpu1")):
        seconds = range(0, 2000 * every_s, every_s)
        store.append([point(second, device, energy_j=1.0) for second in seconds])
        keep = since(raw=T0_NS + 2 * seconds[-1] * S)
        total, times_ns = 0.0, []
        for count, found in enumerate(reader.points("device", *ALWAYS, {"device": device})):
            total += found.fields["energy_j"]
            times_ns.append(found.time_ns)
            if count % 100 == 0:
                store.retain(keep, 300)
        assert total == len(seconds)
        assert times_ns == sorted(times_ns)


def test_limits_of_retention(store, reader):
    ages = {
        "device": (6, 8, 1094, 1096),
        "cost": (8, 89, 91, 1094, 1096),
        **dict.fromkeys(NEVER_REDUCED, (1094, 1096)),
    }
    now_ns = END_NS // HOUR_NS * HOUR_NS
    for measurement, days in ages.items():
        rows = [Point(measurement, {}, {"cost": 1.0}, now_ns - day * DAY_NS) for day in days]
        store.append(rows)
    prune(store, keep_since(180 * 86400.0, now_ns))
    prune(store, keep_since(1e12, now_ns))  # beyond the epoch
    for measurement, kept in (
        ("device", [(1094, True), (8, True), (6, False)]),
        ("cost", [(1094, True), (91, True), (89, False), (8, False)]),
        *((name, [(1094, False)]) for name in NEVER_REDUCED),
    ):
        found = reader.points(measurement, *ALWAYS)
        days = [((now_ns - p.time_ns) // DAY_NS, isinstance(p, RolledPoint)) for p in found]
        assert days == kept


def test_store_file_shrinks_while_it_is_written(path):
    store = Store.open(path, FakeClock())
    store.append([point(n, measurement="event", title="x" * 3000) for n in range(6000)])
    since = keep_since(3600.0, T0_NS + 2000 * DAY_NS)
    full_bytes = 0
    for beat in range(3):
        with store._database.reading("read") as connection:  # noqa: SLF001 - queries SQLite directly
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        full_bytes = full_bytes or path.stat().st_size
        store.append([point(10**9 + beat)])
        prune(store, since)
    with store._database.reading("read") as connection:  # noqa: SLF001 - as above
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < full_bytes / 2
    assert len(lines_of(store)) == 3
    assert store.release_pages() is False
    store.close()
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
