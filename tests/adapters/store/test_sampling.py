"""A long history is sampled evenly and marked as sampled; a short one is read completely."""

from pathlib import Path

import pytest
from costprobe.adapters.store.database import open_reader
from costprobe.adapters.store.hours import KeepSince
from costprobe.adapters.store.read import SeriesRange, StoreReader, count_rows, spread_rows
from costprobe.adapters.store.write import Store
from fakes.clock import FakeClock
from fakes.memory import memory_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import T0_NS, S, point

NEVER_NS = -(2**63)
ALWAYS = (-(2**63), 2**63 - 1)


@pytest.fixture
def reader(store, path):
    reader = StoreReader.open(path)
    yield reader
    reader.close()


def values(reader, sample, **tags):
    found = reader.values("device", "power_w", *ALWAYS, tags or None, sample=sample)
    return {series.tags["device"]: series for series in found}


def filled(store, seconds, device="gpu0"):
    store.append([point(second, device, power_w=float(second)) for second in seconds])


def test_history_within_the_sample_size_is_read_completely(store, reader):
    filled(store, range(300))
    filled(store, range(100), "gpu1")
    for series in values(reader, 400).values():
        assert not series.is_sampled
    assert reader.values("device", "power_w", *ALWAYS, sample=400) == reader.values(
        "device", "power_w", *ALWAYS
    )


def test_longer_history_is_sampled_evenly_with_first_and_last_row(store, reader):
    filled(store, range(10_000))
    found = values(reader, 300)["gpu0"]
    assert found.is_sampled
    assert 190 <= len(found.values) <= 202
    assert (found.values[0], found.values[-1]) == (0.0, 9999.0)
    assert found.values == [(time_ns - T0_NS) / S for time_ns in found.times_ns]
    steps = [after - before for before, after in zip(found.values, found.values[1:], strict=False)]
    assert max(steps) <= 2 * 10_000 / 200 + 1
    # The sampled times are not periodic.
    assert len({second % 50 for second in found.values}) > 30
    assert values(reader, 300)["gpu0"] == found


def test_short_series_is_complete_and_leaves_its_share_to_a_long_one(store, reader):
    filled(store, range(5_000))
    filled(store, range(10), "gpu1")
    found = values(reader, 760)
    assert not found["gpu1"].is_sampled
    assert len(found["gpu1"].values) == 10
    assert found["gpu0"].is_sampled
    assert 480 <= len(found["gpu0"].values) <= 502


def test_gaps_add_no_rows_and_the_range_is_respected(store, reader):
    filled(store, [*range(1_000), *range(90_000, 91_000)])
    found = values(reader, 100)["gpu0"]
    assert all(value < 1_000 or value >= 90_000 for value in found.values)
    assert len(set(found.times_ns)) == len(found.times_ns)
    (inside,) = reader.values(
        "device", "power_w", T0_NS + 100 * S, T0_NS + 900 * S, None, sample=100
    )
    assert (inside.values[0], inside.values[-1]) == (100.0, 899.0)


def test_aggregated_rows_are_sampled_too(store, reader):
    filled(store, range(0, 6 * 3600, 10))
    keep = KeepSince(T0_NS + 5 * 3600 * S, T0_NS + 3 * 3600 * S, NEVER_NS, NEVER_NS)
    while not store.retain(keep, 500).is_done:
        pass
    (whole,) = reader.values("device", "power_w", *ALWAYS)
    (found,) = reader.values("device", "power_w", *ALWAYS, sample=100)
    assert found.is_sampled
    known = set(zip(whole.times_ns, whole.values, whole.ends, strict=True))
    assert set(zip(found.times_ns, found.values, found.ends, strict=True)) <= known
    assert found.times_ns == sorted(found.times_ns)
    assert {end.rows for end in found.ends} == {1, 6, 360}


def test_rare_field_is_a_number_or_absent(store, reader):
    store.append([point(second, power_w=1.0) for second in range(1, 2_000)])
    store.append([point(0, power_w=1.0, temp_c=50.0)])
    (found,) = reader.values("device", "temp_c", *ALWAYS, sample=100)
    assert found.values == [50.0]
    assert reader.values("device", "sm_clock_mhz", *ALWAYS, sample=100) == []


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 5_000), max_size=400),
    st.integers(0, 5_000),
    st.integers(0, 5_000),
    st.integers(1, 300),
)
def test_sample_is_a_subset_of_the_rows(seconds, since, until, count):
    with memory_folder() as folder:
        sample_is_a_subset(Path(folder) / "s.db", seconds, since, until, count)


def sample_is_a_subset(path, seconds, since, until, count):
    store = Store.open(path, FakeClock())
    filled(store, sorted(seconds))
    reader, database = StoreReader.open(path), open_reader(path)
    inside = sorted(second for second in seconds if since <= second < until)
    for series in reader.series("device"):
        range_ = SeriesRange(series.id, T0_NS + since * S, T0_NS + until * S)
        with database.snapshot("read") as connection:
            rows = spread_rows(connection, range_, count)
            assert min(count_rows(connection, range_, count), count) == min(len(inside), count)
        found = [(row.time_ns - T0_NS) // S for row in rows]
        assert found == sorted(set(found))
        assert set(found) <= set(inside)
        if inside:
            assert (found[0], found[-1]) == (inside[0], inside[-1])
        assert len(found) <= count + 2
    database.close()
    reader.close()
    store.close()


def test_query_reads_one_snapshot(store, reader, path):
    filled(store, range(100))
    database = open_reader(path)
    with database.snapshot("read") as connection:
        before = connection.execute("SELECT count(*) FROM points").fetchone()
        filled(store, range(100, 200))
        assert connection.execute("SELECT count(*) FROM points").fetchone() == before
    database.close()
    assert len(values(reader, None)["gpu0"].values) == 200
