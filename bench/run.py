"""Run the benchmarks one after the other and print one table: ours, peer, ratio, goal.

    python bench/run.py [--only query_latency,starting] [--long] [--out FILE]

Each runs in its own process and writes its rows with `--json`. A failed benchmark is listed below
the table, and the others run. The report is written to bench/results/ with the machine's data.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
from table import markdown

LIMIT_S = 3600
LONG_LIMIT_S = 6 * 3600


# In the order of the table: the arguments of a short run and of a long one.
BENCHES = {
    "footprint": (("--seconds", "120"), ()),
    "pushing": (("--points", "200000"), ()),
    "query_latency": ((), ("--repeats", "31")),
    "starting": ((), ()),
    "detection": (("--cost",), ()),
}


def rows_of(name: str, *, is_long: bool) -> tuple[list[dict[str, Any]], str]:
    """Return a benchmark's rows, and the reason if there are none."""
    with tempfile.TemporaryDirectory() as folder:
        rows_path = Path(folder) / "rows.json"
        script = (sys.executable, str(BENCH / f"{name}.py"))
        command = [*script, *BENCHES[name][is_long], "--json", str(rows_path)]
        print(f"\n## {name}\n", flush=True)
        try:
            code = subprocess.run(
                command, check=False, timeout=LONG_LIMIT_S if is_long else LIMIT_S
            ).returncode
        except subprocess.TimeoutExpired:
            return [], f"{name}: took too long"
        if not rows_path.exists():
            return [], f"{name}: exit code {code} and no rows"
        return json.loads(rows_path.read_text("utf-8")), ""


def machine() -> list[str]:
    """Return a description of the machine as lines."""
    cpus = os.cpu_count() or 1
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    load = ", ".join(f"{load:.2f}" for load in os.getloadavg())
    return [
        f"{cpus} x {model}, {memory_gb:.0f} GB, load {load} at the start",
        (
            f"Linux {platform.release()}, Python {platform.python_version()},"
            f" SQLite {sqlite3.sqlite_version}, {', '.join(versions())}"
        ),
        f"GPU: {gpu()}",
    ]


def versions() -> list[str]:
    """Return the versions of the installed Python peers."""
    found = []
    for name in ("torch", "influxdb-client", "river", "zeus", "codecarbon", "nvitop"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def gpu() -> str:
    """Return the GPU names and the driver version."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "none"
    done = subprocess.run(
        [program, "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return "; ".join(done.stdout.split("\n")).strip("; ") or "none"


def report(rows: Sequence[dict[str, Any]], problems: Sequence[str], facts: Sequence[str]) -> str:
    """Return the report as Markdown."""
    lines = [f"# {datetime.now(tz=UTC):%Y-%m-%d}: comparison with peers", ""]
    lines += [*(f"- {fact}" for fact in facts), ""]
    lines += markdown(rows)
    if problems:
        lines += ["", "Not measured:", "", *(f"- {problem}" for problem in problems)]
    missed = [row["name"] for row in rows if row["met"] is False]
    judged = sum(row["met"] is not None for row in rows)
    lines += ["", f"Goals met: {judged - len(missed)} of {judged}."]
    return "\n".join(lines) + "\n"


def free_name() -> Path:
    """Return an unused file name for today's results."""
    today = f"{datetime.now(tz=UTC):%Y-%m-%d}"
    names = [f"{today}.md", *(f"{today}-{number}.md" for number in range(2, 100))]
    return next(path for name in names if not (path := BENCH / "results" / name).exists())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="comma-separated names of benchmarks")
    parser.add_argument("--long", action="store_true", help="lengths suitable for publication")
    parser.add_argument("--out", type=Path, help="default: bench/results/DATE.md")
    options = parser.parse_args()
    wanted = set(options.only.split(",") if options.only else BENCHES)
    if unknown := wanted - BENCHES.keys():
        parser.error(f"--only: unknown benchmark {', '.join(sorted(unknown))}")
    facts = machine()
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    began_s = time.monotonic()
    for bench in BENCHES:
        if bench in wanted:
            found, problem = rows_of(bench, is_long=options.long)
            rows += found
            problems += [problem] if problem else []
    facts.append(f"{'long' if options.long else 'short'} run, {time.monotonic() - began_s:.0f} s")
    text = report(rows, problems, facts)
    out = options.out or free_name()
    out.write_text(text, "utf-8")
    print(f"\n{text}\nwritten to {out}")
    return 1 if problems or any(row["met"] is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
