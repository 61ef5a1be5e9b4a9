"""Hour rows give the same figures as the rows of these hours."""

import time
from contextlib import closing

from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from costprobe.core.schema import RUN_FIELDS
from costprobe.savings.gather import history_of
from costprobe.ui.cli.support.command_prices import savings_sections, stored_prices
from costprobe.ui.cli.support.place import Settings
from costprobe.ui.report.document import document
from costprobe.ui.report.gather import Period, ReportSources, report_of
from fakes import sample_host
from fakes.clock import FakeClock
from fakes.sample_host import HOUR_NS, Detail
from store_samples import query

S = 10**9
T0_NS = 1_790_000_000 * S // HOUR_NS * HOUR_NS
DETAIL = Detail((300, 300, 3), (900, 900, 3), (900, 900, 3))


def figures(file, now_ns):
    """Return the report and the load of devices, probes and services."""
    settings = Settings(str(file))
    period = Period(now_ns - 36 * HOUR_NS + 1234 * S, now_ns - 1000 * S)
    with closing(StoreReader.open(file.parent / "costprobe.db")) as reader:
        runs = reader.columns("probe", period.since_ns, now_ns, fields=RUN_FIELDS)
        prices = stored_prices(settings)
        sections = savings_sections(settings.config)
        history = history_of(sections, prices, reader, period.since_ns, runs=runs)
        book = prices.book([device.device for device in history.devices.values()])
        past = ReportSources(reader, settings.config, history, book, runs)
        report = report_of(past, period, now_ns)
    devices = {
        name: (device.hours, device.mem_used_bytes_max) for name, device in history.devices.items()
    }
    return document(report), devices, history.probes, history.services


def test_columns_hold_the_values_of_points_and_hour_rows_give_the_report_of_rows(tmp_path):
    now_ns = time.time_ns() // HOUR_NS * HOUR_NS
    file = sample_host.made(tmp_path, now_ns, 3, DETAIL)
    sample_host.settled(file, now_ns - 48 * HOUR_NS, keeps_rows=False)
    assert_columns_hold_the_values_of_points(file, now_ns)
    from_rows = figures(file, now_ns)
    sample_host.settled(file, now_ns)
    settled = "SELECT count(*) FROM hours WHERE NOT is_reduced"
    ((count,),) = query(tmp_path / "costprobe.db", settled)
    assert count > 500
    for rows, hour_rows in zip(from_rows, figures(file, now_ns), strict=True):
        assert hour_rows == rows


def assert_columns_hold_the_values_of_points(file, now_ns):
    names = sorted(RUN_FIELDS)
    with closing(StoreReader.open(file.parent / "costprobe.db")) as reader:
        points = [
            (row.tags, getattr(row, "period_s", 0), row.time_ns, *map(row.fields.get, names))
            for row in reader.points("probe", 0, now_ns)
        ]
        columns = [
            (part.tags, part.period_s, *values)
            for part in reader.columns("probe", 0, now_ns, fields=RUN_FIELDS)
            for values in zip(part.times_ns, *map(part.column, names), strict=True)
        ]
    assert {period_s for _, period_s, *_ in points} == {0, 3600}
    assert sorted(columns, key=str) == sorted(points, key=str)


def hours(path):
    """The hours after T0 that have a row, and whether it is in the place of their rows."""
    rows = query(path, "SELECT time_ns, is_reduced FROM hours ORDER BY time_ns")
    return {(time_ns - T0_NS) // HOUR_NS: is_reduced for time_ns, is_reduced in rows}


def test_an_hour_row_stands_only_beside_unchanged_rows_of_its_hour(tmp_path):
    path = tmp_path / "costprobe.db"
    rows = [
        Point("device", {"device": "gpu0"}, {"cost": 1.0, "util_pct": 5.0}, T0_NS + minute * 60 * S)
        for minute in range(5 * 60)
    ]
    with closing(Store.open(path, FakeClock())) as store:
        store.append(rows)
        until_ns = T0_NS + 5 * HOUR_NS
        while not store.settle(until_ns, limit=1):
            pass
        assert hours(path) == {0: 0, 1: 0, 2: 0}, "hours that ended two hours ago"
        late = Point("device", {"device": "gpu0"}, {"cost": 2.0}, T0_NS + HOUR_NS + 1800 * S + 1)
        store.append([late])
        assert hours(path) == {0: 0, 2: 0}
        with closing(StoreReader.open(path)) as reader:
            ((found,),) = reader.hourly_sums("device", ("cost",), T0_NS, until_ns).values()
        assert found.values == [60.0, 62.0, 60.0, 60.0, 60.0]
        store.retain(KeepSince(*2 * [T0_NS + 2 * HOUR_NS], 0, 0))
        assert hours(path) == {0: 1, 1: 1, 2: 0}
        with closing(StoreReader.open(path)) as reader:
            ((again,),) = reader.hourly_sums("device", ("cost",), T0_NS, until_ns).values()
        assert again == found
