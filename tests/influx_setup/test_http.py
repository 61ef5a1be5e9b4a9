"""Asking a database that misbehaves: an error in words, soon, with no secret in it."""

import contextlib

import pytest
from fakes.servers import Scripted, Talking

from agent.influx_setup.http import Api
from agent.influx_setup.secret import write_new_secret
from agent.influx_setup.wanted import SetupError
from agent.sinks.bounded import MAX_ANSWER_BYTES
from agent.sinks.settings import SinkSettings

SECRET = "a-token-of-all-access"  # noqa: S105 - of no server


def api(url, timeout_s=5.0):
    settings = SinkSettings(api="v2", url=url, bucket="b", timeout_s=timeout_s)
    return Api(settings, {"Authorization": f"Token {SECRET}"}, [SECRET])


@contextlib.contextmanager
def answering(status, body):
    with Scripted(lambda *_: (status, {}, body)) as server:
        found = api(server.url)
        yield found
        found.close()


def test_an_answer_without_end_is_cut():
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

    with Talking(flood) as server:
        found = api(server.url)
        with pytest.raises(SetupError, match="64 KiB"):
            found.get("/api/v2/buckets")
        found.close()
    # What the kernel's buffers hold beside the answer that is read.
    assert sent[0] < MAX_ANSWER_BYTES + (16 << 20)


def test_a_server_that_never_answers_is_left():
    with Talking(lambda connection: connection.recv(65536) and connection.recv(65536)) as server:
        found = api(server.url, timeout_s=0.3)
        with pytest.raises(SetupError, match=server.url):
            found.get("/api/v2/buckets")
        found.close()


@pytest.mark.parametrize("body", [b"<html>", b"[" * 60_000, b"\xff\xfe"])
def test_what_is_no_json_is_told(body):
    with answering(200, body) as found, pytest.raises(SetupError, match="no JSON"):
        found.get("/api/v2/buckets")


@pytest.mark.parametrize("body", [b"null", b"[]", b"{}", b'{"results": []}', b'{"results": [1]}'])
def test_what_is_no_answer_of_a_1x_is_told(body):
    with answering(200, body) as found, pytest.raises(SetupError, match="no answer of an InfluxDB"):
        found.query("SHOW DATABASES")


def test_a_secret_that_the_server_repeats_is_not_shown():
    for status in (400, 401, 500):
        with answering(status, f'{{"message": "no: {SECRET}"}}'.encode()) as found:
            with pytest.raises(SetupError) as told:
                found.send("POST", "/api/v2/buckets", {})
            assert SECRET not in str(told.value)
            assert str(status) in str(told.value)
    words = b'{"results": [{"error": "error parsing query: hunter2"}]}'
    with answering(200, words) as found:
        with pytest.raises(SetupError) as told:
            found.query("CREATE USER a WITH PASSWORD 'hunter2'", "hunter2")
        assert "hunter2" not in str(told.value)


def test_a_secret_replaces_no_file_and_a_failure_leaves_none(tmp_path):
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
