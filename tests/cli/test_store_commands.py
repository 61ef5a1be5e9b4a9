"""`infercost store compact` needs the store for itself, and then makes it small."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.cli.csv_rows import rows_of_csv
from agent.clock import SystemClock
from agent.model import Point
from agent.storage.reader import StoreReader
from agent.storage.writer import Store

S = 10**9
HOUR_S, DAY_S = 3600, 86_400
ROOT = Path(__file__).parents[2]


@pytest.fixture
def infercost(tmp_path):
    config = tmp_path / "infercost.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/infercost.db"\nretention = "1d"\n')

    def run(*arguments, command="store"):
        return subprocess.run(
            [sys.executable, "-m", "agent", "--config", str(config), command, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def path(tmp_path):
    """A store with two thousand days of rows that nobody has rolled up yet."""
    path = tmp_path / "infercost.db"
    now_ns = time.time_ns()
    store = Store.open(path, SystemClock())
    rows = [
        Point("device", {"device": "gpu0"}, {"energy_j": 1.0}, now_ns - age_s * S)
        # None is so old as the border, which moves on while this runs.
        for age_s in (*range(2 * DAY_S, DAY_S + HOUR_S, -60), *range(DAY_S - HOUR_S, 0, -60))
    ]
    old = [
        Point("event", {"kind": "fault"}, {"title": "x" * 2000}, now_ns - (2000 * DAY_S + n) * S)
        for n in range(4000)
    ]
    store.append(rows + old)
    store.close()
    return path


def test_compacting_rolls_up_removes_and_shrinks(infercost, path):
    before_bytes = path.stat().st_size
    done = infercost("compact")
    assert done.returncode == 0, done
    assert "4,000 removed" in done.stdout
    assert path.stat().st_size < before_bytes / 4
    assert not path.with_name(path.name + "-wal").exists()
    reader = StoreReader.open(path)
    points = list(reader.points("device", 0, 2**62))
    reader.close()
    assert sum(found.fields["energy_j"] for found in points) == 2 * 1440 - 120
    assert {getattr(found, "period_s", 0) for found in points} == {0, 60}
    said = infercost("check").stdout
    assert "rows stand for older ones" in said
    assert said.endswith("whole\n")
    assert "0 rows rolled up, 0 removed" in infercost("compact").stdout


@pytest.mark.parametrize("kind", [Store, StoreReader])
def test_a_store_that_somebody_has_open_is_left_as_it_is(infercost, path, kind):
    other = Store.open(path, SystemClock()) if kind is Store else StoreReader.open(path)
    before_bytes = path.stat().st_size
    done = infercost("compact")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has it open; stop the daemon first" in done.stderr
    other.close()
    assert path.stat().st_size == before_bytes
    assert infercost("compact").returncode == 0


def test_there_is_nothing_to_compact(infercost, tmp_path):
    done = infercost("compact")
    assert done.returncode == 1
    assert "start `infercost run`" in done.stderr
    assert not (tmp_path / "infercost.db").exists()


def test_an_export_tells_what_was_rolled_up_and_replays_without_hours(tmp_path, path, infercost):
    infercost("compact")
    lines = infercost("--measurement", "device", command="export").stdout.splitlines()
    rolled = [line for line in lines if line.startswith("device,device=gpu0,rollup=1m ")]
    assert sum(float(line.split("energy_j=")[1].split(",")[0]) for line in rolled) == len(rolled)
    table = infercost("--format", "csv", command="export").stdout
    assert table.count("device=gpu0 rollup=1m,energy_j,1.0") == len(rolled) > 0
    hours = table.replace("rollup=1m,energy_j,1.0", "rollup=1h,energy_j,1.0", 3)
    file = tmp_path / "rows.csv"
    file.write_text(hours)
    rows = [row for row in rows_of_csv(file) if row.measurement == "device"]
    assert len(rows) == len(lines) - 3
    assert {tuple(row.tags) for row in rows} == {("device",)}
