"""Time and memory of `costprobe report` for 30 days and a year of eight GPUs, and time of its overview.

    python bench/report_speed.py [--repeats 3] [--rows] [--json FILE]

The store has rows as the default retention leaves them: every ten seconds for a week, then every
hour, of eight devices; twelve probe series and a service with two models every five minutes for 90 days
(`tests/fakes/sample_host.py`), and the hour rows that the daemon writes beside them.
It is written without a daemon, so that no hours of budgets are kept. `--rows` leaves these out:
all is read from rows. Figures are medians; the peak is that of the largest process. The overview, with which the
dashboard and the terminal begin, too, is called in this process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import load
from costprobe.spend.evaluate import BudgetOverview, SpendBooks
from costprobe.spend.now import host_months
from costprobe.ui.host_overview import overview
from fakes import sample_host
from table import Table, add_json, finish

# Days of the report, and its longest time in s.
GOALS_S = {30: 3, 365: 10}
GOAL_MB = 150
# Of the overview.
GOAL_MS = 100


def measured(config: Path, days: int) -> tuple[float, float, float]:
    """Return elapsed time in s, CPU time in s and peak memory in MB of one report."""
    command = [
        sys.executable,
        "-m",
        "costprobe",
        "-c",
        str(config),
        "report",
        "--since",
        f"{days}d",
    ]
    out = ["--out", str(config.parent / "report.html")]
    began_s = time.perf_counter()
    with subprocess.Popen([*command, *out], env={**os.environ, "PYTHONPATH": str(ROOT)}) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the report ended with {child.returncode}")
    took_s = time.perf_counter() - began_s
    return took_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def overview_ms(config_path: Path, repeats: int) -> dict[str, float]:
    """Return the CPU time of the overview and of its budgets, in ms; hours of spend are known."""
    config = load(config_path)
    with closing(StoreReader.open(config_path.parent / "costprobe.db")) as reader:
        now_ns = max(row.time_ns for row in reader.last("device", time.time_ns()))
        books = SpendBooks(config.budget, config.telemetry.aggregate_s)

        def months() -> list[BudgetOverview]:
            return host_months(books, config.budget, reader, now_ns)[1]

        known = months()
        calls = {
            "overview": lambda: overview(reader, config, now_ns, known),
            "spend of the month": months,
        }
        return {
            name: statistics.median(cpu_ms(call) for _ in range(repeats))
            for name, call in calls.items()
        }


def cpu_ms(call: Callable[[], object]) -> float:
    """Return the CPU time of a call in ms."""
    begun_s = time.process_time()
    call()
    return (time.process_time() - begun_s) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_json(parser)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="private folder for the stores (2 GB)")
    parser.add_argument("--rows", action="store_true", help="without hour rows beside rows")
    options = parser.parse_args()
    table = Table()
    for days, goal_s in GOALS_S.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            config = sample_host.made(
                Path(folder), time.time_ns(), max(days, 120), sample_host.FULL
            )
            if not options.rows:
                sample_host.settled(config, time.time_ns())
            if days == min(GOALS_S):
                for name, middle_ms in overview_ms(config, 3 * options.repeats).items():
                    goal = f"≤ {GOAL_MS}" if name == "overview" else ""
                    table.row(f"{name}, CPU", middle_ms, "ms", goal=goal)
            runs = [measured(config, days) for _ in range(options.repeats)]
        wall_s, cpu_s, peak_mb = (statistics.median(values) for values in zip(*runs, strict=True))
        note = f"elapsed {wall_s:.1f} s, load {os.getloadavg()[0]:.1f}"
        table.row(f"report of {days} days, CPU", cpu_s, "s", goal=f"≤ {goal_s}", note=note)
        goal = f"≤ {GOAL_MB}" if days == min(GOALS_S) else ""
        table.row(f"report of {days} days, peak memory", peak_mb, "MB", goal=goal)
    return finish(table, options.json)


if __name__ == "__main__":
    sys.exit(main())
