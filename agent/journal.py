"""systemd's journal by its native protocol: a message with fields, in one datagram."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TextIO

from agent.repeats import Entry

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
# A journal that is busy is waited for; one that hangs must not hold the daemon.
SEND_S: Final = 0.2
_IDENTIFIER: Final = "infercost"
_LENGTH: Final = struct.Struct("<Q")
# syslog(3): the least serious level first that a message reaches.
_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7


class Writer(Protocol):
    """Where messages go; writes one, whatever happens, and never raises."""

    def write(self, entry: Entry) -> None:
        """Writes one message."""
        ...


def is_journal(journal_stream: str, stderr: TextIO) -> bool:
    """Whether a stream is the journal, as systemd says in JOURNAL_STREAM (systemd.exec(5)).

    Args:
        journal_stream: The variable's value: device and inode.
        stderr: The stream; the variable is inherited also where it was redirected since.
    """
    try:
        found = os.fstat(stderr.fileno())
    except (OSError, ValueError):
        return False
    return journal_stream == f"{found.st_dev}:{found.st_ino}"


def priority(level: int) -> int:
    """The level of syslog(3) for one of `logging`."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def encoded(fields: Mapping[str, str]) -> bytes:
    """Fields as the journal takes them: a line each, with its length where a value has several."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="backslashreplace")
        if b"\n" in value:
            parts += [name.encode(), b"\n", _LENGTH.pack(len(value)), value, b"\n"]
        else:
            parts += [name.encode(), b"=", value, b"\n"]
    return b"".join(parts)


def fields_of(entry: Entry) -> dict[str, str]:
    """A message as fields (systemd.journal-fields(7)); our own begin with INFERCOST_."""
    fields = {
        "PRIORITY": str(priority(entry.level)),
        "SYSLOG_IDENTIFIER": _IDENTIFIER,
        "MESSAGE": entry.text,
        "INFERCOST_PART": entry.part,
        "CODE_FILE": entry.file,
        "CODE_LINE": str(entry.line),
        "CODE_FUNC": entry.function,
        "THREAD_NAME": entry.thread,
    }
    if entry.repeated:
        fields["INFERCOST_REPEATED"] = str(entry.repeated)
    return fields


class Journal:
    """Sends messages to the journal.

    Args:
        path: Its socket.
        otherwise: Where a message goes that it cannot be sent.

    Attributes:
        lost: Messages that the journal had no room for since it last took one, which says so.
    """

    def __init__(self, path: Path, otherwise: Writer) -> None:
        self._path = str(path)
        self._otherwise = otherwise
        self.lost = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SEND_S)

    def write(self, entry: Entry) -> None:
        """Sends a message; one that the journal has no room for is lost and counted."""
        fields = fields_of(entry)
        if self.lost:
            fields["INFERCOST_LOST"] = str(self.lost)
        try:
            self._socket.sendto(encoded(fields), self._path)
            self.lost = 0
        except (TimeoutError, BlockingIOError):
            self.lost += 1
        except OSError:
            self._otherwise.write(entry)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
