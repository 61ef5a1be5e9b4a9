"""`costprobe debug`: a support bundle."""

from __future__ import annotations

import io
import os
import socket
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import click

from costprobe.adapters.host.redaction import REDACTOR
from costprobe.adapters.http.access import learn_secrets
from costprobe.core.config.location import SYSTEM_PATH, default_store
from costprobe.ui.cli.support.bundle import BundleFile, Host, gathered, sources
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input
from costprobe.ui.cli.support.output import echo, echo_json

FILE_MODE: Final = 0o600
KIB: Final = 1 << 10


@click.group(cls=ExampleGroup)
def command() -> None:
    """Write a support bundle."""


@command.command(
    examples=(
        "costprobe debug bundle --list  # what a bundle would contain",
        "costprobe debug bundle bundle.tar.gz  # write it, to attach to an issue",
        "costprobe debug bundle -  # write it to standard output, such as a pipe",
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "--list", "only_list", is_flag=True, help="List what it would contain; write nothing."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print the list of files as JSON.")
@click.pass_obj
def bundle(
    config: str | None, *, file: Path | None, only_list: bool, force: bool, as_json: bool
) -> None:
    """Write the data needed to diagnose a fault to FILE (.tar.gz; "-": standard output), without secrets.

    Tokens, passwords, users and paths of addresses, arguments of commands and the environment are
    excluded. The contents are listed before the file is written; review it before you share it.
    """
    host = _host(config)
    target = file or Path(_default_name(host.time_ns))
    to_stdout = str(target) == "-" and not only_list
    if to_stdout and as_json:
        raise bad_input("--json prints to standard output, too; name a file")
    if not to_stdout and target.exists() and not force and not only_list:
        raise bad_input(f"{target}: already exists; name another, or replace it with --force")
    learn_secrets(None if isinstance(host.config, str) else host.config, os.environ)
    members = list(gathered(sources(host), REDACTOR))
    for source, content in [] if as_json else members:
        echo(f"{source.name:14} {_size(len(content)):>10}  {source.holds}", err=to_stdout)
    try:
        if to_stdout:
            _archive(members, host.time_ns, sys.stdout.buffer)
        elif not only_list:
            _write(target, members, host.time_ns, replace=force)
    except OSError as error:
        raise bad_input(f"{target}: cannot be written ({error.strerror})") from error
    if as_json:
        echo_json(_document(None if only_list else target, members))
    elif not only_list and not to_stdout:
        echo(f"{target}: written, readable by you only; check it before you send it")


def _host(config: str | None) -> Host:
    """Return the sources of the bundle, even if the configuration has errors."""
    now_ns = time.time_ns()
    try:
        settings = LoadedConfig(config)
    except click.ClickException as error:
        path = Path(config) if config else SYSTEM_PATH
        return Host(error.message, path, default_store(path), now_ns)
    return Host(settings.config, settings.path, settings.store_path, now_ns)


def _default_name(time_ns: int) -> str:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time_ns / 1e9))
    return f"costprobe-debug-{socket.gethostname()}-{moment}.tar.gz"


def _size(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < KIB else f"{size_bytes / KIB:.1f} KiB"


def _document(file: Path | None, members: Sequence[tuple[BundleFile, bytes]]) -> dict[str, Any]:
    return {
        "file": None if file is None else str(file),
        "members": [
            {"name": source.name, "size_bytes": len(content), "holds": source.holds}
            for source, content in members
        ],
    }


def _write(
    target: Path, members: Sequence[tuple[BundleFile, bytes]], time_ns: int, *, replace: bool
) -> None:
    """Write the archive; an incomplete file is deleted.

    Raises:
        OSError: It cannot be written, or already exists.
    """
    if replace:
        target.unlink(missing_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            _archive(members, time_ns, file)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _archive(members: Sequence[tuple[BundleFile, bytes]], time_ns: int, file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for source, content in members:
            entry = tarfile.TarInfo(f"costprobe-debug/{source.name}")
            entry.size, entry.mode, entry.mtime = len(content), FILE_MODE, time_ns // 10**9
            archive.addfile(entry, io.BytesIO(content))
