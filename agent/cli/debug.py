"""`infercost debug`: what to send to whoever helps."""

from __future__ import annotations

import io
import json
import os
import socket
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from agent.cli.bundle import Host, Source, gathered, sources
from agent.cli.bundle_secrets import known_secrets
from agent.cli.settings import Settings, bad_input, resolve_store
from agent.config import TRY_OUT
from agent.config_place import SYSTEM_PATH
from agent.redaction import Redactor

FILE_MODE: Final = 0o600
KIB: Final = 1 << 10


@click.group()
def command() -> None:
    """What to send to whoever helps."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--list", "only_list", is_flag=True, help="Say what would be in it; write nothing.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="What is in it, as JSON.")
@click.pass_obj
def bundle(
    config: str | None, *, file: Path | None, only_list: bool, force: bool, as_json: bool
) -> None:
    """Writes what is needed to understand a fault to FILE (.tar.gz), without secrets.

    Tokens, passwords, users and paths of addresses, arguments of commands and the environment are
    left out. Says what is in it before it is written; look into it before you send it on.
    """
    host = _host(config)
    target = file or Path(_default_name(host.time_ns))
    if target.exists() and not force and not only_list:
        raise bad_input(f"{target}: is there already; name another, or replace it with --force")
    known = known_secrets(host.config if not isinstance(host.config, str) else None, os.environ)
    members = list(gathered(sources(host), Redactor(known)))
    for source, content in [] if as_json else members:
        click.echo(f"{source.name:14} {_size(len(content)):>10}  {source.holds}")
    try:
        if not only_list:
            _write(target, members, host.time_ns, replace=force)
    except OSError as error:
        raise bad_input(f"{target}: cannot be written ({error.strerror})") from error
    if as_json:
        click.echo(json.dumps(_document(None if only_list else target, members)))
    elif not only_list:
        click.echo(f"{target}: written, for you alone to read; look into it before you send it")


def _host(config: str | None) -> Host:
    """What is known of the host, also where the configuration cannot be used."""
    now_ns = time.time_ns()
    try:
        settings = Settings(config)
    except click.ClickException as error:
        path = Path(config) if config else SYSTEM_PATH
        return Host(error.message, path, resolve_store(TRY_OUT, path), now_ns)
    return Host(settings.config, settings.path, settings.store_path, now_ns)


def _default_name(time_ns: int) -> str:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time_ns / 1e9))
    return f"infercost-debug-{socket.gethostname()}-{moment}.tar.gz"


def _size(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < KIB else f"{size_bytes / KIB:.1f} KiB"


def _document(file: Path | None, members: Sequence[tuple[Source, bytes]]) -> dict[str, Any]:
    return {
        "file": None if file is None else str(file),
        "members": [
            {"name": source.name, "size_bytes": len(content), "holds": source.holds}
            for source, content in members
        ],
    }


def _write(
    target: Path, members: Sequence[tuple[Source, bytes]], time_ns: int, *, replace: bool
) -> None:
    """Writes the archive; a file that could not be finished does not stay.

    Raises:
        OSError: It cannot be written, or is there.
    """
    if replace:
        target.unlink(missing_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for source, content in members:
                entry = tarfile.TarInfo(f"infercost-debug/{source.name}")
                entry.size, entry.mode, entry.mtime = len(content), FILE_MODE, time_ns // 10**9
                archive.addfile(entry, io.BytesIO(content))
    except BaseException:
        target.unlink(missing_ok=True)
        raise
