"""The daemon's log: to the journal with fields, or as lines to stderr; repetitions are counted.

Of repeated messages the first is logged, then the number of repetitions. The journal is written
by systemd's native protocol: one datagram per message, with fields.
"""

from __future__ import annotations

import copy
import logging
import os
import re
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from costprobe.adapters.host.redaction import REDACTOR, secrets_of
from costprobe.core.outside import OutsideError, one_line

KINDS_A_TEMPLATE_MAX: Final = 16
# Numbers and hexadecimal ids, which differ between occurrences of the same message; not those of a name: gpu7.
_VARYING: Final = re.compile(
    r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|(?<![a-zA-Z\d])\d+(?:\.\d+)?"
)
JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
# The longest wait for a busy journal: one that hangs must not block the daemon.
SEND_S: Final = 0.2
_LENGTH: Final = struct.Struct("<Q")
# The levels of syslog(3) by Python's.
_PRIORITIES: Final = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}
_DEBUG: Final = 7
MESSAGE_CHARS_MAX: Final = 8192
# Redacted before truncation: otherwise a secret could be cut in two and missed.
REDACTED_CHARS_MAX: Final = 2 * MESSAGE_CHARS_MAX
REPEATS_EVERY_S: Final = 60.0
_PACKAGE: Final = "costprobe."
_OUTSIDE: Final = (OutsideError, OSError, MemoryError, sqlite3.Error)


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


def line_head(stream: TextIO, time_s: float) -> str:
    """Return the start of a line: the local time, with the date in a file; empty in the journal.

    Args:
        stream: The destination of the line.
        time_s: UTC in s.
    """
    if is_journal(os.environ.get("JOURNAL_STREAM", ""), stream):
        return ""
    form = "%H:%M:%S  " if stream.isatty() else "%Y-%m-%d %H:%M:%S  "
    return time.strftime(form, time.localtime(time_s))


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


@dataclass(slots=True)
class _Kind:
    """Messages of the same statement that differ only in numbers: since when, the last one, how many."""

    since_s: float
    last: logging.LogRecord
    count: int = 0


