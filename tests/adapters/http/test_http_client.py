"""The HTTP client over real sockets: TLS, proxies, kept connections, and faulty servers."""

import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from costprobe.adapters.http import connections
from costprobe.adapters.http.access import Destination, ExchangeLimits, environment_proxy
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import Misconfigured, RetryLater, raise_for_status
from fakes.cases import check_all
from fakes.servers import TLS, Scripted, Talking, free_port
from record.record_files import check_outcomes

CANARY = "c4nary-5ecret"


def client(total_s=5.0, step_s=5.0, **more):
    return HttpClient(ExchangeLimits(step_s, total_s), **more)


def get(url, client=None, **more):
    own = client or globals()["client"](**more)
    try:
        return own.request("GET", Destination.parse(url), more.get("headers"))
    finally:
        own.close()


def failure(url, **more):
    with pytest.raises((RetryLater, Misconfigured)) as caught:
        get(url, **more)
    assert caught.value.__cause__ is None
    return caught.value


def test_request_and_response_pass_unchanged():
    with Scripted(lambda *_: (203, {"X-Kind": "own"}, b"\x1f\x8bbody")) as server:
        own = client()
        to = Destination.parse(f"{server.url}/a%2Fb?c=d%20e")
        response = own.request("POST", to, {"X-Mine": "1"}, b"\x00sent")
    assert (response.status, response.body, response.is_truncated) == (203, b"\x1f\x8bbody", False)
    assert response.headers["x-kind"] == "own"
    ((method, path, headers, body),) = server.requests
    assert (method, path, body) == ("POST", "/a%2Fb?c=d%20e", b"\x00sent")
    assert headers["X-Mine"] == "1"
    assert headers["Connection"] == "close"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"].startswith("costprobe/")


def test_connections_are_reused_only_if_they_are_kept_and_after_the_server_closes():
    """A server may close a kept connection just as the next request is sent."""
    with Scripted(lambda *_: (204, {}, b"")) as server:
        own, kept, to = client(), client(keep=1), Destination.parse(server.url)
        for one, connections_of in ((own, 20), (kept, 1), (kept, 1)):
            server.clients.clear()
            for _ in range(20):
                one.request("POST", to, body=b"x")
            assert len(set(server.clients)) == connections_of
            one.close()


def test_each_kept_exchange_has_its_own_limits():
    """Neither the time nor the bytes of one exchange count against the next."""
    with Scripted(lambda *_: (200, {}, b"x" * 60_000)) as server:
        kept, to = client(total_s=0.3, step_s=0.3, keep=1), Destination.parse(server.url)
        for _ in range(6):
            assert len(kept.request("GET", to).body) == 60_000
            time.sleep(0.06)
        assert len(set(server.clients)) == 1
        kept.close()


