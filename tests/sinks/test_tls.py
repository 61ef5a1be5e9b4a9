"""Over TLS the server has to prove who it is, and a wrong scheme loses nothing."""

import random
import threading

import pytest
from fakes.outbox import MemoryOutbox
from fakes.sending import send
from fakes.servers import TLS, InfluxDB, running

from agent.sinks.errors import Misconfigured
from agent.sinks.pusher import Pusher
from agent.sinks.registry import build_sink, check_sink
from agent.sinks.settings import SinkSettings

AUTHORITY = TLS / "server.pem"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    with running(InfluxDB, folder, "influxd", https=True) as started:
        started.query("CREATE DATABASE d")
        yield started


def test_a_server_that_is_vouched_for_is_written_to(server):
    settings = SinkSettings("v1", server.url, database="d", ca_file=AUTHORITY)
    assert check_sink(settings).ok
    sink = build_sink(settings)
    send(sink, b"vouched v=1 1")
    sink.close()
    assert server.points("d")["vouched", (), 1] == {"v": 1}


@pytest.mark.parametrize("api", ["v1", "v2"])
def test_a_server_that_nobody_vouches_for_is_not_spoken_to(server, api, tmp_path):
    for authority in (None, tmp_path / "missing.pem"):
        settings = SinkSettings(api, server.url, database="d", bucket="d", ca_file=authority)
        sink = build_sink(settings)
        with pytest.raises(Misconfigured, match="ca_file"):
            send(sink, b"unvouched v=1 1")
        sink.close()
        assert not check_sink(settings).ok
    assert ("unvouched", (), 1) not in server.points("d")


def test_the_client_of_v2_takes_the_authority_too(server):
    sink = build_sink(SinkSettings("v2", server.url, bucket="d", ca_file=AUTHORITY))
    # InfluxDB 1.6 has no /api/v2/write: that it says so came over the connection.
    with pytest.raises(Misconfigured, match="404"):
        send(sink, b"m v=1 1")
    sink.close()


@pytest.mark.parametrize("api", ["v1", "v2"])
def test_plain_http_to_a_tls_port_keeps_everything(server, api):
    outbox = MemoryOutbox([f"plain v={i} {i}" for i in range(100)])
    settings = SinkSettings(
        api, server.url.replace("https", "http"), database="d", bucket="d", timeout_s=5.0
    )
    pusher = Pusher(
        "s",
        outbox,
        build_sink(settings),
        threading.Event(),
        batch_points=100,
        flush_every_s=0.01,
        drain_points_per_s=10**6,
        rng=random.Random(1),
    )
    pusher.step()
    assert pusher.status()["last_error"]
    assert outbox.live.done_seq == 0
    assert outbox.rejected == []
    assert not check_sink(settings).ok