class Log(logging.Handler):
    """Masks secrets, counts repeated warnings and errors, and writes the rest.

    A statement with more than KINDS_A_TEMPLATE_MAX kinds of messages, such as one that quotes a server,
    has a single kind from then on.

    Args:
        stream: The destination of lines; a line starts with its time, and with level and part from
            warnings on.
        redactor: Masks secrets.
        journal: The journal's socket, if the stream is the journal: what cannot be sent to it is then
            written as lines, to which systemd adds the time, and whose start it parses as the level
            (sd-daemon(3)).
        monotonic_s: Monotonic seconds.

    Attributes:
        lost: Messages dropped because the journal was busy, since the last one that was sent; the
            next message reports the number.
    """

    def __init__(
        self,
        stream: TextIO,
        redactor: Callable[[str], str],
        journal: Path | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._redactor = redactor
        self._monotonic_s = monotonic_s
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._journal = journal
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SEND_S)
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it; counts that are due are written before the next record."""
        # Without its arguments and frames, which would stay in memory.
        entry = copy.copy(record)
        entry.msg, entry.args, entry.exc_info = self._text(record), (), None
        self._write_repeats()
        if record.levelno < logging.WARNING or self._is_first(entry):
            self._write(entry)

    def close(self) -> None:
        """Write the remaining counts."""
        self.acquire()
        try:
            self._write_repeats(ends=True)
            self._socket.close()
        finally:
            self.release()
        super().close()

    def _is_first(self, entry: logging.LogRecord) -> bool:
        """Return whether a message is the first of its kind; otherwise it is counted."""
        template = f"{entry.name}:{entry.lineno}:{entry.levelno}"
        key = (template, _VARYING.sub("#", entry.msg))
        if key not in self._kinds:
            of_template = sum(known == template for known, _ in self._kinds)
            key = (template, "") if of_template >= KINDS_A_TEMPLATE_MAX else key
        kind = self._kinds.get(key)
        if kind is None:
            self._kinds[key] = _Kind(self._monotonic_s(), entry)
            return True
        kind.count, kind.last = kind.count + 1, entry
        return False

    def _write_repeats(self, *, ends: bool = False) -> None:
        """Write the counts that are due, all if the log ends, and forget kinds without a repetition."""
        now_s = self._monotonic_s()
        for key, kind in list(self._kinds.items()):
            took_s = now_s - kind.since_s
            if took_s < REPEATS_EVERY_S and not ends:
                continue
            if kind.count:
                times = "once" if kind.count == 1 else f"{kind.count} times"
                self._write(kind.last, f" ... repeated {times} in {took_s:.0f} s", kind.count)
                kind.since_s, kind.count = now_s, 0
            else:
                del self._kinds[key]

    def _text(self, record: logging.LogRecord) -> str:
        """Return the message, without secrets and control characters."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # logging.raiseExceptions would print the arguments, without masking secrets.
            text = f"a message does not fit its arguments: {record.msg}"
        error = record.exc_info[1] if record.exc_info else None
        is_of_library = not record.name.startswith(_PACKAGE) and record.levelno < logging.ERROR
        if isinstance(error, _OUTSIDE) or (error is not None and is_of_library):
            # A disk or a server failed, or a library warns of an answer that it cannot read: where
            # in the program is of no use.
            text += f": {type(error).__name__}: {error}"
        elif record.exc_info and error is not None:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        lines = self._redactor(text[:REDACTED_CHARS_MAX]).split("\n")
        text = "\n".join(map(one_line, lines))
        # Without its middle: a traceback ends with the error.
        half = MESSAGE_CHARS_MAX // 2
        is_long = len(text) > MESSAGE_CHARS_MAX
        return f"{text[:half]} ... (cut) ... {text[-half:]}" if is_long else text

    def _write(self, entry: logging.LogRecord, more: str = "", repeated: int = 0) -> None:
        """Write a message; it is lost if the stream fails."""
        text, part = f"{entry.msg}{more}", entry.name.removeprefix(_PACKAGE)
        priority = _PRIORITIES.get(entry.levelno, _DEBUG)
        origin, head = f"{entry.levelname} {part}: ", f"<{priority}>"
        if self._journal is not None:
            fields = {
                "PRIORITY": str(priority),
                "SYSLOG_IDENTIFIER": "costprobe",
                "MESSAGE": text,
                "COSTPROBE_PART": part,
                "CODE_FILE": entry.pathname,
                "CODE_LINE": str(entry.lineno),
                "CODE_FUNC": entry.funcName or "",
                "THREAD_NAME": entry.threadName or "",
                "COSTPROBE_REPEATED": str(repeated or ""),
                "COSTPROBE_LOST": str(self.lost or ""),
            }
            if self._is_sent({name: value for name, value in fields.items() if value}):
                return
        try:
            further = f"\n{head if self._journal else ''}    "
            if self._journal is None:
                head = line_head(self._stream, entry.created)
                origin = origin if entry.levelno >= logging.WARNING else ""
            self._stream.write(head + origin + text.replace("\n", further) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # There is no other place to report it.
            return

    def _is_sent(self, fields: Mapping[str, str]) -> bool:
        """Send a message to the journal; while it is busy, messages are dropped and counted."""
        try:
            self._socket.sendto(encoded(fields), str(self._journal))
            self.lost = 0
        except (TimeoutError, BlockingIOError):
            self.lost += 1
        except OSError:
            return False
        return True


def start_logging(
    environ: Mapping[str, str], stderr: TextIO, journal_socket: Path = JOURNAL_SOCKET
) -> Log:
    """Log INFO and above of all modules; replace existing handlers.

    Args:
        environ: The environment: JOURNAL_STREAM identifies a stderr that is the journal, and the
            values of secret variables are masked.
        stderr: The destination of lines otherwise.
        journal_socket: The journal's socket.
    """
    REDACTOR.learn(*secrets_of(environ))
    journal = journal_socket if is_journal(environ.get("JOURNAL_STREAM", ""), stderr) else None
    log = Log(stderr, REDACTOR, journal)
    root = logging.getLogger()
    for before in list(root.handlers):
        root.removeHandler(before)
        before.close()
    root.addHandler(log)
    root.setLevel(logging.INFO)
    log_ended_threads()
    quiet_libraries()
    return log


def quiet_libraries() -> None:
    """Log no warnings of libraries: the program reports the same faults in its own words."""
    # Skipped runs, which the schedule logs by the name of the job.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    # Malformed headers, with the URL and a traceback; influxdb-client resets the level of "urllib3".
    for name in ("urllib3.connection", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)


def log_ended_threads() -> None:
    """Log errors that end a thread; Python would write them to stderr, past the filters."""

    def log(ended: threading.ExceptHookArgs) -> None:
        error = ended.exc_value
        if error is not None and not isinstance(error, SystemExit):
            name = ended.thread.name if ended.thread is not None else "?"
            logging.getLogger(__name__).error("thread %s has ended", name, exc_info=error)

    threading.excepthook = log
