"""Live updates: one stream per open page, bounded in number, closed with the server."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from costprobe.ui.dashboard.live import Live, event
from dashboard_samples import cost_rows
from fakes.command import called

NS_PER_S = 10**9


class Stream:
    """The event stream of one open page."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(*address, timeout=60)
        self.connection.request("GET", "/api/live")
        self.answer = self.connection.getresponse()

    def event(self):
        """The next event: its name and its JSON document."""
        name = None
        while True:
            line = self.answer.readline().decode()
            assert line, "the stream has ended"
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                return name, json.loads(line[6:])

    def close(self):
        self.connection.close()


@pytest.fixture
def stream_of():
    opened = []

    def start(page):
        opened.append(Stream(page.address))
        return opened[-1]

    yield start
    for stream in opened:
        stream.close()


def test_stream_sends_the_current_state_and_then_each_change(page, store, clock, stream_of):
    stream = stream_of(page)
    assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
    name, first = stream.event()
    assert name == "now"
    assert first["costs"] == page.json("/api/now")["costs"]
    clock.move(60)
    store.append(cost_rows("gpu0", 999, clock.time_ns() - NS_PER_S, cost=5e-6))
    while True:
        _, later = stream.event()
        cost = {entry["tags"]["device"]: entry for entry in later["costs"]}["gpu0"]
        if cost["time_ms"] == clock.time_ns() // 10**6 - 1000:
            break
    assert cost["fields"]["cost_per_inference"] == pytest.approx(5e-6 * 1.999)


def test_change_during_the_first_message_is_sent(tmp_path):
    file, read = tmp_path / "store.db", []

    def document():
        read.append(file.exists())
        file.touch()
        return {"is_changed": read[-1]}

    async def messages():
        live = Live(file, document, poll_every_s=0.01)
        async with live.listening("") as listener:
            return [await listener.take(60), await listener.take(60)]

    assert asyncio.run(messages()) == [
        event("now", {"is_changed": is_changed}) for is_changed in (False, True)
    ]


def test_stream_above_the_limit_gets_503_with_retry_after(page_on, store, clock, stream_of):
    page = page_on(store.path, clock, listeners_max=2)
    first, second = stream_of(page), stream_of(page)
    first.event()
    second.event()
    status, headers, _ = page.request("/api/live")
    assert (status, headers["Retry-After"]) == (503, "15")
    first.close()
    ends_s = time.monotonic() + 60
    # The server notices the closed connection when it next sends something.
    while (third := stream_of(page)).answer.status == 503:
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    third.event()


def test_server_stops_with_open_streams(page, stream_of):
    stream = stream_of(page)
    stream.event()
    page.stop()
    assert not page.thread.is_alive()


def test_command_serves_until_sigterm(store, tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{store.path}"\n')
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "costprobe",
            "-c",
            str(config),
            "dashboard",
            "--listen",
            "127.0.0.1:0",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        line = next(text for text in process.stdout if "page:" in text)
        port = int(line.rpartition(":")[2].partition("/")[0])
        stream = Stream(("127.0.0.1", port))
        stream.event()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        stream.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:9470", "--allow-remote"),
        ("9470", "is not an address and port"),
        ("example.org:80", "is not an IP address"),
        ("127.0.0.1:99999", "is not an address and port"),
    ],
)
def test_invalid_listen_addresses_are_rejected_with_their_fix(listen, words, tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path / "x.db"}"\n')
    assert words in called(config, "dashboard", "--listen", listen, code=2).stderr
