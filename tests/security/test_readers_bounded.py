"""Every reader of somebody else's HTTP is bounded in size and in time, whatever the server does."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.incidents import incident
from fakes.sending import send
from fakes.servers import Talking

from agent.config_notifier import AlertmanagerConfig, AppriseConfig, WebhookConfig
from agent.config_price import SpotPlanConfig
from agent.feeds.source import SourceError, read_source
from agent.notifying.apprise_child import MAX_MEMORY_BYTES
from agent.notifying.registry import build_sender
from agent.notifying.sender import Misconfigured, Refused, RetryLater
from agent.sinks.errors import Misconfigured as SinkMisconfigured
from agent.sinks.errors import Rejected
from agent.sinks.errors import RetryLater as SinkRetryLater
from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings
from probes.served.http import MAX_ANSWER_BYTES, Connection, Failure
from probes.served.outcome import asked
from probes.served.target import target

TIMEOUT_S = 1.5
PIECE = 64 * 1024
# The largest budget of a reader, and what lies in the kernel's buffers between the two.
MOST_BYTES = MAX_ANSWER_BYTES + (16 << 20)


class Flood:
    """A server that never ends one part of its answer.

    Args:
        head: What it says first.
        piece: What it says again and again.
        pause_s: Between two of them.
        is_kept: False for what no reader keeps, whose size is bounded by the time alone.

    Attributes:
        sent: Bytes that a connection took, for each of them that has ended.
    """

    def __init__(self, head, piece, pause_s=0.0, *, is_kept=True):
        self.sent = []
        self.is_kept = is_kept
        self._head, self._piece, self._pause_s = head, piece, pause_s

    def __call__(self, connection):
        connection.settimeout(60)
        connection.recv(PIECE)
        sent = 0
        try:
            connection.sendall(self._head)
            while True:
                connection.sendall(self._piece)
                sent += len(self._piece)
                time.sleep(self._pause_s)
        finally:
            # Reached by an error alone: the reader has gone.
            self.sent.append(sent)


OK = b"HTTP/1.1 200 OK\r\n"
BAD = b"HTTP/1.1 500 Broken\r\n"
CHUNK = b"%x\r\n%b\r\n" % (PIECE, b"x" * PIECE)
FLOODS = {
    "a body without an end": lambda: Flood(OK + b"\r\n", b"x" * PIECE),
    "a body of a length beyond reason": lambda: Flood(
        OK + b"Content-Length: 99999999999999\r\n\r\n", b"x" * PIECE
    ),
    "chunks without an end": lambda: Flood(OK + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK),
    "an error's body without an end": lambda: Flood(BAD + b"\r\n", b"x" * PIECE),
    "headers without an end": lambda: Flood(OK, b"X-More: " + b"x" * 1000 + b"\r\n"),
    "a header without an end": lambda: Flood(OK + b"X-More: ", b"x" * PIECE),
    "a status line without an end": lambda: Flood(b"HTTP/1.1 200 ", b"x" * PIECE),
    # Ended by the time alone, in which it is not to take the processor from the others.
    "go on without an end": lambda: Flood(
        b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0.05, is_kept=False
    ),
    "a body that drips": lambda: Flood(OK + b"Content-Length: 50000\r\n\r\n", b"x", 0.02),
    "an error's body that drips": lambda: Flood(BAD + b"Content-Length: 50000\r\n\r\n", b"x", 0.02),
    "chunks that drip": lambda: Flood(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.02
    ),
    "headers that drip": lambda: Flood(OK + b"X-More: ", b"x", 0.02),
    "a status line that drips": lambda: Flood(b"", b"H", 0.02),
}


def notifier(config):
    sender = build_sender(config, None)
    with contextlib.suppress(RetryLater, Refused, Misconfigured):
        sender.send([incident()], 1)
    sender.close()


def webhook(url, _):
    notifier(WebhookConfig(name="n", kind="webhook", url=url, timeout=f"{TIMEOUT_S:g}s"))


def alertmanager(url, _):
    notifier(AlertmanagerConfig(name="n", kind="alertmanager", url=url, timeout=f"{TIMEOUT_S:g}s"))


def apprise(url, folder):
    file = folder / "url"
    file.write_text(url.replace("http:", "json:"))
    notifier(AppriseConfig(name="n", kind="apprise", url_file=Path(file), timeout="20s"))


def spot_price(url, _):
    with contextlib.suppress(SourceError):
        read_source(SpotPlanConfig(plan="spot", url=url), TIMEOUT_S)


def sink(**own):
    built = build_sink(SinkSettings(timeout_s=TIMEOUT_S, **own))
    with contextlib.suppress(SinkRetryLater, Rejected, SinkMisconfigured):
        send(built, b"m f=1 1")
    built.close()


def influxdb_1(url, _):
    sink(api="v1", url=url, database="d")


def influxdb_2(url, _):
    sink(api="v2", url=url, org="o", bucket="b")


def served_probe(url, _):
    connection = Connection(target(url, None, None), TIMEOUT_S)
    with contextlib.suppress(Failure):
        connection.exchange("POST", "/v1/chat/completions", b"{}", lambda *_: False)
    connection.close()


def served_probes_questions(url, _):
    connection = Connection(target(url, None, None), TIMEOUT_S)
    asked(connection, "GET", "/v1/models")
    connection.close()


# Each with the most bytes that it may take.
READERS = {
    webhook: MOST_BYTES,
    alertmanager: MOST_BYTES,
    apprise: MAX_MEMORY_BYTES,
    spot_price: MOST_BYTES,
    influxdb_1: MOST_BYTES,
    influxdb_2: MOST_BYTES,
    served_probe: MOST_BYTES,
    served_probes_questions: MOST_BYTES,
}


@pytest.mark.parametrize(
    ("reader", "most_bytes"), READERS.items(), ids=[r.__name__ for r in READERS]
)
def test_a_reader_ends_and_takes_no_more_than_its_budget(reader, most_bytes, tmp_path):
    def flooded(name):
        flood, folder = FLOODS[name](), tmp_path / name
        folder.mkdir()
        # Leaving the block waits for the server's thread, which ends when the reader has gone.
        with Talking(flood) as server:
            reader(server.url, folder)
        return flood

    with ThreadPoolExecutor(len(FLOODS)) as pool:
        floods = dict(zip(FLOODS, pool.map(flooded, FLOODS), strict=True))
    assert {name for name, flood in floods.items() if not flood.sent} == set()
    sent = {name: max(flood.sent) for name, flood in floods.items() if flood.is_kept}
    assert {name: size for name, size in sent.items() if size > most_bytes} == {}


def test_what_apprise_reads_is_bounded_by_memory_long_before_the_time(tmp_path):
    flood = FLOODS["an error's body without an end"]()
    file = tmp_path / "url"
    with Talking(flood) as server:
        file.write_text(server.url.replace("http:", "json:"))
        config = AppriseConfig(name="n", kind="apprise", url_file=file, timeout="100s")
        sender = build_sender(config, None)
        with pytest.raises(RetryLater) as caught:
            sender.send([incident()], 1)
        sender.close()
    assert "not told within" not in caught.value.reason
    assert 0 < max(flood.sent) <= MAX_MEMORY_BYTES
