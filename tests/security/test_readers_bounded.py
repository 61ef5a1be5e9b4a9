"""Every HTTP client is bounded in size and time, for any behaviour of the server."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from costprobe.adapters.http.errors import RetryLater
from costprobe.adapters.load_child.connection import (
    MAX_ANSWER_BYTES,
    ServerConnection,
    parse_target,
)
from costprobe.delivery.apprise import AppriseConfig
from costprobe.delivery.apprise_child import MAX_MEMORY_BYTES
from costprobe.delivery.kinds import build_notifier
from fakes.floods import FLOODS
from fakes.http_clients import CLIENTS
from fakes.incidents import incident
from fakes.servers import Talking

TIMEOUT_S = 0.7
# The largest limit of a client plus the kernel's socket buffers.
MOST_BYTES = MAX_ANSWER_BYTES + (16 << 20)


def served_probes_questions(url):
    connection = ServerConnection(parse_target(url, None, None), TIMEOUT_S)
    connection.query("GET", "/v1/models")
    connection.close()


def reader_of(name):
    """A client that sends one request to a URL, in any way that it ends."""
    make, error = CLIENTS[name]

    def read(url):
        with contextlib.ExitStack() as stack, contextlib.suppress(error):
            make(url, TIMEOUT_S, stack)()

    return read


READERS = {name: reader_of(name) for name in CLIENTS if name != "scrape"}
READERS["questions"] = served_probes_questions


@pytest.mark.parametrize("name", READERS)
def test_client_stops_within_its_limits_of_size_and_time(name):
    reader = READERS[name]

    def flooded(name):
        flood = FLOODS[name]()
        # Leaving the block waits for the server's thread, which ends with the connection.
        with Talking(flood) as server:
            # On a busy machine, a request can reach its limit of time before it is served.
            for _ in range(20):
                reader(server.url)
                if flood.received:
                    break
        return flood

    with ThreadPoolExecutor(len(FLOODS)) as pool:
        floods = dict(zip(FLOODS, pool.map(flooded, FLOODS), strict=True))
    assert {name for name, flood in floods.items() if not flood.sent} == set()
    sent = {name: max(flood.sent) for name, flood in floods.items() if flood.is_kept}
    assert {name: size for name, size in sent.items() if size > MOST_BYTES} == {}


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
