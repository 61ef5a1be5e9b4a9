"""What covers a long span is read by the hour, with the sums and ends of the rows."""

from costprobe.adapters.store import read
from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import RowEnd
from fakes.sample_host import HOUR_NS
from store_samples import T0_NS, point

S = 10**9
ALWAYS = (-(2**63), 2**63 - 1)


def test_series_with_more_rows_is_read_by_the_hour(store, path, monkeypatch):
    store.append([point(at, power_w=float(at), energy_j=1.0) for at in range(0, 14_400, 10)])
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
    of_hours = (T0_NS, T0_NS + 5 * HOUR_NS)
    assert not reader.values("device", "power_w", *of_hours, most=2000)[0].is_hourly
    hours = reader.points("device", *ALWAYS, {"device": "gpu0"}, most=1000)
    assert [getattr(one, "rows", 1) for one in hours][:4] == [360, 360, 360, 1]
    # What one answer reads is shared by its series.
    monkeypatch.setattr(read, "ROWS_READ_MAX", 1500)
    assert not reader.values("device", "power_w", *ALWAYS, most=2000)[1].is_hourly
    monkeypatch.setattr(read, "ROWS_READ_MAX", 1000)
    assert reader.values("device", "power_w", *ALWAYS, most=2000)[0].is_hourly
    assert not reader.values("device", "power_w", *ALWAYS)[0].is_hourly
    # The hour of a cut is in two parts.
    cut_ns = T0_NS + 5410 * S
    (cut,) = reader.hourly_sums("device", ("energy_j",), *ALWAYS, cuts_ns=(cut_ns,))["energy_j"]
    before = [v for at, v in zip(cut.times_ns, cut.values, strict=True) if at < cut_ns]
    assert (before, sum(cut.values)) == ([360.0, 181.0], 1440.0)
    assert cut.ends[-1].end_ns == T0_NS + 14_390 * S
    reader.close()
