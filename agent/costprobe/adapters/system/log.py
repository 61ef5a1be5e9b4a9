"""The daemon's log: to the journal with fields, or as lines to stderr; repetitions are counted."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock, Timer
from typing import Final, TextIO

from costprobe.adapters.system.journald import (
    JOURNAL_SOCKET,
    Journal,
    LogWriter,
    is_journal,
    priority,
)
from costprobe.adapters.system.log_rate_limit import LogEntry, RepeatLimit
from costprobe.adapters.system.redaction import REDACTOR, secrets_of
from costprobe.core.outside_error import OutsideError
from costprobe.core.printable import one_line

MESSAGE_CHARS_MAX: Final = 8192
# Redacted before truncation: otherwise a secret could be cut in two and missed.
REDACTED_CHARS_MAX: Final = 2 * MESSAGE_CHARS_MAX
REPEATS_EVERY_S: Final = 60.0
_PACKAGE: Final = "costprobe."
_OUTSIDE: Final = (OutsideError, OSError, MemoryError, sqlite3.Error)


def line_time(stream: TextIO, time_s: float) -> str:
    """Return the local time at the start of a line: without a date on a terminal, with it in a file.

    Args:
        stream: The destination of the line.
        time_s: UTC in s.
    """
    form = "%H:%M:%S" if stream.isatty() else "%Y-%m-%d %H:%M:%S"
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
                head = f"{line_time(self._stream, entry.time_s)}  "
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
        writer: LogWriter,
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
    writer: LogWriter
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
