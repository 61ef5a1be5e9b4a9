"""Set-up against a server with invalid responses ends with an error, without secrets."""

from contextlib import closing

import pytest
from costprobe.adapters.host.redaction import REDACTOR
from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxClient
from costprobe.ui.influx_setup.steps import SetupError, SetupOptions, write_new_secret
from costprobe.ui.influx_setup.v1 import InfluxqlApi
from costprobe.ui.influx_setup.v2 import InfluxV2Setup
from fakes.sending import config_of
from fakes.servers import Scripted

OPTIONS = SetupOptions(keep_s=86400.0, keep_hourly_s=86400.0)


def query(url, text="SHOW DATABASES"):
    with closing(InfluxqlApi(config_of("v1", url), SystemClock(), {})) as api:
        api.query(text)


def steps(url):
    config = config_of("v2", url)
    with closing(InfluxClient(config, config.org, SystemClock())) as client:
        client.use_token("a-token")
        InfluxV2Setup(client, config, OPTIONS, None).steps()


@pytest.mark.parametrize("ask", [query, steps])
def test_response_of_another_kind_is_an_error(ask):
    bodies = [b"<html>", b"[" * 60_000, b"\xff\xfe", b"null", b"[]", b"{}"]
    bodies += [b'{"results": []}', b'{"results": [1]}', b'{"orgs": [1]}', b'{"orgs": 1}']
    unclear = []
    for body in bodies:
        with Scripted(lambda *_, body=body: (200, {}, body)) as server:
            try:
                ask(server.url)
            except SetupError:
                continue
            unclear.append(body)
    assert not unclear


def test_secret_of_a_statement_is_not_shown():
    REDACTOR.learn("hunter2")
    words = b'{"results": [{"error": "error parsing query: hunter2"}]}'
    with Scripted(lambda *_: (200, {}, words)) as server, pytest.raises(SetupError) as caught:
        query(server.url, "CREATE USER a WITH PASSWORD 'hunter2'")
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
