"""The HTTP server serves its pages, and no client can block it."""

import socket
import threading
import time
from contextlib import suppress

import pytest
from costprobe.adapters.http.responses import TEXT, PageResponse
from costprobe.adapters.http.server import MAX_BODY_BYTES, HttpLimits, HttpServer
from record.record_files import check_outcomes

BIG = b"x" * 5_000_000
# Long enough that a test which depends on it fails by its own limit, not by chance.
FOR_EVER_S = 100.0


@pytest.fixture
def gate():
    """An event that blocks the page /slow until it is set."""
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def begun():
    """Set once the slow page is being rendered."""
    return threading.Event()


@pytest.fixture
def serve(gate, begun):
    made = []

    def start(*, posts=None, allowed_hosts=(), reserved=(), **limits):
        def slow():
            begun.set()
            gate.wait(FOR_EVER_S)
            return PageResponse(200, TEXT, b"at last\n")

        def broken():
            raise RuntimeError("canary-in-an-exception")

        counted = iter(range(1000))
        pages = {
            "/good": lambda: PageResponse(200, TEXT, b"good\n"),
            "/count": lambda: PageResponse(200, TEXT, b"%d\n" % next(counted)),
            "/big": lambda: PageResponse(200, TEXT, BIG),
            "/slow": slow,
            "/broken": broken,
            "/nothing": lambda: None,
        }
        hosts = {"allowed_hosts": allowed_hosts, "reserved": reserved}
        server = HttpServer(pages, HttpLimits(**limits), posts=posts, **hosts)
        server.start("127.0.0.1", 0)
        made.append(server)
        return server

    yield start
    for server in made:
        server.close()
        assert not server.is_alive()


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def read_all(client):
    answer = b""
    while part := client.recv(65536):
        answer += part
    return answer


def response_to(server, head):
    with connect(server) as client:
        client.sendall(head)
        answer = read_all(client)
    top, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


