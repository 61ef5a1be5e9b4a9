"""The daemon's log: to the journal with its fields, else lines on stderr; repeats are counted."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock, Timer
from typing import Final, TextIO

from agent.journal import JOURNAL_SOCKET, Journal, Writer, is_journal, priority
from agent.redaction import Redactor, secrets_of
from agent.repeats import Entry, RepeatLimit

MESSAGE_CHARS_MAX: Final = 8192
# What is looked at for secrets; longer than a message, so that none is cut in two and missed.
REDACTED_CHARS_MAX: Final = 2 * MESSAGE_CHARS_MAX
REPEATS_EVERY_S: Final = 60.0
_PACKAGE: Final = "agent."
# All control characters but the line feed: an escape sequence of a server's answer must not reach
# a terminal.
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class Lines:
    """Writes messages as lines to a stream; the further lines of a message are indented.

    Args:
        stream: Where to.
        for_systemd: Whether it is read by systemd, which stamps the time itself and takes the
            level from the line's beginning (sd-daemon(3)); else both are written out.
    """

    def __init__(self, stream: TextIO, *, for_systemd: bool) -> None:
        self._stream = stream
        self._for_systemd = for_systemd

    def write(self, entry: Entry) -> None:
        """Writes a message; one that the stream does not take is lost."""
        name = logging.getLevelName(entry.level)
        if self._for_systemd:
            head, more = f"<{priority(entry.level)}>", f"<{priority(entry.level)}>    "
        else:
            moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time_s))
            head, more = f"{moment},{int(entry.time_s * 1000) % 1000:03d} ", "    "
        text = entry.text.replace("\n", f"\n{more}")
        try:
            self._stream.write(f"{head}{name} {entry.part}: {text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            # There is nowhere left to say so.
            return


class Log(logging.Handler):
    """Takes what the modules log: masks secrets, counts repeats of warnings and worse, writes.

    Args:
        writer: Where it goes.
        redactor: Masks secrets.
        repeats_every_s: How often the number of a message's repeats is told, in seconds.
        monotonic_s: Monotonic seconds.
    """

    def __init__(
        self,
        writer: Writer,
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
        """Writes a record, or counts it."""
        entry = self._entry(record)
        with self._mutex:
            self._tell_repeats()
            if record.levelno < logging.WARNING or self._limit.takes(
                f"{record.name}:{record.lineno}:{record.levelno}", entry, self._monotonic_s()
            ):
                self._writer.write(entry)
            elif self._timer is None:
                self._wake_later()

    def close(self) -> None:
        """Writes the counts that are left."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._tell_repeats(ends=True)
        super().close()

    def _tell_repeats(self, *, ends: bool = False) -> None:
        for entry in self._limit.due(self._monotonic_s(), ends=ends):
            self._writer.write(entry)

    def _wake_later(self) -> None:
        """Sees to it that counts are told also where nothing else is logged."""
        self._timer = Timer(self._every_s, self._wake)
        self._timer.daemon = True
        self._timer.name = "log repeats"
        self._timer.start()

    def _wake(self) -> None:
        with self._mutex:
            if self._timer is None:  # closed meanwhile
                return
            self._timer = None
            self._tell_repeats()
            if self._limit.is_counting:
                self._wake_later()

    def _entry(self, record: logging.LogRecord) -> Entry:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # Python's own way would print the arguments, of which nothing is masked.
            text = f"a message does not fit its arguments: {record.msg}"
        if record.exc_info:
            text += "\n" + self._tracebacks.formatException(record.exc_info)
        return Entry(
            time_s=record.created,
            level=record.levelno,
            part=record.name.removeprefix(_PACKAGE),
            text=_bounded(_CONTROL.sub(" ", self._redactor(text[:REDACTED_CHARS_MAX]))),
            file=record.pathname,
            line=record.lineno,
            function=record.funcName or "",
            thread=record.threadName or "",
        )


def _bounded(text: str) -> str:
    """The text, without its middle where it is too long: a traceback's end says the most."""
    if len(text) <= MESSAGE_CHARS_MAX:
        return text
    half = MESSAGE_CHARS_MAX // 2
    return f"{text[:half]} ... (cut) ... {text[-half:]}"


def start_logging(
    environ: Mapping[str, str], stderr: TextIO, journal_socket: Path = JOURNAL_SOCKET
) -> Log:
    """Logs news and worse of all modules from now on, in place of what logged before.

    Args:
        environ: The environment: JOURNAL_STREAM tells that stderr is the journal, and values of
            secret variables are masked.
        stderr: Where lines go otherwise.
        journal_socket: Where the journal listens.
    """
    writer: Writer
    if is_journal(environ.get("JOURNAL_STREAM", ""), stderr):
        writer = Journal(journal_socket, Lines(stderr, for_systemd=True))
    else:
        writer = Lines(stderr, for_systemd=False)
    log = Log(writer, Redactor(secrets_of(environ)))
    root = logging.getLogger()
    for before in list(root.handlers):
        root.removeHandler(before)
        before.close()
    root.addHandler(log)
    root.setLevel(logging.INFO)
    # What it warns of, runs that are skipped, the schedule says itself, by the job's name.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    return log
