"""What `infercost debug bundle` gathers: enough to understand a host from afar, and no secret."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import agent
from agent.cli.bundle_secrets import without_addresses
from agent.cli.shown_config import shown
from agent.config import Config
from agent.config_file import as_toml_tables
from agent.model import NS_PER_S
from agent.storage.database import open_reader
from agent.storage.errors import StoreError
from agent.storage.reader import StoreReader

DOCTOR_S: Final = 180.0
JOURNAL_S: Final = 20.0
JOURNAL_LINES: Final = 2000
ROWS_S: Final = 86400
ROWS_MAX: Final = 20_000
# Of one file of the bundle; of a longer one its end is kept.
FILE_BYTES_MAX: Final = 8 << 20
SERVICE: Final = "infercost.service"
_SHOWN_STATES: Final = ("status", "alerts")
_ROWS_OF: Final = ("agent", "event", "alert")
_END_OF_TIME_NS: Final = 2**63 - 1


class Source(NamedTuple):
    """One file of a bundle.

    Attributes:
        name: Its name there.
        holds: What it holds, for the operator who decides whether to send it.
        read: Reads it; what it raises of OSError, ValueError and StoreError goes in its place.
    """

    name: str
    holds: str
    read: Callable[[], str]


class Host(NamedTuple):
    """What a bundle is made of.

    Attributes:
        config: The configuration; its errors where it cannot be used.
        config_path: The file; None in a try-out.
        store: The store.
        time_ns: UTC ns of now.
    """

    config: Config | str
    config_path: Path | None
    store: Path
    time_ns: int


def sources(host: Host) -> list[Source]:
    """The files of a bundle, in the order in which they are listed."""
    since_ns = host.time_ns - ROWS_S * NS_PER_S
    rows = [
        Source(
            f"{name}.lp",
            f"rows of the series {name}, the last 24 h",
            lambda name=name: _rows(host.store, name, since_ns),  # type: ignore[misc]
        )
        for name in _ROWS_OF
    ]
    return [
        Source("versions.json", "versions of infercost, Python, the system", _versions),
        Source(
            "config.toml", "the configuration; secrets are names of files", lambda: _config(host)
        ),
        Source("status.json", "what the daemon last said of itself", lambda: _states(host.store)),
        Source("doctor.txt", "infercost doctor", lambda: _doctor(host.config_path)),
        Source(
            "store.json", "the store's schema, and sizes of its tables", lambda: _store(host.store)
        ),
        Source("journal.txt", f"the last {JOURNAL_LINES} lines of the log", _journal),
        *rows,
    ]


def gathered(
    wanted: Iterable[Source], redacted: Callable[[str], str]
) -> Iterator[tuple[Source, bytes]]:
    """The files' content without secrets; a reason in the place of what cannot be read.

    Args:
        wanted: The files.
        redacted: Masks secrets in a text.
    """
    for source in wanted:
        try:
            text = source.read()
        except (OSError, ValueError, StoreError, sqlite3.Error) as error:
            text = f"not available: {error}\n"
        content = without_addresses(redacted(text)).encode(errors="replace")
        if len(content) > FILE_BYTES_MAX:
            content = content[-FILE_BYTES_MAX:].partition(b"\n")[2]
        yield source, content


def _versions() -> str:
    driver = Path("/proc/driver/nvidia/version")
    found = {
        "infercost": agent.__version__,
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "sqlite": sqlite3.sqlite_version,
        "logical_cpus": os.cpu_count(),
        "nvidia_driver": driver.read_text()[:500] if driver.exists() else None,
        "packages": {
            found.metadata["Name"]: found.version
            for found in sorted(metadata.distributions(), key=lambda each: each.metadata["Name"])
        },
    }
    return _json(found)


def _config(host: Host) -> str:
    import tomli_w  # noqa: PLC0415 - only this command and `config show` write TOML

    if isinstance(host.config, str):
        return f"# cannot be used\n{host.config}\n"
    head = f"# {host.config_path or 'no file: the try-out'}; store: {host.store}\n"
    return head + tomli_w.dumps(shown(as_toml_tables(host.config)))


def _states(store: Path) -> str:
    with closing(StoreReader.open(store)) as reader:
        states = reader.states()
        sinks = [status._asdict() for status in reader.sinks()]
    told = {
        name: {"written_ns": states[name][1], "document": shown(states[name][0])}
        for name in _SHOWN_STATES
        if name in states
    }
    return _json({**told, "sinks": sinks})


def _doctor(config_path: Path | None) -> str:
    """The doctor in a process of its own: what hangs or crashes it must not take the bundle along."""
    named = [] if config_path is None else ["--config", str(config_path.absolute())]
    command = [sys.executable, "-m", "agent", *named, "doctor"]
    # Modules are looked for in the working directory first.
    return _output(command, DOCTOR_S, Path(agent.__file__).parents[1])


def _journal() -> str:
    if shutil.which("journalctl") is None:
        return "not available: there is no journalctl here\n"
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
        return f"not available: no end within {timeout_s:.0f} s\n"
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
        found = {
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
                what: _one(connection, f"PRAGMA {what}")
                for what in ("page_size", "page_count", "freelist_count")
            },
            "series": dict(
                connection.execute("SELECT measurement, count(*) FROM series GROUP BY measurement")
            ),
            "table_bytes": _table_bytes(connection),
        }
    return _json(found)


def _table_bytes(connection: sqlite3.Connection) -> Mapping[str, int] | None:
    """Bytes by table and index, where this SQLite was built to tell."""
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
        for line in reader.lines(since_ns, _END_OF_TIME_NS, measurement):
            count += 1
            kept.append(line)
    head = f"# the newest {len(kept)} of {count} rows\n"
    return head + "".join(f"{line}\n" for line in kept)


def _json(document: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"