def get(server, path, method="GET", host="127.0.0.1:9101"):
    return response_to(server, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def wait_for(condition, timeout_s=30.0):
    ends_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends_s, "it never came"
        time.sleep(0.01)


def test_page_is_sent_whole_with_its_length_and_for_head_without_its_body(serve):
    server = serve()
    assert get(server, "/big")[2] == BIG
    status, headers, body = get(server, "/good", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "5", b"")
    status, headers, body = get(server, "/good?x=1")
    assert (status, body, headers["Content-Length"]) == (200, b"good\n", "5")
    assert (headers["Content-Type"], headers["Connection"]) == (TEXT, "close")
    assert headers["Server"].strip() == "costprobe"
    assert server.answers() == {("/big", 200): 1, ("/good", 200): 2}


def test_other_paths_methods_and_heads_are_refused(serve):
    server = serve()
    for path in ("/", "/good/", "/../good", "/%67ood", "/etc/passwd", "/good/../../etc/passwd"):
        status, _, body = get(server, path)
        assert (status, b"/good" in body, b"root:" in body) == (404, True, False), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"):
        assert get(server, "/good", method)[0] == 501, method
    host = b"GET /good HTTP/1.1\r\nHost: localhost\r\n"
    assert response_to(server, host + b"X: " + b"x" * 70_000 + b"\r\n\r\n")[0] == 431
    assert response_to(server, host + b"Host: localhost\r\n\r\n")[0] == 400


def test_failing_page_and_post_return_500_without_the_reason(serve, caplog):
    def broken(_):
        raise RuntimeError("canary-in-an-exception")

    server = serve(posts={"/own": broken})
    for status, _, body in (get(server, "/broken"), post(server, "/own")):
        assert (status, b"canary" in body) == (500, False)
    assert "page /broken failed" in caplog.text
    assert "POST of /own failed" in caplog.text


def echo(request):
    body = f"{request.client} {request.authorization}: ".encode() + request.body
    return PageResponse(201, TEXT, body, (("X-Own", "1"),))


def post(server, path="/echo", body=b"", *headers, host="127.0.0.1"):
    length = f"Content-Length: {len(body)}"
    head = "\r\n".join([f"POST {path} HTTP/1.1", f"Host: {host}", *(headers or [length]), "", ""])
    return response_to(server, head.encode() + body)


def test_posts_are_answered_with_their_bodies(serve):
    server = serve(posts={"/echo": echo})
    status, headers, body = post(
        server, "/echo?x", b"hello", "Content-Length: 5", "Authorization: me"
    )
    assert (status, body) == (201, b"127.0.0.1 me: hello")
    assert headers["X-Own"] == "1"
    assert get(server, "/echo")[0] == 405
    status, headers, _ = post(server, "/good")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert post(server, "/other")[0] == 404
    assert post(server, host="rebound.example")[0] == 421
    assert server.answers()["/echo", 201] == 1


def test_body_of_a_post_is_bounded(serve):
    server = serve(posts={"/echo": echo}, request_s=0.5)
    for headers, status in (
        (["X: y"], 411),
        (["Content-Length: -1"], 411),
        (["Content-Length: ²"], 411),
        (["Transfer-Encoding: chunked"], 411),
        # Answered at once, although the client still sends.
        ([f"Content-Length: {MAX_BODY_BYTES + 1}"], 413),
        ([f"Content-Length: {10**19}"], 413),
        ([f"Content-Length: {'9' * 9000}"], 413),
    ):
        for body in (b"", b"x" * 10):
            assert post(server, "/echo", body, *headers)[0] == status, headers
    assert post(server, body=b"x" * MAX_BODY_BYTES)[0] == 201
    assert post(server, body=b"x" * (MAX_BODY_BYTES + 1))[0] == 413
    # A body that does not come ends with the deadline of its request.
    with connect(server) as client:
        client.sendall(b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc")
        assert read_all(client) == b""
    assert server.broken == 1


def test_foreign_host_header_is_rejected(serve):
    assert get(serve(), "/good", host="rebound.example:9101")[0] == 421
    named = serve(allowed_hosts=["GPU-01.example"])
    check_outcomes("host_headers.json", lambda host: get(named, "/good", host=host)[0])


def test_internal_error_ends_one_connection_and_is_logged(serve, caplog):
    server = serve(fresh_s=FOR_EVER_S)
    with connect(server) as client:
        client.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(client) == b""
    assert "an HTTP request failed" in caplog.text
    # A page that is fresh is not rendered again.
    assert [get(server, "/count")[2] for _ in range(3)] == [b"0\n"] * 3


def test_hanging_page_blocks_one_thread_and_no_other_page(serve, gate, begun):
    server = serve(page_s=0.2)
    with connect(server) as first:
        first.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(60)
        assert get(server, "/slow")[0] == 503
        assert get(server, "/good")[0] == 200
        gate.set()
        assert read_all(first).endswith(b"at last\n")
    assert get(server, "/slow")[2] == b"at last\n"


def test_client_that_sends_or_reads_too_slowly_is_disconnected(serve):
    server = serve(request_s=0.2, response_s=0.2)
    with connect(server) as client:
        while not server.broken:
            client.sendall(b"G")
            time.sleep(0.01)
        wait_for(lambda: is_closed(client))
    with connect(server) as client:
        client.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: server.broken == 2)


def is_closed(client):
    try:
        client.sendall(b"G")
    except OSError:
        return True
    return False


def answer_of(server, path):
    """Return the status of a page; asked again while the connections before it are being closed."""
    while True:
        with suppress(IndexError):
            return get(server, path)[0]


def test_reserve_answers_its_page_while_all_other_connections_wait(serve, gate, begun):
    server = serve(total=3, reserve=2, reserved=["/good"], page_s=FOR_EVER_S, response_s=FOR_EVER_S)
    with connect(server) as waiting:
        waiting.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(FOR_EVER_S)
        assert get(server, "/count")[0] == 503
        assert [answer_of(server, "/good") for _ in range(5)] == [200] * 5
        gate.set()
        assert read_all(waiting).endswith(b"at last\n")


def test_close_releases_the_address_despite_open_connections(serve, gate):
    server = serve(request_s=FOR_EVER_S, response_s=FOR_EVER_S, page_s=FOR_EVER_S)
    with connect(server) as idle, connect(server) as waiting:
        waiting.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        idle.sendall(b"GET")
        with pytest.raises(OSError, match="in use"):
            HttpServer({}).start("127.0.0.1", server.port)
        server.close()
        assert not server.is_alive()
    again = HttpServer({})
    again.start("127.0.0.1", server.port)
    again.close()
    server.close()
