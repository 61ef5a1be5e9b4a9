"""`infercost store`: whether the store is whole, a copy of it, and less of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from agent.cli.colour import paint
from agent.cli.settings import Settings, bad_input, reader_of
from agent.cli.timespan import iso
from agent.clock import SystemClock
from agent.daemon.retention import keep_since
from agent.storage.compact import compact
from agent.storage.errors import StoreError
from agent.storage.health import back_up, examine

MIB = 1 << 20


@click.group()
def command() -> None:
    """Whether the store is whole, a copy of it, and less of it."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_obj
def check(config: str | None, *, as_json: bool) -> None:
    """Reads the whole store, and says what it holds; exit code 1 if it is damaged.

    The daemon may run meanwhile.
    """
    settings = Settings(config)
    path = settings.store_path
    try:
        health = examine(path)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    waiting: dict[str, int] = {}
    if not health.problems:
        with reader_of(settings) as reader:
            waiting = {sink.sink: sink.backlog.points for sink in reader.sinks()}
    if as_json:
        click.echo(json.dumps({"path": str(path), **asdict(health), "waiting_points": waiting}))
    else:
        click.echo(f"{path}: {health.size_bytes / MIB:,.1f} MiB, schema {health.schema or 'none'}")
        if not health.problems:
            times = [
                iso(time_ns)
                for time_ns in (health.oldest_ns, health.newest_ns)
                if time_ns is not None
            ]
            click.echo(f"{health.points:,} rows of {health.series:,} series {' to '.join(times)}")
            if health.rolled:
                click.echo(f"{health.rolled:,} rows stand for older ones, one a minute or an hour")
            for sink, points in waiting.items():
                click.echo(f"sink {sink}: {points:,} points wait")
            click.echo(paint("whole", "good"))
        for problem in health.problems:
            click.echo(paint(f"damaged: {problem}", "bad"))
    if health.problems:
        click.echo("stop the daemon and start it again: it sets a damaged store aside", err=True)
        raise SystemExit(1)


@command.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="The copy and its size, as JSON.")
@click.pass_obj
def backup(config: str | None, *, file: Path, force: bool, as_json: bool) -> None:
    """Copies the store to FILE as it is now, also while the daemon writes to it."""
    settings = Settings(config)
    if file.absolute() == settings.store_path.absolute():
        raise bad_input(f"{file}: is the store itself; name another file")
    try:
        size_bytes = back_up(settings.store_path, file, replace=force)
    except FileExistsError as error:
        raise bad_input(f"{file}: is there already; replace it with --force") from error
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"file": str(file), "size_bytes": size_bytes}))
        return
    click.echo(
        f"{file}: {size_bytes / MIB:,.1f} MiB; to go back to it, put it in the store's place"
    )


@command.command(name="compact")
@click.option("--json", "as_json", is_flag=True, help="What was done, as JSON.")
@click.pass_obj
def compact_command(config: str | None, *, as_json: bool) -> None:
    """Rolls up and removes at once what is due, and gives all free room back.

    The daemon does so by itself, a little every ten minutes; it must not run meanwhile.
    """
    settings = Settings(config)
    path = settings.store_path
    clock = SystemClock()
    try:
        done = compact(path, keep_since(settings.config.store, clock.time_ns()), clock)
    except StoreError as error:
        if error.fault == "locked":
            raise click.ClickException(
                f"cannot compact {path}: a daemon or another program has it open;"
                " stop the daemon first (it does the same by itself, a little at a time)"
            ) from error
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"path": str(path), **asdict(done)}))
        return
    click.echo(
        f"{path}: {done.before_bytes / MIB:,.1f} → {done.after_bytes / MIB:,.1f} MiB;"
        f" {done.folded:,} rows rolled up, {done.removed:,} removed"
    )
    if done.dropped:
        click.echo(f"{done.dropped:,} of them had not been sent to every sink", err=True)
