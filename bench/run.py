"""Runs the benchmarks one after the other and prints one table: ours, a peer's, ratio, goal.

    python bench/run.py [--only asking,probing] [--long] [--out FILE]

Each runs as a process of its own and hands its rows on with `--json`. One that fails is named in
the table's notes, and the others run. The table goes into bench/results/ too, with the machine.
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
from typing import Any, NamedTuple

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

from table import markdown  # noqa: E402 - the path first

LIMIT_S = 3600
LONG_LIMIT_S = 6 * 3600


class Bench(NamedTuple):
    """A benchmark's script.

    Attributes:
        name: Its file without the ending.
        short: What it is given beside `--json` where it is not to take long.
    """

    name: str
    short: tuple[str, ...] = ()


# In the order of the lines that ask for them.
BENCHES = (
    Bench("footprint", ("--seconds", "120")),
    Bench("pushing", ("--points", "200000")),
    Bench("committing", ("--seconds", "30")),
    Bench("asking"),
    Bench("starting"),
    Bench("probing"),
    Bench("detection", ("--cost",)),
    Bench("fleet", ("--short",)),
)


def takes(script: Path, option: str) -> bool:
    """Whether a script knows an option, as its text says."""
    return f'"{option}"' in script.read_text("utf-8")


def rows_of(bench: Bench, *, is_long: bool) -> tuple[list[dict[str, Any]], str]:
    """A benchmark's rows, and why there are none or not all."""
    script = BENCH / f"{bench.name}.py"
    if not script.exists():
        return [], f"{bench.name}: there is no {script.name}"
    if not takes(script, "--json") and "add_json(" not in script.read_text("utf-8"):
        return [], f"{bench.name}: hands no rows on; run `python bench/{script.name}` by itself"
    extra = [] if is_long else list(bench.short)
    if is_long and takes(script, "--long"):
        extra = ["--long"]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "rows.json"
        command = [sys.executable, str(script), *extra, "--json", str(answer)]
        print(f"\n## {bench.name}\n", flush=True)
        try:
            code = subprocess.run(
                command, check=False, timeout=LONG_LIMIT_S if is_long else LIMIT_S
            ).returncode
        except subprocess.TimeoutExpired:
            return [], f"{bench.name}: took too long"
        if not answer.exists():
            return [], f"{bench.name}: ended with exit code {code} and no rows"
        return complete(json.loads(answer.read_text("utf-8")), bench.name)


def complete(rows: object, name: str) -> tuple[list[dict[str, Any]], str]:
    """Rows with every column, also where a script left one out."""
    columns = {
        "issue_line": 0,
        "name": name,
        "ours": float("nan"),
        "unit": "",
        "peer": None,
        "peer_name": "",
        "ratio": None,
        "goal": "",
        "met": None,
        "note": "",
    }
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return [], f"{name}: its rows are no list of objects"
    return [{**columns, **row} for row in rows], ""


def machine() -> list[str]:
    """What all this was measured on, as lines."""
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
        f"{cpus} x {model}, {memory_gb:.0f} GB, load {load} at the beginning",
        (
            f"Linux {platform.release()}, Python {platform.python_version()},"
            f" SQLite {sqlite3.sqlite_version}, {', '.join(versions())}"
        ),
        f"GPU: {gpu()}",
    ]


def versions() -> list[str]:
    """What the peers are, where they are Python's."""
    found = []
    for name in ("torch", "influxdb-client", "river", "zeus", "codecarbon", "nvitop"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def gpu() -> str:
    """The GPUs as their driver names them."""
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


def report(rows: Sequence[dict[str, Any]], troubles: Sequence[str], facts: Sequence[str]) -> str:
    """The one table, as Markdown."""
    told = [f"# {datetime.now(tz=UTC):%Y-%m-%d}: ours beside others", ""]
    told += [*(f"- {fact}" for fact in facts), ""]
    told += markdown(rows)
    if troubles:
        told += ["", "Not measured:", "", *(f"- {trouble}" for trouble in troubles)]
    missed = [row["name"] for row in rows if row["met"] is False]
    judged = sum(row["met"] is not None for row in rows)
    told += ["", f"Goals met: {judged - len(missed)} of {judged}."]
    return "\n".join(told) + "\n"


def free_name() -> Path:
    """Today's file among the results; one that is there is not written over."""
    today = f"{datetime.now(tz=UTC):%Y-%m-%d}"
    names = [f"{today}.md", *(f"{today}-{number}.md" for number in range(2, 100))]
    return next(path for name in names if not (path := BENCH / "results" / name).exists())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="names of benchmarks, with commas between")
    parser.add_argument("--long", action="store_true", help="lengths for figures to be told")
    parser.add_argument("--out", type=Path, help="default: bench/results/DATE.md")
    options = parser.parse_args()
    wanted = set(options.only.split(",")) if options.only else {one.name for one in BENCHES}
    if unknown := wanted - {one.name for one in BENCHES}:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    facts = machine()
    rows: list[dict[str, Any]] = []
    troubles: list[str] = []
    began_s = time.monotonic()
    for bench in BENCHES:
        if bench.name in wanted:
            found, trouble = rows_of(bench, is_long=options.long)
            rows += found
            troubles += [trouble] if trouble else []
    facts.append(f"{'long' if options.long else 'short'} run, {time.monotonic() - began_s:.0f} s")
    text = report(rows, troubles, facts)
    out = options.out or free_name()
    out.write_text(text, "utf-8")
    print(f"\n{text}\nwritten to {out}")
    return 1 if troubles or any(row["met"] is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
