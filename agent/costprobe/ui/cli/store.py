"""`costprobe store`: check, back up and compact the store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.upkeep import Health, back_up, compact, examine, keep_since
from costprobe.core.clock import SystemClock
from costprobe.core.periods import iso
from costprobe.core.units import counted
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.output import echo, echo_json
from costprobe.ui.cli.support.place import FAILED, Settings, bad_input, reader_of, unusable_store

MIB = 1 << 20


@click.group(cls=ExampleGroup)
def command() -> None:
    """Check, back up and compact the store."""


@command.command(
    examples=("costprobe store check  # verify the whole store",),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def check(config: str | None, *, as_json: bool) -> None:
    """Verify the whole store and summarize its content; exit code 1 if it is damaged.

    The daemon may be running.
    """
    settings = Settings(config)
    path = settings.store_path
    try:
        health = examine(path)
    except StoreError as error:
        raise unusable_store(error) from error
    waiting: dict[str, int] = {}
    if health.schema:
        with reader_of(settings) as reader:
            waiting = {sink.sink: sink.backlog.points for sink in reader.sinks()}
    if as_json:
        echo_json({"path": str(path), **asdict(health), "outbox_points": waiting})
    else:
        echo(f"{path}: {health.size_bytes / MIB:,.1f} MiB, schema {health.schema or 'none'}")
        if health.schema:
            _echo_content(health, waiting)
        if not health.problems:
            echo("whole", "good")
        for problem in health.problems:
            echo(f"damaged: {problem}", "bad")
    if health.problems:
        fix = "restart the daemon: it quarantines a damaged store"
        if health.schema:
            fix = "stop the daemon and run `costprobe store compact`, which sets these rows aside"
        echo(fix, err=True)
        raise SystemExit(FAILED)


def _echo_content(health: Health, waiting: Mapping[str, int]) -> None:
    known_ns = (health.oldest_ns, health.newest_ns)
    times = " to ".join(iso(time_ns) for time_ns in known_ns if time_ns is not None)
    echo(f"{counted(health.points, 'row')} of {health.series:,} series {times}")
    if health.rolled:
        echo(f"{health.rolled:,} rows are aggregates of an hour")
    for sink, points in waiting.items():
        echo(f"sink {sink}: {counted(points, 'point')} waiting")


@command.command(
    examples=("costprobe store backup backup.db  # a consistent copy while the daemon runs",),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def backup(config: str | None, *, file: Path, force: bool) -> None:
    """Copy the store to FILE consistently, even while the daemon writes to it."""
    settings = Settings(config)
    if file.absolute() == settings.store_path.absolute():
        raise bad_input(f"{file}: is the store itself; choose another file")
    if not file.name:
        raise bad_input(f"{file}: not a file name; write one such as backup.db")
    if not file.parent.is_dir():
        raise bad_input(f"{file}: its folder does not exist; create it, or choose another file")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise bad_input(f"{file}: permission denied: this user cannot write to its folder")
    try:
        size_bytes = back_up(settings.store_path, file, replace=force)
    except FileExistsError as error:
        raise bad_input(f"{file}: already exists; replace it with --force") from error
    except StoreError as error:
        raise unusable_store(error) from error
    echo(f"{file}: {size_bytes / MIB:,.1f} MiB; to restore it, replace the store with it")


@command.command(
    name="compact",
    examples=("costprobe store compact  # roll up, delete and free space now",),
)
@click.pass_obj
def compact_command(config: str | None) -> None:
    """Aggregate and delete all due rows now, and free the space.

    The daemon does the same in small steps every ten minutes; it must be stopped meanwhile.
    """
    settings = Settings(config)
    path = settings.store_path
    clock = SystemClock()
    try:
        done = compact(
            path, keep_since(settings.config.store.outbox_retention_s, clock.time_ns()), clock
        )
    except StoreError as error:
        if error.fault in {"locked", "in_use"}:
            raise bad_input(
                f"cannot compact {path}: a daemon or another program has it open;"
                " stop the daemon first (it does the same in small steps)"
            ) from error
        raise unusable_store(error) from error
    echo(
        f"{path}: {done.before_bytes / MIB:,.1f} → {done.after_bytes / MIB:,.1f} MiB;"
        f" {done.aggregated:,} rows aggregated, {done.removed:,} removed"
    )
    if done.dropped:
        echo(f"{done.dropped:,} of them had not been sent to every sink", err=True)
