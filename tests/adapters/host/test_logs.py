"""The daemon's log: journal and terminal, the limit of repeats, and redaction."""

import io
import logging
import os
import re
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time

import pytest
from costprobe.adapters.host.log import (
    KINDS_A_TEMPLATE_MAX,
    MESSAGE_CHARS_MAX,
    Log,
    encoded,
    line_head,
    log_ended_threads,
)
from costprobe.adapters.host.redaction import Redactor, secrets_of
from costprobe.adapters.http.errors import RetryLater
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes


class Kept(io.StringIO):
    """A stream whose lines are read as messages."""

    HEAD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  (?:[A-Z]+ [\w.]*: )?", re.MULTILINE)

    @property
    def texts(self):
        return [text.removesuffix("\n") for text in self.HEAD.split(self.getvalue())[1:]]

    @property
    def total(self):
        """Number of messages, repetitions included."""
        repeated = [re.search(r" repeated (once|\d+ times) in \d+ s$", text) for text in self.texts]
        return sum(int(r[1].replace("once", "1").split()[0]) if r else 1 for r in repeated)


class Seconds:
    """A monotonic clock that stands until it is moved."""

    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def logger(kept, seconds):
    """A logger of its own whose log is kept, and whose minutes are moved by hand."""
    log = Log(kept, Redactor(["canary-1234"]), None, seconds)
    made = logging.Logger("costprobe.delivery.loop")  # noqa: LOG001 - one that no other test shares
    made.addHandler(log)
    yield made
    log.close()


def complain(logger, *arguments):
    logger.error("sink %s: %s", *arguments)


def test_first_message_is_logged_and_repeats_are_counted_until_a_quiet_minute(
    logger, kept, seconds
):
    refused = "sink influxdb: connection refused"
    for count, words in ((241, "240 times"), (1, "once")):
        for _ in range(count):
            complain(logger, "influxdb", "connection refused")
        seconds.now_s += 60
        logger.info("then %s", words)
        assert kept.texts[-2:] == [f"{refused} ... repeated {words} in 60 s", f"then {words}"]
    assert "ERROR delivery.loop: sink influxdb: connection refused ... rep" in kept.getvalue()
    seconds.now_s += 61
    complain(logger, "influxdb", "connection refused")
    assert (kept.texts[0], kept.texts[5:]) == (refused, [refused])


def test_numbers_do_not_distinguish_messages_and_names_do(logger, kept):
    for name, text, count in (
        ("influxdb", "3.5 s late, run 0123abcd-0001", 1),
        ("influxdb", "14 s late, run 9876ffff-0002", 1),
        ("victoria", "3.5 s late, run 0123abcd-0001", 2),
        ("victoria", "gpu3 is hot", 3),
        ("victoria", "gpu12 is hot", 4),
    ):
        complain(logger, name, text)
        assert len(kept.texts) == count, text


def test_statement_with_ever_new_texts_is_limited(logger, kept, seconds):
    for word in range(5000):
        complain(logger, "influxdb", "".join(chr(97 + int(digit)) for digit in str(word)))
    assert len(kept.texts) <= KINDS_A_TEMPLATE_MAX + 1
    seconds.now_s += 60
    logger.info("x")
    assert kept.total == 5000 + 1


@given(st.lists(st.tuples(st.integers(0, 9), st.text("abc", max_size=3)), max_size=400))
def test_every_message_is_counted(messages):
    kept, seconds = Kept(), Seconds()
    log = Log(kept, str, None, seconds)
    for line, text in messages:
        seconds.now_s += 1
        values = {"name": "x", "levelno": logging.ERROR, "lineno": line, "msg": text}
        log.handle(logging.makeLogRecord(values))
    log.close()
    assert kept.total == len(messages)


def test_secrets_and_control_characters_are_not_written(logger, kept):
    logger.warning(
        "answer: %s", "\x1b[2Jcanary-1234\x07 http://u:hunter2@h/ Authorization: Token abc"
    )
    (text,) = kept.texts
    assert not [word for word in ("canary", "hunter2", "abc", "\x1b", "\x07") if word in text]
    assert "http://[redacted]@h/" in text


