"""Points for the store's tests, and direct queries of its file."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from costprobe.core.records import Point
from fakes.store_access import rows_after

ROOT = Path(__file__).resolve().parents[3]
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
    """A row that is never aggregated."""
    return point(second, device, measurement="event", **fields)


def run_python(script, *arguments, **options):
    """Run a script of this folder with the repository's code."""
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
    """Run SQL on the database file directly, without the code under test."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def lines_of(store):
    return [row.line for row in rows_after(store, 0, 1_000_000)]
