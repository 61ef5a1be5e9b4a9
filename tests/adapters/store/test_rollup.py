"""Old rows are aggregated to minutes, then hours; no row counts twice or is deleted unsent."""

import pytest
from costprobe.adapters.store.hours import Cell, KeepSince, Retained
from costprobe.adapters.store.read import RolledPoint, StoreReader
from costprobe.adapters.store.settings import StoreConfig
from costprobe.adapters.store.upkeep import keep_since, prune
from costprobe.adapters.store.write import Store
from costprobe.core.line_protocol import render
from costprobe.core.records import Point
from fakes.clock import FakeClock
from fakes.store_access import advance, cursor, rows_after
from store_samples import DAY_NS, T0_NS, S, lines_of, point, query

NEVER_NS = -(2**63)
ALWAYS = (-(2**63), 2**63 - 1)
HOUR_NS = 3600 * S


def since(raw=NEVER_NS, minutes=NEVER_NS, hours=NEVER_NS, outbox=NEVER_NS):
    return KeepSince(raw, minutes, hours, outbox)


def retain(store, keep, limit=500):
    """Run all due steps; return the numbers of rows aggregated, removed and dropped."""
    totals = [0, 0, 0]
    while True:
        step = store.retain(keep, limit)
        totals = [a + b for a, b in zip(totals, _counts(step), strict=True)]
        if step.is_done:
            return tuple(totals)


def _counts(step):
    return (step.aggregated, step.removed, step.dropped)


@pytest.fixture
def reader(store, path):
    reader = StoreReader.open(path)
    yield reader
    reader.close()


def device(second, device="gpu0"):
    return point(second, device, energy_j=float(second), power_w=100.0 + second)


def test_rows_past_retention_become_one_a_minute(store, reader):
    store.append([device(second) for second in range(0, 200, 10)])
    # The minute that contains the limit is not complete yet.
    assert retain(store, since(raw=T0_NS + 130 * S)) == (12, 0, 0)
    first, second, *raw = reader.points("device", *ALWAYS)
    assert first == RolledPoint(
        "device",
        {"host": "h", "device": "gpu0"},
        {"energy_j": 150.0, "power_w": 125.0},
        T0_NS,
        60,
        6,
        T0_NS + 50 * S,
        {"energy_j": Cell(150.0, 6), "power_w": Cell(125.0, 6, 100.0, 150.0)},
    )
    assert (second.time_ns, second.rows, second.fields["energy_j"]) == (T0_NS + 60 * S, 6, 510.0)
    assert raw == [device(second) for second in range(120, 200, 10)]
    assert retain(store, since(raw=T0_NS + 130 * S)) == (0, 0, 0)


def test_minute_rows_past_retention_become_hour_rows_and_hour_rows_are_deleted(store, reader, path):
    store.append([device(second) for second in range(0, 7300, 10)])
    store.append([device(100_000, "gpu1")])
    late_ns = T0_NS + 2 * HOUR_NS
    retain(store, since(raw=late_ns, minutes=late_ns))
    first, second, *raw = reader.points("device", *ALWAYS, {"device": "gpu0"})
    assert (first.period_s, first.rows, first.newest_ns) == (3600, 360, T0_NS + 3590 * S)
    assert first.fields == {"energy_j": sum(range(0, 3600, 10)), "power_w": 1895.0}
    assert first.cells["power_w"] == Cell(1895.0, 360, 100.0, 3690.0)
    assert second.time_ns == T0_NS + HOUR_NS
    assert len(raw) == 10
    assert retain(store, since(raw=late_ns, minutes=late_ns, hours=T0_NS + HOUR_NS)) == (0, 1, 0)
    assert next(reader.points("device", *ALWAYS)) == second
    end_ns = T0_NS + 20 * HOUR_NS
    retain(store, since(raw=end_ns, minutes=end_ns, hours=end_ns))
    assert [series.tags["device"] for series in reader.series()] == ["gpu1"]
    assert query(path, "PRAGMA foreign_key_check") == []
    store.append([device(100_010)])
    assert lines_of(store) == [render(device(100_000, "gpu1")), render(device(100_010))]


def test_probe_samples_are_kept_as_long_as_minute_rows_then_become_hour_rows(store, reader):
    rows = [
        Point("probe", {"device": "gpu0"}, {"latency_p50_ms": ms}, T0_NS + index * 300 * S)
        for index, ms in enumerate([12.0, 11.0, 99.0, 10.0, 13.0])
    ]
    store.append(rows)
    late_ns = T0_NS + HOUR_NS
    retain(store, since(raw=late_ns))
    assert list(reader.points("probe", *ALWAYS)) == rows
    retain(store, since(raw=late_ns, minutes=late_ns))
    (hour,) = reader.points("probe", *ALWAYS)
    assert (hour.period_s, hour.rows) == (3600, 5)
    assert hour.cells == {"latency_p50_ms": Cell(12.0, 5, 10.0, 99.0)}


