"""Storing what a command measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import click

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import Point
from costprobe.ui.cli.support.control_client import NoDaemonError, ask
from costprobe.ui.cli.support.loaded_config import LoadedConfig

# Rows in a request to the daemon, which has at most 64 KiB.
BATCH = 16


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
    path, stored = settings.store_path, 0
    for batch in (documents[at : at + BATCH] for at in range(0, len(documents), BATCH)):
        try:
            # The daemon may have another store; it then stores nothing.
            kept = ask(settings, {"do": "keep", "store": str(path.resolve()), "rows": batch})
        except NoDaemonError:
            break
        if kept != len(batch):
            break
        stored += kept
    if stored == len(rows):
        return
    try:
        with closing(Store.open(path, SystemClock())) as store:
            store.append(rows[stored:])
    except StoreError as error:
        raise click.ClickException(f"the measurement was not stored: {error}") from error
