"""A secret is sent to its own server only, in a header, and is in no message."""

import base64

import pytest
from costprobe.adapters.http.errors import Misconfigured
from fakes.sending import send, sink_of
from fakes.servers import Scripted


@pytest.fixture(params=["v1", "v2", "otlp"])
def api(request):
    return request.param


def test_redirect_is_not_followed_and_receives_no_secret(api, tmp_path):
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


def test_rotated_secret_is_read_again(api, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("old")
    basic = "Basic " + base64.b64encode(b"u:new").decode()
    good = {"v1": basic, "v2": "Token new", "otlp": "Bearer new"}[api]

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


def test_password_may_contain_any_text_and_a_token_only_ascii(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("пароль")
    with Scripted(lambda *_: (204, {}, b"")) as server:
        sink = sink_of("v1", server.url, user="ü", secret_file=secret)
        send(sink, b"m v=1 1")
        sink.close()
        ((_, path, headers, _),) = server.requests
        assert base64.b64decode(headers["Authorization"].split()[1]).decode() == "ü:пароль"
        assert "пароль" not in path
        with pytest.raises(Misconfigured, match="HTTP header") as caught:
            send(sink_of("v2", server.url, secret_file=secret), b"m v=1 1")
    assert "пароль" not in str(caught.value)
