"""Storing what a command measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import click

from costprobe.adapters.storage.errors import StoreError
from costprobe.adapters.storage.writer import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import Point
from costprobe.ui.cli.support.control_client import NoDaemonError, ask
from costprobe.ui.cli.support.loaded_config import LoadedConfig


def keep(settings: LoadedConfig, rows: Sequence[Point]) -> None:
    """Store rows, through the daemon if it is running, because it is the only writer.

    Raises:
        click.ClickException: They cannot be stored.
    """
    documents = [
        {
            "measurement": row.measurement,
            "tags": dict(row.tags),
            "fields": dict(row.fields),
            "time_ns": row.time_ns,
        }
        for row in rows
    ]
    path = settings.store_path
    try:
        # The daemon may have another store; it then stores nothing.
        stored = ask(settings, {"do": "keep", "store": str(path.resolve()), "rows": documents})
    except NoDaemonError:
        stored = 0
    if stored == len(rows):
        return
    try:
        with closing(Store.open(path, SystemClock())) as store:
            store.append(rows)
    except StoreError as error:
        raise click.ClickException(f"the measurement was not stored: {error}") from error
