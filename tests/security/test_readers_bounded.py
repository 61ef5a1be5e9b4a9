"""Every HTTP client is bounded in size and time, for any behaviour of the server."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.adapters.http.errors import DeliveryError, RetryLater
from costprobe.adapters.load_child.connection import (
    MAX_ANSWER_BYTES,
    Failure,
    ServerConnection,
    parse_target,
)
from costprobe.delivery.apprise import AppriseConfig
from costprobe.delivery.apprise_child import MAX_MEMORY_BYTES
from costprobe.delivery.kinds import build_notifier
from costprobe.delivery.webhook import WebhookConfig
from costprobe.pricing.plans import SpotPlan
from fakes.floods import FLOODS
from fakes.incidents import incident
from fakes.sending import send, sink_of
from fakes.servers import Talking

TIMEOUT_S = 0.7
# The largest limit of a client plus the kernel's socket buffers.
MOST_BYTES = MAX_ANSWER_BYTES + (16 << 20)


def notifier(config):
    sender = build_notifier(config)
    with contextlib.suppress(DeliveryError):
        sender.send([incident()], 1)
    sender.close()


def webhook(url, _):
    notifier(WebhookConfig(name="n", kind="webhook", url=url, timeout=f"{TIMEOUT_S:g}s"))


def apprise(url, folder):
    file = folder / "url"
    file.write_text(url.replace("http:", "json:"))
    notifier(AppriseConfig(name="n", kind="apprise", url=f"file:{file}", timeout="3s"))


def spot_price(url, _):
    with contextlib.suppress(SourceError):
        read_source(SpotPlan(plan="spot", url=url), TIMEOUT_S)


def sink(**own):
    built = sink_of(timeout_s=TIMEOUT_S, **own)
    with contextlib.suppress(DeliveryError):
        send(built, b"m f=1 1")
    built.close()


def influxdb_1(url, _):
    sink(api="v1", url=url, database="d")


def influxdb_2(url, _):
    sink(api="v2", url=url, org="o", bucket="b")


def otlp(url, _):
    sink(api="otlp", url=url)


def served_probe(url, _):
    connection = ServerConnection(parse_target(url, None, None), TIMEOUT_S)
    with contextlib.suppress(Failure):
        connection.exchange("POST", "/v1/chat/completions", b"{}", lambda *_: False)
    connection.close()


def served_probes_questions(url, _):
    connection = ServerConnection(parse_target(url, None, None), TIMEOUT_S)
    connection.query("GET", "/v1/models")
    connection.close()


# Each client with its maximum number of bytes.
READERS = {
    webhook: MOST_BYTES,
    apprise: MAX_MEMORY_BYTES,
    spot_price: MOST_BYTES,
    otlp: MOST_BYTES,
    influxdb_1: MOST_BYTES,
    influxdb_2: MOST_BYTES,
    served_probe: MOST_BYTES,
    served_probes_questions: MOST_BYTES,
}


@pytest.mark.parametrize(
    ("reader", "most_bytes"), READERS.items(), ids=[r.__name__ for r in READERS]
)
def test_client_stops_within_its_limits_of_size_and_time(reader, most_bytes, tmp_path):
    def flooded(name):
        flood, folder = FLOODS[name](), tmp_path / name
        folder.mkdir()
        # Leaving the block waits for the server's thread, which ends with the connection.
        with Talking(flood) as server:
            reader(server.url, folder)
        return flood

    # Apprise runs in one child process per message, whose limits apply.
    names = ("a body without an end", "a slow body") if reader is apprise else FLOODS
    with ThreadPoolExecutor(len(names)) as pool:
        floods = dict(zip(names, pool.map(flooded, names), strict=True))
    assert {name for name, flood in floods.items() if not flood.sent} == set()
    sent = {name: max(flood.sent) for name, flood in floods.items() if flood.is_kept}
    assert {name: size for name, size in sent.items() if size > most_bytes} == {}


def test_apprise_reaches_its_memory_limit_before_its_timeout(tmp_path):
    flood = FLOODS["an error's body without an end"]()
    file = tmp_path / "url"
    with Talking(flood) as server:
        file.write_text(server.url.replace("http:", "json:"))
        config = AppriseConfig(name="n", kind="apprise", url=f"file:{file}", timeout="100s")
        sender = build_notifier(config)
        with pytest.raises(RetryLater) as caught:
            sender.send([incident()], 1)
        sender.close()
    assert "not delivered within" not in caught.value.reason
    assert 0 < max(flood.sent) <= MAX_MEMORY_BYTES
