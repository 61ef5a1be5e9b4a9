"""Rows and secrets are sent to a trusted server only, a secret in a header and in no message."""

import base64
from contextlib import nullcontext

import pytest
from costprobe.adapters.http.errors import Misconfigured
from fakes.sending import send, sink_of
from fakes.servers import TLS, Scripted

LINE = b"m v=1 1"


@pytest.fixture(params=["v1", "v2", "otlp"])
def api(request):
    return request.param


def test_server_receives_rows_only_if_its_certificate_is_trusted(api, tmp_path):
    with Scripted(lambda *_: (204, {}, b""), tls=True) as server:
        for authority in (None, tmp_path / "missing.pem", TLS / "server.pem"):
            assert server.requests == []
            sink = sink_of(api, server.url, ca_file=authority)
            is_trusted = authority == TLS / "server.pem"
            with nullcontext() if is_trusted else pytest.raises(Misconfigured, match="ca_file"):
                send(sink, LINE)
            sink.close()
    assert len(server.requests) == 1


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
            send(sink, LINE)
        secret.write_text("new")
        send(sink, LINE)
        sink.close()


def test_password_may_contain_any_text_and_a_token_only_ascii(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("пароль")
    with Scripted(lambda *_: (204, {}, b"")) as server:
        sink = sink_of("v1", server.url, user="ü", secret_file=secret)
        send(sink, LINE)
        sink.close()
        ((_, path, headers, _),) = server.requests
        assert base64.b64decode(headers["Authorization"].split()[1]).decode() == "ü:пароль"
        assert "пароль" not in path
        with pytest.raises(Misconfigured, match="HTTP header") as caught:
            send(sink_of("v2", server.url, secret_file=secret), LINE)
    assert "пароль" not in str(caught.value)