def test_traceback_is_masked_and_bounded(logger, kept):
    try:
        int("canary-1234" + "x" * 100_000 + " the end")
    except ValueError:
        logger.exception("job failed")
    (text,) = kept.texts
    assert text.startswith("job failed\n    Traceback")
    assert "canary" not in text
    assert len(text) < MESSAGE_CHARS_MAX + 100


def test_failed_disk_or_server_and_warning_of_a_library_are_one_line_without_a_traceback(kept):
    """As urllib3's of headers that it cannot parse; an error of the program keeps its traceback."""
    log = Log(kept, Redactor(()))
    defect = UserWarning("[MissingHeaderBodySeparatorDefect()]")
    for name, error, lines in (
        ("urllib3.connection", defect, 1),
        ("costprobe.daemon.x", defect, 2),
        ("costprobe.daemon.x", OSError(28, "No space left"), 1),
        ("costprobe.daemon.x", RetryLater("no response"), 1),
        ("costprobe.daemon.x", sqlite3.Error("full"), 1),
    ):
        values = {"name": name, "levelno": logging.WARNING, "msg": f"{error!r} of {name}"}
        log.handle(logging.makeLogRecord({**values, "exc_info": (type(error), error, None)}))
        assert len(kept.texts[-1].splitlines()) == lines, (name, error)
    assert kept.texts[2].endswith("x: OSError: [Errno 28] No space left")
    log.close()


def test_error_that_ends_a_thread_is_logged(caplog):
    started = threading.excepthook
    log_ended_threads()
    try:
        thread = threading.Thread(target=lambda: int("x"), name="reader")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = started
    (record,) = caplog.records
    assert record.getMessage() == "thread reader has ended"
    assert isinstance(record.exc_info[1], ValueError)


def test_message_with_wrong_arguments_is_logged_without_them(logger, kept):
    logger.info("%d of %d", "canary-1234")  # noqa: PLE1206 - the mistake that is looked at
    assert kept.texts == ["a message does not fit its arguments: %d of %d"]


def test_secret_patterns_are_masked_and_ordinary_text_is_not():
    check_outcomes("masked_texts.json", Redactor())


def test_secret_variables_are_recognized_by_name():
    secret = {"INFLUX_TOKEN": "canary-one", "DB_PASSWORD": "canary-two", "API_KEY": "canary-three"}
    ordinary = {
        "PATH": "/usr/bin:/usr/local/bin",
        "GIT_AUTHOR_NAME": "somebody else",
        "CREDENTIALS_DIRECTORY": "/run/credentials/costprobe.service",
        "TOKEN_FILE": "/etc/costprobe/token",
        "USE_TOKEN": "disabled",
        "PWD": "/srv/models/of/the/team",
    }
    assert secrets_of(secret | ordinary) == [*secret.values()]


def decoded(datagram):
    """A datagram of the journal's protocol as fields."""
    fields = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, has_value, value = line.partition(b"=")
        if not has_value:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
        fields[name.decode()] = value.decode()
        datagram = rest
    return fields


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.text()))
def test_journal_fields_round_trip(fields):
    assert decoded(encoded(fields)) == fields


