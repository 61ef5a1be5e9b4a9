"""Set-up against a server with invalid responses: a bounded wait and an error without secrets."""

import contextlib

import pytest
from costprobe.adapters.host.redaction import REDACTOR
from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxClient
from costprobe.ui.influx_setup.steps import SetupError, SetupOptions, write_new_secret
from costprobe.ui.influx_setup.v1 import InfluxqlApi
from costprobe.ui.influx_setup.v2 import InfluxV2Setup
from fakes.sending import config_of
from fakes.servers import Scripted, Talking

SECRET = "a-token-of-all-access"  # noqa: S105 - of no server
OPTIONS = SetupOptions(keep_s=86400.0, keep_hourly_s=86400.0)


@contextlib.contextmanager
def influxql(url, timeout_s=5.0):
    REDACTOR.learn(SECRET)
    config = config_of("v1", url, timeout_s=timeout_s)
    api = InfluxqlApi(config, SystemClock(), {"Authorization": f"Basic {SECRET}"})
    yield lambda: api.query("SHOW DATABASES")
    api.close()


@contextlib.contextmanager
def v2_setup(url, timeout_s=5.0):
    REDACTOR.learn(SECRET)
    config = config_of("v2", url, timeout_s=timeout_s)
    client = InfluxClient(config, config.org, SystemClock())
    client.use_token(SECRET)
    yield InfluxV2Setup(client, config, OPTIONS, None).steps
    client.close()


@pytest.fixture(params=[influxql, v2_setup])
def setup_against(request):
    return request.param


def answering(status, body):
    return Scripted(lambda *_: (status, {}, body))


def test_response_without_end_is_cut(setup_against):
    sent = []

    def flood(connection):
        connection.settimeout(60)
        connection.recv(65536)
        sent.append(0)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        with contextlib.suppress(OSError):
            while sent[-1] < 1 << 30:
                connection.sendall(b"1," * 32768)
                sent[-1] += 65536

    with (
        Talking(flood) as server,
        setup_against(server.url) as run_setup,
        pytest.raises(SetupError, match="65536"),
    ):
        run_setup()
    # The kernel's buffers hold this much besides the response that is read.
    assert sent[0] < 16 << 20


def test_server_without_a_response_is_named(setup_against):
    with (
        Talking(lambda connection: connection.recv(65536) and connection.recv(65536)) as server,
        setup_against(server.url, timeout_s=0.3) as run_setup,
        pytest.raises(SetupError, match=server.url),
    ):
        run_setup()


def test_response_of_another_kind_is_an_error(setup_against):
    bodies = [b"<html>", b"[" * 60_000, b"\xff\xfe", b"null", b"[]", b"{}"]
    bodies += [b'{"results": []}', b'{"results": [1]}', b'{"orgs": [1]}', b'{"orgs": 1}']
    unclear = []
    for body in bodies:
        with answering(200, body) as server, setup_against(server.url) as run_setup:
            try:
                run_setup()
            except SetupError:
                continue
            unclear.append(body)
    assert not unclear


def test_secret_in_a_response_is_not_shown(setup_against):
    for status in (400, 401, 500):
        body = f'{{"message": "no: {SECRET}"}}'.encode()
        with answering(status, body) as server, setup_against(server.url) as run_setup:
            with pytest.raises(SetupError) as caught:
                run_setup()
            assert SECRET not in str(caught.value)
            assert str(status) in str(caught.value)


def test_secret_of_a_statement_is_not_shown():
    REDACTOR.learn("hunter2")
    words = b'{"results": [{"error": "error parsing query: hunter2"}]}'
    with answering(200, words) as server:
        api = InfluxqlApi(config_of("v1", server.url), SystemClock(), {})
        with pytest.raises(SetupError) as caught:
            api.query("CREATE USER a WITH PASSWORD 'hunter2'")
        api.close()
    assert "hunter2" not in str(caught.value)


def test_secret_replaces_no_file_and_a_failure_leaves_none(tmp_path):
    path = tmp_path / "token"

    def refuse():
        raise SetupError("no")

    with pytest.raises(SetupError, match="no"):
        write_new_secret(path, refuse)
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(SetupError, match="cannot be written"):
        write_new_secret(path, lambda: "another")
    assert path.read_text() == "mine"
