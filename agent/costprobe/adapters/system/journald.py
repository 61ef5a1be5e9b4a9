"""systemd's journal by its native protocol: one datagram per message, with fields."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TextIO

from costprobe.adapters.system.log_rate_limit import LogEntry

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
# The longest wait for a busy journal: one that hangs must not block the daemon.
SEND_S: Final = 0.2
_IDENTIFIER: Final = "costprobe"
_LENGTH: Final = struct.Struct("<Q")
# Python's levels and those of syslog(3), most severe first.
_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7


class LogWriter(Protocol):
    """A destination of log messages."""

    def write(self, entry: LogEntry) -> None:
        """Write one message; never raises."""
        ...


def is_journal(journal_stream: str, stderr: TextIO) -> bool:
    """Return whether a stream is the journal, by JOURNAL_STREAM (systemd.exec(5)).

    Args:
        journal_stream: The variable's value: device and inode.
        stderr: The stream; it may have been redirected since systemd set the variable.
    """
    try:
        status = os.fstat(stderr.fileno())
    except (OSError, ValueError):
        return False
    return journal_stream == f"{status.st_dev}:{status.st_ino}"


def priority(level: int) -> int:
    """Return the level of syslog(3) for a level of `logging`."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def encoded(fields: Mapping[str, str]) -> bytes:
    """Encode fields in the journal's format: NAME=value, or a length prefix for multi-line values."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="backslashreplace")
        if b"\n" in value:
            parts += [name.encode(), b"\n", _LENGTH.pack(len(value)), value, b"\n"]
        else:
            parts += [name.encode(), b"=", value, b"\n"]
    return b"".join(parts)


def fields_of(entry: LogEntry) -> dict[str, str]:
    """Return a message as journal fields (systemd.journal-fields(7)); ours begin with COSTPROBE_."""
    fields = {
        "PRIORITY": str(priority(entry.level)),
        "SYSLOG_IDENTIFIER": _IDENTIFIER,
        "MESSAGE": entry.text,
        "COSTPROBE_PART": entry.part,
        "CODE_FILE": entry.file,
        "CODE_LINE": str(entry.line),
        "CODE_FUNC": entry.function,
        "THREAD_NAME": entry.thread,
    }
    if entry.repeated:
        fields["COSTPROBE_REPEATED"] = str(entry.repeated)
    return fields


class Journal:
    """Sends messages to the journal.

    Args:
        path: Its socket.
        otherwise: Writes messages that cannot be sent.

    Attributes:
        lost: Messages dropped because the journal was busy, since the last one that was sent; the
            next message reports the number.
    """

    def __init__(self, path: Path, otherwise: LogWriter) -> None:
        self._path = str(path)
        self._otherwise = otherwise
        self.lost = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SEND_S)

    def write(self, entry: LogEntry) -> None:
        """Send a message; while the journal is busy, messages are dropped and counted."""
        fields = fields_of(entry)
        if self.lost:
            fields["COSTPROBE_LOST"] = str(self.lost)
        try:
            self._socket.sendto(encoded(fields), self._path)
            self.lost = 0
        except (TimeoutError, BlockingIOError):
            self.lost += 1
        except OSError:
            self._otherwise.write(entry)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