@pytest.fixture
def journald(tmp_path):
    """A socket that takes what the journal would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        listening.settimeout(30)
        yield listening


def record_of(text="text", level=logging.ERROR):
    values = {"name": "costprobe.delivery.loop", "levelno": level, "msg": text, "lineno": 7}
    values |= {"levelname": logging.getLevelName(level), "pathname": "/f.py", "funcName": "run"}
    return logging.makeLogRecord({**values, "threadName": "sink influxdb"})


def test_message_reaches_the_journal_with_its_fields(journald, tmp_path, kept):
    log = Log(kept, str, tmp_path / "journal")
    for _ in range(241):
        log.handle(record_of("two\nlines"))
    log.handle(record_of(level=logging.INFO))
    log.close()
    fields = {
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "costprobe",
        "MESSAGE": "two\nlines",
        "COSTPROBE_PART": "delivery.loop",
        "CODE_FILE": "/f.py",
        "CODE_LINE": "7",
        "CODE_FUNC": "run",
        "THREAD_NAME": "sink influxdb",
    }
    assert decoded(journald.recv(65536)) == fields
    assert decoded(journald.recv(65536))["PRIORITY"] == "6"
    repeats = "two\nlines ... repeated 240 times in 0 s"
    fields |= {"MESSAGE": repeats, "COSTPROBE_REPEATED": "240"}
    assert decoded(journald.recv(65536)) == fields
    assert kept.getvalue() == ""


def test_busy_journal_drops_and_counts_messages(journald, tmp_path, kept):
    log = Log(kept, str, tmp_path / "journal")
    journald.setblocking(False)
    sent, got = 0, []
    # The socket's queue is of a fixed length: a message that finds it full is lost.
    while sent < 2000 and not log.lost:
        log.handle(record_of(str(sent), logging.INFO))
        sent += 1
    assert log.lost == 1
    while True:
        try:
            got.append(decoded(journald.recv(65536)))
        except BlockingIOError:
            break
    assert len(got) == sent - 1
    log.handle(record_of("again"))
    log.close()
    assert decoded(journald.recv(65536))["COSTPROBE_LOST"] == "1"
    assert log.lost == 0


def test_without_a_journal_lines_go_to_stderr_with_their_level(tmp_path):
    stream = io.StringIO()
    log = Log(stream, str, tmp_path / "nothing")
    levels = {"CRITICAL": 2, "ERROR": 3, "WARNING": 4, "INFO": 6, "DEBUG": 7}
    for level in levels:
        log.handle(record_of("two\nlines", getattr(logging, level)))
    stream.seek(0)
    assert stream.read().splitlines() == [
        line
        for level, number in levels.items()
        for line in (f"<{number}>{level} delivery.loop: two", f"<{number}>    lines")
    ]
    stream.close()
    # A stream that is closed is ignored.
    log.handle(record_of("more"))
    log.close()


def test_line_of_a_command_has_a_time_only_where_the_journal_adds_none(tmp_path, monkeypatch):
    with (tmp_path / "stdout").open("w") as file:
        found = os.fstat(file.fileno())
        for stream, head in (
            ("1:1", "1970-01-01 00:00:05  "),
            (f"{found.st_dev}:{found.st_ino}", ""),
        ):
            monkeypatch.setenv("JOURNAL_STREAM", stream)
            assert line_head(file, 5 + time.timezone) == head


PROGRAM = """
import logging, os, sys
from pathlib import Path
from costprobe.adapters.host.log import start_logging
found = os.fstat(2)
if sys.argv[1] == "journal":
    os.environ["JOURNAL_STREAM"] = f"{found.st_dev}:{found.st_ino}"
start_logging(os.environ, sys.stderr, Path(sys.argv[2]))
log = logging.getLogger("costprobe.daemon.main")
for _ in range(3):
    log.warning("the token is %s", os.environ["SOME_TOKEN"])
log.debug("not logged")
logging.getLogger("apscheduler").info("not logged either")
"""


@pytest.mark.parametrize("to", ["journal", "stderr"])
def test_process_logs_to_the_destination_of_its_environment(to, journald, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, to, str(tmp_path / "journal")],
        env={**os.environ, "JOURNAL_STREAM": "1:1", "SOME_TOKEN": "canary-5678"},
        capture_output=True,
        text=True,
        check=True,
    )
    if to == "stderr":
        logged = [line.split("  ", 1)[1] for line in done.stderr.splitlines()]
    else:
        assert done.stderr == ""
        got = [decoded(journald.recv(65536)) for _ in range(2)]
        assert [fields["PRIORITY"] for fields in got] == ["4", "4"]
        assert got[0]["CODE_FUNC"] == "<module>"
        logged = [f"WARNING {fields['COSTPROBE_PART']}: {fields['MESSAGE']}" for fields in got]
    assert [line.partition(" in ")[0] for line in logged] == [
        "WARNING daemon.main: the token is [redacted]",
        "WARNING daemon.main: the token is [redacted] ... repeated 2 times",
    ]