def test_redirects_and_the_environments_proxies_are_not_followed(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with (
        Scripted(lambda *_: (200, {}, b"elsewhere")) as other,
        Scripted(lambda *_: (302, {"Location": other.url}, b"")) as server,
    ):
        assert get(server.url).status == 302
    assert other.requests == []


def test_error_names_the_proxy_and_what_it_refused():
    def check(answer, kind, words):
        with Talking(lambda c: (c.recv(4096), c.sendall(answer))) as proxy:
            user = proxy.url.replace("//", f"//user:{CANARY}@")
            error = failure("https://nowhere.invalid/x", proxy=user)
        assert isinstance(error, kind)
        assert words in error.reason
        assert f"(through the proxy 127.0.0.1:{proxy.port})" in error.reason
        assert CANARY not in error.reason

    refused = "the proxy refused the connection with HTTP"
    check_all(
        check,
        [
            (b"HTTP/1.1 407 No\r\n\r\n", Misconfigured, f"{refused} 407"),
            (b"HTTP/1.1 503 No\r\n\r\n", RetryLater, f"{refused} 503"),
            (b"HTTP/1.1 200 OK\r\n\r\n", RetryLater, ""),
        ],
    )
    closed = failure("http://nowhere.invalid/x", proxy=f"http://127.0.0.1:{free_port()}")
    assert "Connection refused (through the proxy http://127.0.0.1:" in closed.reason
    answers = [(200, {}, b"through"), (407, {}, b"log in")]
    with Scripted(lambda *_: answers.pop(0)) as proxy:
        used, unknown = (get("http://nowhere.invalid/x", proxy=proxy.url) for _ in range(2))
    assert (used.body, proxy.requests[0][1]) == (b"through", "http://nowhere.invalid/x")
    with pytest.raises(Misconfigured) as caught:
        raise_for_status(unknown, now_s=0.0)
    assert caught.value.reason == (
        f"HTTP 407: log in (through the proxy {proxy.url}); the proxy requires a user and password"
    )


def test_proxy_of_the_environment_is_passed_by_for_the_hosts_of_no_proxy():
    proxies = {"http": "proxy:3128", "https": "http://proxy:3128"}

    def proxy_of(text):
        url, _, entries = text.partition(" ")
        return environment_proxy(url, {**proxies, "no": entries})

    check_outcomes("no_proxy_texts.json", proxy_of)
    assert environment_proxy("http://a.example/", {"all": "http://p:1"}) == "http://p:1"
    assert environment_proxy("http://a.example/", {}) is None


def test_next_address_is_tried_and_the_one_that_answered_is_remembered(monkeypatch):
    """127.0.0.1 is the first address of the host, 127.0.0.2 the next."""

    def attempts(first, body=b""):
        """Requests until an answer, and the connections that the first address accepted."""
        port = first.getsockname()[1]
        to = Destination.parse(f"http://two.test:{port}/").unnamed()
        with Scripted(lambda *_: (200, {}, b"ok"), address=("127.0.0.2", port)):
            own, outcomes = client(total_s=None, step_s=1.5), []
            for _ in range(4):
                try:
                    outcomes.append(own.request("POST", to, body=body))
                except RetryLater as error:
                    outcomes.append(error.reason)
        first.settimeout(0.0)
        accepted = 0
        with suppress(OSError):
            while True:
                first.accept()[0].close()
                accepted += 1
        return [getattr(one, "body", one) for one in outcomes], accepted

    def resolve(host, port, **_):
        assert host == "two.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in (1, 2)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    # It accepts and never answers: only a later request can find that out. The second body is more than
    # the kernel buffers: the request is never sent completely.
    for body in (b"", b"x" * (16 << 20)):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            assert attempts(silent, body) == (["no response within 1.5 s", *[b"ok"] * 3], 1)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, socket.socket() as filler:
        filler.connect(deaf.getsockname())
        # Its queue is full: further connections get no answer.
        assert attempts(deaf) == ([b"ok"] * 4, 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert attempts(closed)[0] == [b"ok"] * 4


def test_server_on_a_unix_socket(tmp_path):
    path = tmp_path / "server.sock"
    urls = {f"unix:{path}": "/", f"unix://{path}:/metrics?a=b": "/metrics?a=b"}
    with Scripted(lambda *_: (200, {}, b"ok"), address=str(path)) as server:
        kept = client(keep=1)
        for url in urls:
            assert kept.request("GET", Destination.parse(url)).body == b"ok"
        kept.close()
    assert [request[1] for request in server.requests] == list(urls.values())
    assert {request[2]["Host"] for request in server.requests} == {"localhost"}
    gone = f"unix:{tmp_path}/none.sock:/metrics"
    assert failure(gone).reason == f"{gone}: FileNotFoundError: No such file or directory"
    for url in ("unix:relative.sock", "unix:", f"unix:/{'x' * 107}", "unix:/a b"):
        with pytest.raises(Misconfigured):
            Destination.parse(url)


def test_long_body_is_truncated_and_the_connection_closed():
    with Scripted(lambda *_: (500, {}, b"x" * 300_000)) as server:
        kept, to = client(keep=1), Destination.parse(server.url)
        for _ in range(2):
            response = kept.request("GET", to)
            assert (len(response.body), response.is_truncated) == (64 << 10, True)
        kept.close()
    assert len(set(server.clients)) == 2


def test_tls_needs_a_trusted_authority_and_reads_it_again_after_a_failure(tmp_path):
    authority = tmp_path / "ca.pem"
    with Scripted(lambda *_: (200, {}, b"ok")) as plain:
        assert "TLS" in failure(plain.url.replace("http:", "https:")).reason
    with Scripted(lambda *_: (200, {}, b"ok"), tls=True) as server:
        own, to = client(ca_file=authority, keep=1), Destination.parse(server.url)
        for content, words in ((None, "No such file"), (b"", "no certificates in it")):
            if content is not None:
                authority.write_bytes(content)
            for call in (own.check_certificates, lambda: own.request("GET", to)):
                with pytest.raises(Misconfigured, match=words):
                    call()
        assert "ca_file" in failure(server.url).reason
        wrong = failure(server.url.replace("127.0.0.1", "localhost"), ca_file=TLS / "server.pem")
        assert isinstance(wrong, Misconfigured)
        assert "localhost" not in wrong.reason.split("TLS")[1]
        authority.write_bytes((TLS / "server.pem").read_bytes())
        assert own.request("GET", to).body == b"ok"
        own.close()
    assert len(server.requests) == 1


def test_error_of_strict_tls_names_what_the_certificate_lacks():
    """As Python checks it from 3.13 on; the authority's certificate has no key usage."""
    authority = TLS / "no_key_usage.pem"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority)
    strict = connections.tls_context(authority)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    near, far = socket.socketpair()
    with near, far, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(server.wrap_socket, far, server_side=True)
        with pytest.raises(ssl.SSLError) as caught:
            strict.wrap_socket(near, server_hostname="127.0.0.1")
        near.close()
        answered.exception()
    to = Destination.parse("https://127.0.0.1/")
    error = connections.translated(caught.value, to, ExchangeLimits(1.0))
    assert isinstance(error, Misconfigured)
    assert error.reason == (
        "https://127.0.0.1: TLS: CA cert does not include key usage extension; RFC 5280 requires it,"
        " and Python checks it from version 3.13 on: issue the certificate again"
    )


def test_unreachable_servers_and_broken_responses_are_retried():
    def check(answer, words):
        with Talking(lambda c: (c.recv(4096), c.sendall(answer))) as server:
            error = failure(server.url)
        assert type(error) is RetryLater
        assert words in error.reason
        assert CANARY not in repr(error)

    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    check_all(
        check,
        [
            (b"", "RemoteDisconnected: no complete response"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nab", "IncompleteRead"),
            (chunked + b"5\r\nab", "IncompleteRead"),
            (chunked + b"rubbish\r\n", "IncompleteRead"),
            (b"invalid\r\n\r\n", "BadStatusLine"),
            (f"HTTP/1.1 200 {CANARY * 9999}".encode(), "header of more than"),
        ],
    )
    assert "Connection refused" in failure(f"http://127.0.0.1:{free_port()}/").reason
    assert isinstance(failure(f"http://{CANARY}.invalid/"), RetryLater)


def test_silent_servers_end_in_time_also_in_the_tls_handshake_and_in_a_slow_tunnel():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for each in (url, url.replace("http", "https", 1)):
            assert "no response within 0.3 s" in failure(each, total_s=0.3).reason

    def talk(connection):
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-More: 1\r\n")
            time.sleep(0.02)

    with Talking(talk) as proxy:
        slow = failure("https://nowhere.invalid/x", proxy=proxy.url, total_s=0.3)
    assert "no response within 0.3 s" in slow.reason


def test_request_over_tls_to_a_server_that_does_not_read_ends_in_time():
    """Each record of TLS has a wait of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    ended = threading.Event()

    def deaf(connection):
        with context.wrap_socket(connection, server_side=True) as channel:
            while not ended.wait(0.01):
                channel.recv(1)

    with Talking(deaf) as server:
        own = client(total_s=0.5, step_s=0.4, ca_file=TLS / "server.pem")
        to = Destination.parse(server.url.replace("http:", "https:"))
        with pytest.raises(RetryLater, match="no response within"):
            own.request("POST", to, body=b"x" * (64 << 20))
        ended.set()
        own.close()
