"""No client can occupy the connections of the dashboard."""

import socket
from contextlib import suppress

import pytest
from costprobe.adapters.http.server import HttpLimits
from costprobe.ui.dashboard.serving import LIMITS

HALF_OPEN = [b"", b"GET /api/now HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]


@pytest.fixture
def connect():
    made = []

    def connected(page):
        client = socket.create_connection(tuple(page.address), timeout=30)
        made.append(client)
        return client

    yield connected
    for client in made:
        client.close()


def test_half_open_connections_lock_nobody_out(kept_page, connect):
    for number in range(LIMITS.total + 12):
        connect(kept_page).sendall(HALF_OPEN[number % len(HALF_OPEN)])
    assert [kept_page.request("/")[0] for _ in range(5)] == [200] * 5


def test_connection_without_a_complete_request_is_closed(page_on, kept_store, clock, connect):
    limits = HttpLimits(total=8, per_address=8, reserve=0, request_s=0.1, response_s=0.1)
    page = page_on(kept_store.path, clock, limits=limits)
    for sent in HALF_OPEN:
        client = connect(page)
        client.sendall(sent)
        with suppress(ConnectionResetError):
            while client.recv(65536):
                pass


def test_kept_connection_answers_several_requests(kept_page, connect):
    client = connect(kept_page)
    for _ in range(3):
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
