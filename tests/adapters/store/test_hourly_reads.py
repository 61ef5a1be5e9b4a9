"""What covers a long span is read by the hour, with the sums and ends of the rows."""

import math

import pytest
from costprobe.adapters.store import read
from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import RowEnd
from fakes import long_host
from fakes.long_host import COARSE, DAY_NS, HOUR_NS
from store_samples import T0_NS, point

S = 10**9
NOW_NS = 1_790_000_000 * S // HOUR_NS * HOUR_NS
ALWAYS = (-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def long_reader(tmp_path_factory):
    """Rows as measured of two days, then hours."""
    folder = tmp_path_factory.mktemp("long")
    long_host.settled(long_host.made(folder, NOW_NS, 40, COARSE), NOW_NS)
    reader = StoreReader.open(folder / "costprobe.db")
    yield reader
    reader.close()


@pytest.mark.parametrize(
    ("measurement", "field"), [("device", "cost"), ("device", "energy_j"), ("allocation", "cost")]
)
def test_hourly_sums_equal_the_sums_of_all_rows(long_reader, measurement, field):
    cut_ns = NOW_NS - 5 * HOUR_NS + 1700 * S
    span = (NOW_NS - 35 * DAY_NS, NOW_NS + 1)
    rows = {str(one.tags): one for one in long_reader.values(measurement, field, *span)}
    hours = long_reader.hourly_sums(measurement, (field,), *span, cuts_ns=(cut_ns,))[field]
    assert len(hours) == len(rows)
    for one in hours:
        own = rows[str(one.tags)]
        assert math.fsum(one.values) == pytest.approx(math.fsum(own.values), rel=1e-9)
        assert sum(end.rows for end in one.ends) == sum(end.rows for end in own.ends)
        assert one.ends[-1].end_ns == own.ends[-1].end_ns
        before = math.fsum(
            value for at, value in zip(own.times_ns, own.values, strict=True) if at < cut_ns
        )
        summed = zip(one.times_ns, one.values, strict=True)
        assert math.fsum(v for at, v in summed if at < cut_ns) == pytest.approx(before)


def test_series_with_more_rows_is_read_by_the_hour(store, path):
    store.append([point(second, power_w=float(second)) for second in range(0, 14_400, 10)])
    store.append([point(second, "gpu1", power_w=1.0) for second in range(10)])
    store.settle(T0_NS + 5 * HOUR_NS)
    reader = StoreReader.open(path)
    long, short = reader.values("device", "power_w", *ALWAYS, most=1000)
    assert (long.is_hourly, short.is_hourly) == (True, False)
    assert long.values[:3] == [1795.0, 5395.0, 8995.0]
    # The hour that has not settled has its rows.
    assert long.values[3:] == [float(second) for second in range(10_800, 14_400, 10)]
    assert long.ends[0] == RowEnd(T0_NS + 3590 * S, 360, 10 * S)
    assert len(short.values) == 10
    assert not reader.values("device", "power_w", *ALWAYS, most=2000)[0].is_hourly
    hours = reader.points("device", *ALWAYS, {"device": "gpu0"}, most=1000)
    assert [getattr(one, "rows", 1) for one in hours][:4] == [360, 360, 360, 1]
    reader.close()


def test_many_series_share_the_rows_that_one_answer_reads(long_reader, monkeypatch):
    def hourly(most):
        found = long_reader.values("device", "power_w", NOW_NS - DAY_NS, NOW_NS, most=most)
        return {series.is_hourly for series in found}

    assert hourly(10_000) == {False}
    monkeypatch.setattr(read, "ROWS_READ_MAX", 100)
    assert (hourly(10_000), hourly(None)) == ({True}, {False})
