"""The daemon's log: to the journal with fields, or as lines to stderr; repetitions are counted.

Of repeated messages the first is logged, then the number of repetitions. The journal is written
by systemd's native protocol: one datagram per message, with fields.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sqlite3
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock, Timer
from typing import Final, NamedTuple, TextIO

from costprobe.adapters.host.redaction import REDACTOR, secrets_of
from costprobe.core.outside import OutsideError, one_line

KINDS_MAX: Final = 256
KINDS_A_TEMPLATE_MAX: Final = 16
# Numbers and hexadecimal ids, which differ between occurrences of the same message.
_VARYING: Final = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b|\d+(?:\.\d+)?")
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
MESSAGE_CHARS_MAX: Final = 8192
# Redacted before truncation: otherwise a secret could be cut in two and missed.
REDACTED_CHARS_MAX: Final = 2 * MESSAGE_CHARS_MAX
REPEATS_EVERY_S: Final = 60.0
_PACKAGE: Final = "costprobe."
_OUTSIDE: Final = (OutsideError, OSError, MemoryError, sqlite3.Error)


class LogEntry(NamedTuple):
    """A log message, ready to be written.

    Attributes:
        time_s: UTC seconds since 1970.
        level: As in `logging`.
        part: Module that logged it, relative to the package.
        text: Message, without secrets and control characters.
        file: Source file.
        line: Line in it.
        function: Function.
        thread: Name of the thread.
        repeated: Suppressed repetitions that it stands for; 0 for a message itself.
    """

    time_s: float
    level: int
    part: str
    text: str
    file: str
    line: int
    function: str
    thread: str
    repeated: int = 0


@dataclass(slots=True)
class _Kind:
    since_s: float
    last: LogEntry
    count: int = 0


class RepeatLimit:
    """Passes the first message of each kind, and counts the others.

    Messages are of one kind if they have the same template and differ only in numbers. A template
    with more than KINDS_A_TEMPLATE_MAX kinds, such as one that quotes a server, is a single kind
    from then on.

    Args:
        every_s: Interval at which counts are reported, in s; a kind without a message for this time
            is dropped.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._of_template: Counter[str] = Counter()

    @property
    def is_counting(self) -> bool:
        """Whether there are counts that are not reported yet."""
        return any(kind.count for kind in self._kinds.values())

    def takes(self, template: str, entry: LogEntry, now_s: float) -> bool:
        """Return whether to log a message; otherwise it is counted.

        Args:
            template: Identifies the statement that logs the message.
            entry: The message.
            now_s: Monotonic seconds.
        """
        key = (template, _VARYING.sub("#", entry.text))
        if key not in self._kinds and self._of_template[template] >= KINDS_A_TEMPLATE_MAX:
            key = (template, "")
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = ("", "")
        kind = self._kinds.get(key)
        if kind is None:
            self._kinds[key] = _Kind(now_s, entry)
            self._of_template[key[0]] += 1
            return True
        kind.count += 1
        kind.last = entry
        return False

    def due(self, now_s: float, *, ends: bool = False) -> list[LogEntry]:
        """Return the counts that are due, one entry for each kind.

        Args:
            now_s: Monotonic seconds.
            ends: Whether to return all counts, because the log is closed.
        """
        entries: list[LogEntry] = []
        for key, kind in list(self._kinds.items()):
            if not ends and now_s - kind.since_s < self._every_s:
                continue
            if kind.count:
                last, times = kind.last, "once" if kind.count == 1 else f"{kind.count} times"
                text = f"{last.text} ... repeated {times} in {now_s - kind.since_s:.0f} s"
                entries.append(last._replace(text=text, repeated=kind.count))
                kind.since_s, kind.count = now_s, 0
            else:
                del self._kinds[key]
                self._of_template[key[0]] -= 1
                if not self._of_template[key[0]]:
                    del self._of_template[key[0]]
        return entries


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

    def __init__(self, path: Path, otherwise: Lines) -> None:
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