@pytest.mark.parametrize("measurement", ["event", "alert", "sweep", "cold_start", "calibration"])
def test_events_are_kept_unchanged_as_long_as_hours(store, reader, measurement):
    rows = [point(second, measurement=measurement, title=f"n{second}") for second in (1, 2, 9999)]
    store.append(rows)
    end_ns = T0_NS + 5000 * S
    retain(store, since(raw=end_ns, minutes=end_ns))
    assert list(reader.points(measurement, *ALWAYS)) == rows
    assert retain(store, since(raw=end_ns, minutes=end_ns, hours=end_ns)) == (0, 2, 0)
    assert list(reader.points(measurement, *ALWAYS)) == rows[2:]


def test_late_row_is_added_to_its_period(store, reader):
    keep = since(raw=T0_NS + HOUR_NS, minutes=T0_NS + HOUR_NS)
    store.append([device(10), device(30)])
    retain(store, keep)
    store.append([device(20)])
    rolled, late = reader.points("device", *ALWAYS)
    assert (rolled.rows, late) == (2, device(20))
    retain(store, keep)
    (rolled,) = reader.points("device", *ALWAYS)
    assert (rolled.rows, rolled.fields["energy_j"]) == (3, 60.0)
    # The newest row is not the one that arrived last.
    assert rolled.newest_ns == T0_NS + 30 * S


def test_late_row_does_not_change_the_newest_value(store, reader):
    keep = since(raw=T0_NS + 60 * S)
    store.append([point(20, ecc_uncorrected=5), point(40, "gpu1", ecc_uncorrected=5)])
    retain(store, keep)
    store.append([point(10, ecc_uncorrected=4), point(50, "gpu1", ecc_uncorrected=6)])
    retain(store, keep)
    counts = {
        p.tags["device"]: p.fields["ecc_uncorrected"] for p in reader.points("device", *ALWAYS)
    }
    assert counts == {"gpu0": 5, "gpu1": 6}


def test_unsent_rows_are_not_aggregated(store, reader):
    store.append([device(second) for second in range(0, 60, 10)])
    store.register_sink("slow")
    advance(store, "slow", 2, 2)
    keep = since(raw=T0_NS + HOUR_NS, outbox=T0_NS)
    assert retain(store, keep) == (2, 0, 0)
    assert [row.line for row in rows_after(store, cursor(store, "slow"), 99)] == [
        render(device(second)) for second in range(20, 60, 10)
    ]
    rolled, *raw = reader.points("device", *ALWAYS)
    assert (rolled.rows, len(raw)) == (2, 4)
    advance(store, "slow", 6, 4)
    assert retain(store, keep) == (4, 0, 0)
    assert [p.rows for p in reader.points("device", *ALWAYS)] == [6]
    assert store.dropped_points() == 0


def test_rows_unsent_past_outbox_retention_are_counted_and_aggregated(store, reader):
    store.append([device(second) for second in range(0, 60, 10)])
    store.register_sink("dead")
    end_ns = T0_NS + HOUR_NS
    assert retain(store, since(raw=end_ns, outbox=T0_NS + 40 * S)) == (4, 0, 4)
    assert store.dropped_points() == 4
    (sink,) = store.sinks()
    assert (sink.dropped_points, sink.backlog.points) == (4, 2)
    assert next(reader.points("device", *ALWAYS)).rows == 4


def test_rolled_rows_are_not_sent(store):
    store.append([device(second) for second in range(0, 600, 10)])
    store.register_sink("late")
    store.forget_sink("late")
    retain(store, since(raw=T0_NS + 300 * S))
    store.register_sink("new")
    assert [row.line for row in rows_after(store, 0, 999)] == [
        render(device(second)) for second in range(300, 600, 10)
    ]


def test_step_is_bounded_and_the_next_continues(store, reader):
    names = ("gpu0", "gpu1", "gpu2")
    store.append([device(second, name) for name in names for second in range(0, 600, 10)])
    keep = since(raw=T0_NS + HOUR_NS)
    step = store.retain(keep, 20)
    assert step == Retained(18, 0, 0, is_done=False)  # three whole minutes
    steps = 1
    while not store.retain(keep, 20).is_done:
        steps += 1
    assert steps >= 9
    assert [p.rows for p in reader.points("device", *ALWAYS)] == [6] * 30


def test_minute_larger_than_a_step_is_aggregated_in_parts(store, reader):
    store.append([device(second) for second in range(60)])
    retain(store, since(raw=T0_NS + HOUR_NS), limit=7)
    (rolled,) = reader.points("device", *ALWAYS)
    assert (rolled.rows, rolled.fields["energy_j"]) == (60, sum(range(60)))


def test_extreme_timestamps_do_not_stop_retention(store, reader):
    ends = [
        Point("device", {}, {"energy_j": 1.0}, time_ns) for time_ns in (-(2**63) + 2, 2**63 - 2)
    ]
    store.append(ends)
    retain(store, since(raw=2**63 - 1, minutes=2**63 - 1))
    points = list(reader.points("device", *ALWAYS))
    assert sum(p.fields["energy_j"] for p in points) == 2.0


