"""Reading over real HTTP: tokens, TLS, and servers that are slow, endless, packed or elsewhere."""

import socket
import threading

import pytest
from fakes.inference_server import TLS, InferenceServer

from agent.config_service import ServiceConfig
from agent.serving.errors import ScrapeError
from agent.serving.exposition import MAX_BYTES
from agent.serving.fetch import Access, Fetcher, access_of

SECRET = "very-secret-token"  # noqa: S105 - what no error may tell


def fetched(answer, access=Access(timeout_s=5.0), **server):  # noqa: B008 - a frozen value
    with InferenceServer(answer, **server) as running:
        try:
            return Fetcher(access)(running.url + "/metrics"), running.calls
        except ScrapeError as error:
            return error, running.calls


def test_a_plain_answer_is_asked_for_without_packing_and_in_the_text_format():
    body, (call,) = fetched(lambda call: call.whole(b"a 1\n"))
    assert body == b"a 1\n"
    assert (call.method, call.path) == ("GET", "/metrics")
    assert call.headers["Accept-Encoding"] == "identity"
    assert call.headers["Accept"].startswith("text/plain")
    assert "Authorization" not in call.headers


def test_a_chunked_answer_is_put_together():
    def answer(call):
        call.start_stream()
        call.chunk(b"a 1\n")
        call.chunk(b"b 2\n")
        call.chunk(b"")

    assert fetched(answer)[0] == b"a 1\nb 2\n"


def test_a_token_is_read_anew_and_never_told(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    access = Access(timeout_s=5.0, token_file=file)
    _, (call,) = fetched(lambda call: call.whole(b""), access)
    assert call.headers["Authorization"] == f"Bearer {SECRET}"

    error, _ = fetched(lambda call: call.whole(call.headers["Authorization"].encode(), 401), access)
    assert "wants a token" in str(error)
    assert SECRET not in str(error)

    file.write_text("")
    error, calls = fetched(lambda call: call.whole(b""), access)
    assert "is empty" in str(error)
    assert calls == []


def test_a_credential_of_systemd(tmp_path):
    (tmp_path / "metrics").write_text(SECRET)
    keys = {"name": "s", "url": "http://h", "engine": "vllm", "devices": ["gpu0"]}
    service = ServiceConfig.model_validate({**keys, "token_credential": "metrics"})
    assert access_of(service, {"CREDENTIALS_DIRECTORY": str(tmp_path)}).token() == SECRET
    with pytest.raises(ScrapeError, match="add LoadCredential= to the unit"):
        access_of(service, {}).token()


def test_a_redirect_is_not_followed(tmp_path):
    file = tmp_path / "token"
    file.write_text(SECRET)
    access = Access(timeout_s=5.0, token_file=file)
    with InferenceServer(lambda call: call.whole(b"a 1\n")) as other:
        error, _ = fetched(lambda call: call.whole(b"", 302, Location=other.url), access)
        assert other.calls == []
    assert "HTTP 302: it sends us elsewhere" in str(error)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda call: call.whole(b"x" * (MAX_BYTES + 1)), f"more than {MAX_BYTES} bytes"),
        (lambda call: call.whole(b"\x1f\x8b", Content_Encoding="gzip"), "its answer is packed"),
        (lambda call: call.whole(b"", 404), "HTTP 404: no metrics there"),
        (lambda call: call.whole(b"", 500), "HTTP 500"),
        (lambda call: call.whole(b"a 1\n", Content_Length="400"), "no whole answer"),
        (lambda call: call.write(b"rubbish\r\n\r\n"), "no whole answer"),
        (lambda call: call.cut(), "RemoteDisconnected"),
    ],
)
def test_what_cannot_be_read_says_why(answer, words):
    def answer_and_close(call):
        answer(call)
        call.cut()

    error, _ = fetched(answer_and_close)
    assert isinstance(error, ScrapeError)
    assert words in str(error)


def test_an_endless_chunked_answer_ends_at_its_bound():
    def answer(call):
        call.start_stream()
        while True:
            call.chunk(b"a" * 65536)

    error, _ = fetched(answer, Access(timeout_s=30.0))
    assert f"more than {MAX_BYTES} bytes" in str(error)


def test_an_answer_that_drips_ends_at_the_deadline_of_the_whole():
    def answer(call):
        call.start_stream()
        # Each piece comes well within any timeout of a single read.
        for _ in range(1000):
            call.chunk(b"a 1\n")
            call.pause(0.05)

    error, _ = fetched(answer, Access(timeout_s=0.5))
    assert str(error) == "no answer within 0.5 s"


def test_headers_that_never_end_end_at_the_deadline():
    def answer(call):
        while True:
            call.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            call.pause(0.01)

    error, _ = fetched(answer, Access(timeout_s=0.5))
    assert str(error) == "no answer within 0.5 s"


def test_a_server_that_accepts_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/metrics"
        with pytest.raises(ScrapeError, match=r"no answer within 0\.3 s"):
            Fetcher(Access(timeout_s=0.3))(url)
        # The same with TLS: it never shakes hands.
        with pytest.raises(ScrapeError, match=r"no answer within 0\.3 s"):
            Fetcher(Access(timeout_s=0.3))(url.replace("http", "https", 1))


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ScrapeError, match="Connection refused"):
        Fetcher(Access(timeout_s=5.0))(f"http://127.0.0.1:{port}/metrics")


def test_tls_needs_an_authority_that_vouches(tmp_path):
    trusted = Access(timeout_s=5.0, ca_file=TLS / "server.pem")
    assert fetched(lambda call: call.whole(b"a 1\n"), trusted, tls=True)[0] == b"a 1\n"
    error, _ = fetched(lambda call: call.whole(b"a 1\n"), tls=True)
    assert "is ca_file the server's authority?" in str(error)
    empty = tmp_path / "none.pem"
    empty.write_text("")
    error, _ = fetched(lambda call: call.whole(b""), Access(5.0, ca_file=empty), tls=True)
    assert "cannot be used (no certificates in it)" in str(error)


def test_readings_leave_no_thread_behind():
    before = threading.active_count()
    fetched(lambda call: call.whole(b"a 1\n"))
    assert threading.active_count() == before
