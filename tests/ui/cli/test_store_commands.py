"""`costprobe store compact` requires exclusive access and shrinks the store."""

import time

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import Point
from costprobe.ui.cli.replay import rows_of_csv

S = 10**9
HOUR_S, DAY_S = 3600, 86_400


@pytest.fixture
def path(tmp_path):
    """A store with 2,000 days of rows, none rolled up."""
    path = tmp_path / "costprobe.db"
    now_ns = time.time_ns()
    store = Store.open(path, SystemClock())
    rows = [
        Point("device", {"device": "gpu0"}, {"energy_j": 1.0}, now_ns - age_s * S)
        for age_s in range(8 * DAY_S, 0, -300)
    ]
    old = [
        Point("event", {"kind": "fault"}, {"title": "x" * 2000}, now_ns - (2000 * DAY_S + n) * S)
        for n in range(4000)
    ]
    store.append(rows + old)
    store.close()
    return path


def test_compact_rolls_up_deletes_and_shrinks(costprobe, path):
    before_bytes = path.stat().st_size
    assert "4,000 removed" in costprobe("store", "compact")
    assert path.stat().st_size < before_bytes / 4
    assert not path.with_name(path.name + "-wal").exists()
    reader = StoreReader.open(path)
    points = list(reader.points("device", 0, 2**62))
    reader.close()
    assert sum(found.fields["energy_j"] for found in points) == 8 * 288
    assert {getattr(found, "period_s", 0) for found in points} == {0, 3600}
    output = costprobe("store", "check")
    assert "rows are aggregates" in output
    assert output.endswith("whole\n")
    assert "0 rows aggregated, 0 removed" in costprobe("store", "compact")


@pytest.mark.parametrize("kind", [Store, StoreReader])
def test_store_in_use_is_not_changed(costprobe, path, kind):
    other = Store.open(path, SystemClock()) if kind is Store else StoreReader.open(path)
    before_bytes = path.stat().st_size
    refused = costprobe("store", "compact", code=2)
    assert refused.startswith("Error: ")
    assert "has it open; stop the daemon first" in refused
    other.close()
    assert path.stat().st_size == before_bytes
    costprobe("store", "compact")


def test_export_marks_aggregates_and_replay_skips_them(tmp_path, path, costprobe):
    costprobe("store", "compact")
    lines = costprobe("export", "--measurement", "device").splitlines()
    rolled = [line for line in lines if line.startswith("device,device=gpu0,rollup=1h ")]
    assert {line.split()[1] for line in rolled[1:]} == {"energy_j=12.0,rows=12i"}
    table = costprobe("export", "--format", "csv")
    assert table.count("device=gpu0 rollup=1h,energy_j,") == len(rolled) > 20
    file = tmp_path / "rows.csv"
    file.write_text(table)
    rows = [row for row in rows_of_csv(file) if row.measurement == "device"]
    assert len(rows) == len(lines) - len(rolled)
    assert {tuple(row.tags) for row in rows} == {("device",)}
