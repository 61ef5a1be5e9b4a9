"""A secret goes to the one server it is for, in a header, and into no message."""

import base64
import random
import threading

import pytest
from fakes.outbox import MemoryOutbox
from fakes.sending import send
from fakes.servers import Scripted

from agent.sinks.errors import Misconfigured
from agent.sinks.pusher import Pusher
from agent.sinks.registry import build_sink
from agent.sinks.settings import SinkSettings

CREDENTIAL = "token"


@pytest.fixture(params=["v1", "v2"])
def api(request):
    return request.param


def sink_of(api, url, **more):
    return build_sink(settings_of(api, url, **more))


def settings_of(api, url, **more):
    own = {"org": "o", "bucket": "b"} if api == "v2" else {"database": "d", "user": "u"}
    return SinkSettings(api=api, url=url, **(own | more))


def test_a_redirect_is_not_followed_and_no_secret_goes_there(api, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("canary-1234")
    with Scripted(lambda *_: (204, {}, b"")) as thief:
        answer = (307, {"Location": thief.url + "/write"}, b"")
        with Scripted(lambda *_: answer) as server:
            sink = sink_of(api, server.url, secret_file=secret)
            with pytest.raises(Misconfigured, match="redirect") as caught:
                send(sink, b"m v=1 1")
            assert "canary" not in str(caught.value)
            assert len(server.requests) == 1
            sink.close()
        assert thief.requests == []


def test_a_rotated_secret_is_read_again_after_a_refusal(api, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("old")
    good = {"v2": "Token new", "v1": "Basic " + base64.b64encode(b"u:new").decode()}[api]

    def answer(_method, _path, headers, _body):
        named = {name.lower(): value for name, value in headers.items()}
        return (204 if named["authorization"] == good else 401), {}, b""

    with Scripted(answer) as server:
        sink = sink_of(api, server.url, secret_file=secret)
        with pytest.raises(Misconfigured):
            send(sink, b"m v=1 1")
        secret.write_text("new")
        send(sink, b"m v=1 1")
        sink.close()


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"canary\nX-Other: 1", b"canary\x00", b"canary\xff"]
)
def test_a_secret_that_no_header_may_hold_is_refused_and_never_shown(api, content, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    with Scripted(lambda *_: (204, {}, b"")) as server:
        outbox = MemoryOutbox(["m v=1 1"])
        sink = sink_of(api, server.url, secret_file=secret)
        pusher = Pusher(
            "s",
            outbox,
            sink,
            threading.Event(),
            batch_points=1000,
            flush_every_s=0.01,
            drain_points_per_s=10**6,
            rng=random.Random(1),
        )
        pusher.step()
        sink.close()
    assert server.requests == []
    assert pusher.status()["state"] == "misconfigured"
    assert str(secret) in pusher.status()["last_error"]
    assert "canary" not in pusher.status()["last_error"]
    assert outbox.live.done_seq == 0


def test_a_password_may_be_in_any_script_and_a_token_may_not(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("пароль")
    with Scripted(lambda *_: (204, {}, b"")) as server:
        sink = sink_of("v1", server.url, user="ü", secret_file=secret)
        send(sink, b"m v=1 1")
        sink.close()
        ((_, path, headers, _),) = server.requests
        assert base64.b64decode(headers["Authorization"].split()[1]).decode() == "ü:пароль"
        assert "пароль" not in path
        with pytest.raises(Misconfigured, match="token") as caught:
            send(sink_of("v2", server.url, secret_file=secret), b"m v=1 1")
    assert "пароль" not in str(caught.value)


def test_a_secret_that_cannot_be_read_is_named_and_never_shown(tmp_path, monkeypatch):
    missing = settings_of("v2", "http://127.0.0.1:9", secret_file=tmp_path / "none")
    with pytest.raises(Misconfigured, match="none"):
        missing.secret()
    (tmp_path / "binary").write_bytes(b"canary\xff")
    with pytest.raises(Misconfigured) as caught:
        settings_of("v2", "http://127.0.0.1:9", secret_file=tmp_path / "binary").secret()
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(Misconfigured, match="LoadCredential"):
        settings_of("v2", "http://127.0.0.1:9", secret_credential=CREDENTIAL).secret()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "token").write_text("t0k3n\n")
    assert settings_of("v2", "http://127.0.0.1:9", secret_credential=CREDENTIAL).secret() == "t0k3n"