class Lines:
    """Writes messages as lines to a stream; the further lines of a message are indented.

    Args:
        stream: The destination.
        for_systemd: True if systemd reads the stream: it adds the time itself and parses the level
            at the start of a line (sd-daemon(3)). Otherwise a line starts with its time, and with
            level and part from warnings on.
    """

    def __init__(self, stream: TextIO, *, for_systemd: bool) -> None:
        self._stream = stream
        self._for_systemd = for_systemd

    def write(self, entry: LogEntry) -> None:
        """Write a message; it is lost if the stream fails."""
        origin = f"{logging.getLevelName(entry.level)} {entry.part}: "
        if self._for_systemd:
            head = f"<{priority(entry.level)}>"
            continuation = f"{head}    "
        else:
            head, continuation = "", "    "
            origin = origin if entry.level >= logging.WARNING else ""
        text = entry.text.replace("\n", f"\n{continuation}")
        try:
            if not self._for_systemd:
                head = line_head(self._stream, entry.time_s)
            self._stream.write(f"{head}{origin}{text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            # There is no other place to report it.
            return


class Log(logging.Handler):
    """Masks secrets, counts repeated warnings and errors, and writes the rest.

    Args:
        writer: The destination.
        redactor: Masks secrets.
        repeats_every_s: How often the number of repetitions is logged, in s.
        monotonic_s: Monotonic seconds.
    """

    def __init__(
        self,
        writer: Journal | Lines,
        redactor: Callable[[str], str],
        repeats_every_s: float = REPEATS_EVERY_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._writer = writer
        self._redactor = redactor
        self._every_s = repeats_every_s
        self._monotonic_s = monotonic_s
        self._limit = RepeatLimit(repeats_every_s)
        self._timer: Timer | None = None
        self._mutex = RLock()
        self._tracebacks = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        entry = self._entry(record)
        with self._mutex:
            self._write_repeats()
            if record.levelno < logging.WARNING or self._limit.takes(
                f"{record.name}:{record.lineno}:{record.levelno}", entry, self._monotonic_s()
            ):
                self._writer.write(entry)
            elif self._timer is None:
                self._wake_later()

    def close(self) -> None:
        """Write the remaining counts."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._write_repeats(ends=True)
        super().close()

    def _write_repeats(self, *, ends: bool = False) -> None:
        for entry in self._limit.due(self._monotonic_s(), ends=ends):
            self._writer.write(entry)

    def _wake_later(self) -> None:
        """Log the counts after an interval also if nothing else is logged."""
        self._timer = Timer(self._every_s, self._wake)
        self._timer.daemon = True
        self._timer.name = "log repeats"
        self._timer.start()

    def _wake(self) -> None:
        with self._mutex:
            if self._timer is None:  # closed in the meantime
                return
            self._timer = None
            self._write_repeats()
            if self._limit.is_counting:
                self._wake_later()

    def _entry(self, record: logging.LogRecord) -> LogEntry:
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
            text += "\n" + self._tracebacks.formatException(record.exc_info)
        return LogEntry(
            time_s=record.created,
            level=record.levelno,
            part=record.name.removeprefix(_PACKAGE),
            text=_bounded(_printable(self._redactor(text[:REDACTED_CHARS_MAX]))),
            file=record.pathname,
            line=record.lineno,
            function=record.funcName or "",
            thread=record.threadName or "",
        )


def _printable(text: str) -> str:
    """Return a text whose lines are printable; the further ones are indented when written."""
    return "\n".join(map(one_line, text.split("\n")))


def _bounded(text: str) -> str:
    """Return a text, without its middle if it is too long: a traceback ends with the error."""
    if len(text) <= MESSAGE_CHARS_MAX:
        return text
    half = MESSAGE_CHARS_MAX // 2
    return f"{text[:half]} ... (cut) ... {text[-half:]}"


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
    writer: Journal | Lines
    if is_journal(environ.get("JOURNAL_STREAM", ""), stderr):
        writer = Journal(journal_socket, Lines(stderr, for_systemd=True))
    else:
        writer = Lines(stderr, for_systemd=False)
    REDACTOR.learn(*secrets_of(environ))
    log = Log(writer, REDACTOR)
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