def test_aggregated_values_carry_their_end_and_number(store, reader):
    store.append([device(second) for second in range(0, 120, 10)])
    store.append([point(200, "gpu0", energy_method="poll")])
    retain(store, since(raw=T0_NS + 60 * S))
    (found,) = reader.values("device", "energy_j", *ALWAYS)
    assert found.values == [150.0, 60.0, 70.0, 80.0, 90.0, 100.0, 110.0]
    assert found.times_ns[:2] == [T0_NS, T0_NS + 60 * S]
    ends = [(T0_NS + 50 * S, 6), *((T0_NS + at * S, 1) for at in range(60, 120, 10))]
    assert [(end.end_ns, end.rows) for end in found.ends] == ends
    assert reader.values("device", "energy_method", *ALWAYS) == []


def test_coarser_rows_are_skipped_on_request(store, reader):
    store.append([device(second) for second in range(0, 7300, 50)])
    retain(store, since(raw=T0_NS + 2 * HOUR_NS, minutes=T0_NS + HOUR_NS))
    for coarsest_s, periods in ((0, {0}), (60, {0, 60}), (3600, {0, 60, 3600})):
        found = reader.points("device", *ALWAYS, coarsest_s=coarsest_s)
        assert {getattr(point, "period_s", 0) for point in found} == periods


def test_lines_of_rolled_rows_are_series_of_their_own(store, reader):
    store.append([device(second) for second in range(0, 80, 10)])
    retain(store, since(raw=T0_NS + 60 * S))
    series = "device,device=gpu0,host=h,rollup=1m"
    assert list(reader.lines(*ALWAYS, "device")) == [
        f"{series} energy_j=150.0,power_w=125.0,power_w_max=150.0,power_w_min=100.0,rows=6i {T0_NS}",
        render(device(60)),
        render(device(70)),
    ]


@pytest.mark.parametrize("every_s", [7, 600])
def test_aggregation_during_a_read_hides_and_repeats_no_row(store, reader, every_s):
    seconds = range(0, 2000 * every_s, every_s)
    store.append([point(second, energy_j=1.0) for second in seconds])
    end_ns = T0_NS + 2 * seconds[-1] * S
    keep = since(raw=end_ns, minutes=end_ns)
    total, times_ns = 0.0, []
    for count, found in enumerate(reader.points("device", *ALWAYS)):
        total += found.fields["energy_j"]
        times_ns.append(found.time_ns)
        if count % 100 == 0:
            store.retain(keep, 300)
    assert total == len(seconds)
    assert times_ns == sorted(times_ns)


def test_retention_limits_follow_the_configuration(store, reader):
    config = StoreConfig.model_validate(
        {"retention": "1h", "rollup_1m_retention": "3h", "rollup_1h_retention": "9h"}
    )
    seconds = range(0, 12 * 3600, 20)
    store.append([point(second, energy_j=1.0) for second in seconds])
    store.append([point(second, measurement="event", title="t") for second in (0, 4 * 3600)])
    now_ns = T0_NS + 12 * HOUR_NS
    assert keep_since(config, now_ns).minutes_ns == now_ns - 3 * HOUR_NS
    prune(store, config, now_ns)
    periods = [getattr(p, "period_s", 0) for p in reader.points("device", *ALWAYS)]
    assert {each: periods.count(each) for each in (3600, 60, 0)} == {3600: 6, 60: 120, 0: 180}
    assert sum(p.fields["energy_j"] for p in reader.points("device", *ALWAYS)) == 9 * 180
    assert [p.time_ns for p in reader.points("event", *ALWAYS)] == [T0_NS + 4 * HOUR_NS]


def test_retention_beyond_the_epoch_keeps_all_rows(store, reader):
    config = StoreConfig.model_validate({"retention": "100000d", "outbox_retention": "100000d"})
    store.append([device(0)])
    prune(store, config, T0_NS + 1000 * DAY_NS)
    assert list(reader.points("device", *ALWAYS)) == [device(0)]


def test_store_file_shrinks_while_it_is_written(path):
    store = Store.open(path, FakeClock())
    store.append([point(n, measurement="event", title="x" * 3000) for n in range(6000)])
    config = StoreConfig.model_validate({"retention": "1h"})
    now_ns = T0_NS + 2000 * DAY_NS
    full_bytes = 0
    for beat in range(3):
        with store._database.reading("read") as connection:  # noqa: SLF001 - queries SQLite directly
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        full_bytes = full_bytes or path.stat().st_size
        store.append([point(10**9 + beat)])
        prune(store, config, now_ns)
    with store._database.reading("read") as connection:  # noqa: SLF001 - as above
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < full_bytes / 2
    assert len(lines_of(store)) == 3
    assert store.release_pages() is False
    store.close()
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
