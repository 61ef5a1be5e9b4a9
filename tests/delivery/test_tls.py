"""TLS certificates are verified, and a wrong scheme loses nothing."""

import pytest
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.clock import SystemClock
from costprobe.delivery.kinds import build_sink as build
from costprobe.delivery.kinds import check_sink as check
from fakes.sending import config_of, send
from fakes.servers import TLS, InfluxDB, running

AUTHORITY = TLS / "server.pem"


def build_sink(config):
    return build(config, SystemClock())


def check_sink(config):
    return check(config, SystemClock())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    with running(InfluxDB, folder, "influxd", https=True) as started:
        started.query("CREATE DATABASE d")
        yield started


def test_server_with_a_trusted_certificate_is_written_to(server):
    settings = config_of("v1", server.url, ca_file=AUTHORITY)
    assert check_sink(settings).ok
    sink = build_sink(settings)
    send(sink, b"vouched v=1 1")
    sink.close()
    assert server.points("d")["vouched", (), 1] == {"v": 1}


@pytest.mark.parametrize("api", ["v1", "v2", "otlp"])
def test_server_with_an_untrusted_certificate_receives_nothing(server, api, tmp_path):
    for authority in (None, tmp_path / "missing.pem"):
        settings = config_of(api, server.url, ca_file=authority)
        sink = build_sink(settings)
        with pytest.raises(Misconfigured, match="ca_file"):
            send(sink, b"unvouched v=1 1")
        sink.close()
        assert not check_sink(settings).ok
    assert ("unvouched", (), 1) not in server.points("d")
