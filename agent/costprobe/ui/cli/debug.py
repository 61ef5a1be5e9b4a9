"""`costprobe debug`: a support bundle."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import click

import costprobe
from costprobe.adapters.host.redaction import MASK, REDACTOR
from costprobe.adapters.http.access import learn_secrets
from costprobe.adapters.store.database import StoreError, open_reader
from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import Config
from costprobe.core.config.load import as_toml_tables
from costprobe.core.config.location import SYSTEM_PATH, default_store
from costprobe.core.records import END_OF_TIME_NS, NS_PER_S
from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.config_sample import shown
from costprobe.ui.cli.support.fitting import terminal_columns
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import Settings, bad_input
from costprobe.ui.tables import Table

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
@click.pass_obj
def bundle(config: str | None, *, file: Path | None, only_list: bool) -> None:
    """Write the data needed to diagnose a fault to FILE (.tar.gz; "-": standard output), without secrets.

    Tokens, passwords, users and paths of addresses, arguments of commands and the environment are
    excluded. The contents are listed before the file is written; review it before you share it.
    """
    host = _host(config)
    target = file or Path(_default_name(host.time_ns))
    to_stdout = str(target) == "-" and not only_list
    if not to_stdout and target.exists() and not only_list:
        raise bad_input(f"{target}: already exists; name another")
    learn_secrets(None if isinstance(host.config, str) else host.config)
    members = list(gathered(sources(host), REDACTOR))
    rows = [(source.name, _size(len(content)), source.holds) for source, content in members]
    for line in Table(("file", "size", "holds"), rows, 3).lines(terminal_columns(err=to_stdout)):
        echo(line, err=to_stdout)
    try:
        if to_stdout:
            _archive(members, host.time_ns, sys.stdout.buffer)
        elif not only_list:
            _write(target, members, host.time_ns)
    except OSError as error:
        raise bad_input(f"{target}: cannot be written ({error.strerror})") from error
    if not only_list and not to_stdout:
        echo(f"{target}: written, readable by you only; check it before you send it")


def _host(config: str | None) -> Host:
    """Return the sources of the bundle, even if the configuration has errors."""
    now_ns = time.time_ns()
    try:
        settings = Settings(config)
        settings.check()
    except click.ClickException as error:
        path = Path(config) if config else SYSTEM_PATH
        return Host(error.message, path, default_store(path), now_ns)
    return Host(settings.config, settings.path, settings.store_path, now_ns)


def _default_name(time_ns: int) -> str:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time_ns / 1e9))
    return f"costprobe-debug-{socket.gethostname()}-{moment}.tar.gz"


def _size(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < KIB else f"{size_bytes / KIB:.1f} KiB"


def _write(target: Path, members: Sequence[tuple[BundleFile, bytes]], time_ns: int) -> None:
    """Write the archive; an incomplete file is deleted.

    Raises:
        OSError: It cannot be written, or already exists.
    """
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


DOCTOR_S: Final = 180.0
JOURNAL_S: Final = 20.0
JOURNAL_LINES: Final = 2000
ROWS_S: Final = 86400
ROWS_MAX: Final = 20_000
# Limit of one file of the bundle; only the end of a longer one is kept.
FILE_BYTES_MAX: Final = 8 << 20
SERVICE: Final = "costprobe.service"
_SHOWN_STATES: Final = ("status", "alerts")
_ROWS_OF: Final = ("agent", "event", "alert")


class BundleFile(NamedTuple):
    """One file of a bundle.

    Attributes:
        name: Name in the archive.
        holds: Description of the content, for the operator.
        read: Returns the text; an OSError, ValueError or StoreError replaces it.
    """

    name: str
    holds: str
    read: Callable[[], str]


class Host(NamedTuple):
    """The sources of a bundle.

    Attributes:
        config: The configuration; its errors if it has any.
        config_path: The file; None in demo mode.
        store: The store.
        time_ns: Current UTC in ns.
    """

    config: Config | str
    config_path: Path | None
    store: Path
    time_ns: int


def sources(host: Host) -> list[BundleFile]:
    """Return the files of a bundle, in listing order."""
    since_ns = host.time_ns - ROWS_S * NS_PER_S
    rows = [
        BundleFile(
            f"{name}.lp",
            f"rows of the series {name}, the last 24 h",
            lambda name=name: _rows(host.store, name, since_ns),  # type: ignore[misc]
        )
        for name in _ROWS_OF
    ]
    return [
        BundleFile("versions.json", "versions of costprobe, Python, the system", _versions),
        BundleFile(
            "config.toml",
            "the configuration; secrets appear as file names only",
            lambda: _config(host),
        ),
        BundleFile("status.json", "the daemon's last status", lambda: _states(host.store)),
        BundleFile("doctor.txt", "costprobe doctor", lambda: _doctor(host.config_path)),
        BundleFile(
            "store.json", "the store's schema, and sizes of its tables", lambda: _store(host.store)
        ),
        BundleFile("journal.txt", f"the last {JOURNAL_LINES} lines of the log", _journal),
        *rows,
    ]


def gathered(
    files: Iterable[BundleFile], redacted: Callable[[str], str]
) -> Iterator[tuple[BundleFile, bytes]]:
    """Yield the files without secrets; a file that cannot be read contains the reason.

    Args:
        files: The files of the bundle.
        redacted: Masks secrets in a text.
    """
    for source in files:
        try:
            text = source.read()
        except (OSError, ValueError, StoreError, sqlite3.Error) as error:
            text = f"not available: {error}\n"
        content = without_addresses(redacted(text)).encode(errors="replace")
        if len(content) > FILE_BYTES_MAX:
            content = content[-FILE_BYTES_MAX:].partition(b"\n")[2]
        yield source, content


def _versions() -> str:
    drivers = {
        "nvidia_driver": Path("/proc/driver/nvidia/version"),
        "amdgpu_driver": Path("/sys/module/amdgpu/version"),
    }
    versions = {
        "costprobe": costprobe.__version__,
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "sqlite": sqlite3.sqlite_version,
        "logical_cpus": os.cpu_count(),
        **{
            name: path.read_text()[:500] if path.exists() else None
            for name, path in drivers.items()
        },
        "packages": {
            versions.metadata["Name"]: versions.version
            for versions in sorted(
                metadata.distributions(), key=lambda distribution: distribution.metadata["Name"]
            )
        },
    }
    return _json(versions)


def _config(host: Host) -> str:
    import tomli_w  # noqa: PLC0415 - only this command and `config show` write TOML

    if isinstance(host.config, str):
        return f"# cannot be used\n{host.config}\n"
    head = f"# {host.config_path or 'no file: demo mode'}; store: {host.store}\n"
    return head + tomli_w.dumps(shown(as_toml_tables(host.config)))


def _states(store: Path) -> str:
    with closing(StoreReader.open(store)) as reader:
        states = reader.states()
        sinks = [status._asdict() for status in reader.sinks()]
    documents = {
        name: {"written_ns": states[name][1], "document": shown(states[name][0])}
        for name in _SHOWN_STATES
        if name in states
    }
    return _json({**documents, "sinks": sinks})


def _doctor(config_path: Path | None) -> str:
    """Run the doctor in a child process: a hang or crash must not stop the bundle."""
    config_option = [] if config_path is None else ["--config", str(config_path.absolute())]
    command = [sys.executable, "-m", "costprobe", *config_option, "doctor"]
    # Python would import modules from the working directory first.
    return _output(command, DOCTOR_S, Path(costprobe.__file__).parents[1])


def _journal() -> str:
    if shutil.which("journalctl") is None:
        return "not available: journalctl is not installed\n"
    command = ["journalctl", "--unit", SERVICE, "--lines", str(JOURNAL_LINES)]
    return _output(
        [*command, "--no-pager", "--quiet", "--output", "short-iso"], JOURNAL_S, Path("/")
    )


def _output(command: list[str], timeout_s: float, folder: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own command line, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        return f"not available: not finished within {timeout_s:.0f} s\n"
    return f"{done.stdout.decode(errors='replace')}exit code {done.returncode}\n"


def _store(store: Path) -> str:
    with closing(open_reader(store)) as database, database.reading("describe") as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        tables = {name: _one(connection, f'SELECT count(*) FROM "{name}"') for name in names}  # noqa: S608 - names of the schema's own tables
        contents = {
            "path": str(store),
            "files": {
                file.name: file.stat().st_size
                for file in sorted(store.parent.glob(f"{store.name}*"))
            },
            "migrations": [
                name
                for (name,) in connection.execute("SELECT name FROM migrations ORDER BY position")
            ],
            "rows": tables,
            "pages": {
                pragma: _one(connection, f"PRAGMA {pragma}")
                for pragma in ("page_size", "page_count", "freelist_count")
            },
            "series": dict(
                connection.execute("SELECT measurement, count(*) FROM series GROUP BY measurement")
            ),
            "table_bytes": _table_bytes(connection),
        }
    return _json(contents)


def _table_bytes(connection: sqlite3.Connection) -> Mapping[str, int] | None:
    """Return bytes by table and index; None if this SQLite has no dbstat."""
    try:
        return dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))
    except sqlite3.OperationalError:
        return None


def _one(connection: sqlite3.Connection, sql: str) -> int:
    (value,) = connection.execute(sql).fetchone()
    return int(value)


def _rows(store: Path, measurement: str, since_ns: int) -> str:
    with closing(StoreReader.open(store)) as reader:
        count, kept = 0, deque[str](maxlen=ROWS_MAX)
        for line in reader.lines(since_ns, END_OF_TIME_NS, measurement):
            count += 1
            kept.append(line)
    head = f"# the newest {len(kept)} of {count} rows\n"
    return head + "".join(f"{line}\n" for line in kept)


def _json(document: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"


_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,30}://[^\s\"'<>\\,;)]+", re.IGNORECASE)


def without_addresses(text: str) -> str:
    """Cut each address in a text after its port, because services put secrets into paths."""
    return _URL.sub(lambda match: _bare(match[0]), text)


def _bare(url: str) -> str:
    """Return scheme, host and port of an address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return MASK
    place = f"[{host}]" if ":" in host else host
    masked_path = f"/{MASK}" if parts.path not in {"", "/"} or parts.query or parts.fragment else ""
    return urlunsplit((parts.scheme, f"{place}:{port}" if port else place, masked_path, "", ""))
