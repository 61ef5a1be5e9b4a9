"""Points for the tests of the store, and ways to look at it from outside."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from agent.model import Point

ROOT = Path(__file__).resolve().parents[2]
T0_NS = 1_800_000_000_000_000_000
S = 1_000_000_000
DAY_NS = 86_400 * S


def point(second=0, device="gpu0", measurement="device", **fields):
    return Point(
        measurement,
        {"host": "h", "device": device},
        fields or {"power_w": 70.5},
        T0_NS + second * S,
    )


def happened(second=0, device="gpu0", **fields):
    """A row that is never rolled up."""
    return point(second, device, measurement="event", **fields)


def run_python(script, *arguments, **options):
    """Runs a script of this folder with the repository's code."""
    return subprocess.run(
        [sys.executable, Path(__file__).parent / script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def query(path, sql):
    """Asks the file itself, past the code that is tested."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def lines_of(store):
    return [row.line for row in store.rows_after(0, 1_000_000)]
