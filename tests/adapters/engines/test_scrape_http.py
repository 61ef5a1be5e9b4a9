"""Fetching metrics over real HTTP: tokens, certificates, and responses that cannot be used."""

import functools

from costprobe.adapters.engines.exposition import MAX_BYTES, ScrapeError
from costprobe.adapters.engines.scrape import MetricsFetcher
from costprobe.serving.meter import tenants_endpoint
from costprobe.serving.settings import ServiceConfig
from fakes.inference_server import InferenceServer
from fakes.servers import TLS, Scripted

SECRET = "very-secret-token"  # noqa: S105 - no error may contain it


def fetcher(timeout_s=5.0, **more):
    keys = {"name": "s", "url": "http://h", "engine": "vllm", "devices": ["gpu0"]}
    service = ServiceConfig.model_validate({**keys, "every": f"{timeout_s * 1000:g}ms", **more})
    return MetricsFetcher(service)


def fetched(answer, fetch=None, **server):
    with InferenceServer(answer, **server) as running:
        try:
            return (fetch or fetcher())(running.url + "/metrics"), running.calls
        except ScrapeError as error:
            return error, running.calls


def test_request_asks_for_the_uncompressed_text_format():
    body, (call,) = fetched(lambda call: call.whole(b"a 1\n"))
    assert body == b"a 1\n"
    assert (call.method, call.path) == ("GET", "/metrics")
    assert call.headers["Accept-Encoding"] == "identity"
    assert call.headers["Accept"].startswith("text/plain")
    assert "Authorization" not in call.headers


def test_service_and_its_tenants_behind_a_gateway_and_on_unix_sockets(tmp_path):
    (tmp_path / "key").write_text("gateway-key\n")
    own = {"headers": {"X-Scope-OrgID": "ml"}, "key": f"file:{tmp_path}/key"}
    tenants = {"gateway": "litellm", "label": "team", "url": f"unix://{tmp_path}/gateway.sock"}
    service = ServiceConfig.model_validate(
        {
            "name": "s",
            "url": [f"unix:{tmp_path}/a.sock", f"unix:{tmp_path}/b.sock:/prometheus/metrics"],
            "engine": "vllm",
            "devices": ["gpu0"],
            **own,
            "tenants": {**tenants, "headers": {"X-Tenant": "7"}},
        }
    )
    endpoint = tenants_endpoint(service, service.tenants)
    found = {}
    for each in (service, endpoint):
        for url in each.url:
            path = url.split(":")[1]
            with Scripted(lambda *_: (200, {}, b"a 1\n"), address=path) as server:
                assert MetricsFetcher(each)(url) == b"a 1\n"
            ((_, asked, headers, _),) = server.requests
            sent = {name: text for name, text in headers.items() if name.startswith("X-")}
            found[path.rpartition("/")[2], asked] = sent
    gateway = {"X-Scope-OrgID": "ml", "X-Api-Key": "gateway-key"}
    assert found == {
        ("a.sock", "/metrics"): gateway,
        ("b.sock", "/prometheus/metrics"): gateway,
        ("gateway.sock", "/metrics/"): {"X-Tenant": "7"},
    }


def test_token_is_read_for_each_request_and_never_shown(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    fetch = fetcher(token=f"file:{file}")
    _, (call,) = fetched(lambda call: call.whole(b""), fetch)
    assert call.headers["Authorization"] == f"Bearer {SECRET}"

    error, _ = fetched(lambda call: call.whole(call.headers["Authorization"].encode(), 401), fetch)
    assert "check token" in str(error)
    assert SECRET not in str(error)

    file.write_text("")
    error, calls = fetched(lambda call: call.whole(b""), fetch)
    assert "is empty" in str(error)
    assert calls == []


def test_token_may_be_a_systemd_credential(tmp_path, monkeypatch):
    (tmp_path / "metrics").write_text(SECRET)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    fetch = fetcher(token="credential:metrics")  # noqa: S106 - a place
    _, (call,) = fetched(lambda call: call.whole(b""), fetch)
    assert call.headers["Authorization"] == f"Bearer {SECRET}"
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    error, calls = fetched(lambda call: call.whole(b""), fetch)
    assert ("add LoadCredential= to the unit" in str(error), calls) == (True, [])


def test_sleeping_model_is_not_woken_and_has_the_counters_of_the_last_reading():
    asleep = [True]

    def answer(call):
        if call.path == "/props":
            call.json({"build_info": "b9760-6ee", "is_sleeping": asleep[0]})
        elif call.path == "/models":
            value = "sleeping" if asleep[0] else "loaded"
            call.json({"data": [{"id": "a/b", "status": {"value": value}}]})
        else:
            read = sum(call.path.startswith("/metrics") for call in server.calls)
            call.whole(b"hits %d\n" % read)

    not_loaded = "its model is not loaded, and a reading would load it"
    for query, read in (("", "/metrics"), ("?model=a%2Fb", "/metrics?model=a%2Fb&autoload=false")):
        fetch, found = fetcher(engine="llamacpp"), []
        with InferenceServer(answer) as server:
            for asleep[0] in (True, False, True, False):
                try:
                    found.append(fetch(f"{server.url}/metrics{query}"))
                except ScrapeError as error:
                    found.append(str(error))
            paths = [call.path for call in server.calls if call.path.startswith("/metrics")]
        assert found == [not_loaded, b"hits 1\n", b"hits 1\n", b"hits 2\n"]
        assert paths == [read] * 2


def test_server_without_a_usable_state_is_read():
    states = [b"", b"[]", b'{"build_info": 5, "is_sleeping": "true"}', b"{" * 5000]
    for state in states:

        def answer(call, state=state):
            call.whole(state if call.path == "/props" else b"a 1\n")

        assert fetched(answer, fetcher(engine="llamacpp"))[0] == b"a 1\n"


def test_unusable_response_is_named():
    table = {
        f"larger than {MAX_BYTES} bytes": lambda call: call.whole(b"x" * (MAX_BYTES + 1)),
        "the response is compressed": lambda call: call.whole(b"\x1f", Content_Encoding="gzip"),
        "HTTP 404: no reason given; check the path": lambda call: call.whole(b"", 404),
        "HTTP 206": lambda call: call.whole(b"a 1\n", 206),
        "HTTP 500": lambda call: call.whole(b"", 500),
        "IncompleteRead": lambda call: call.whole(b"a 1\n", Content_Length="400"),
        "BadStatusLine": lambda call: call.write(b"malformed\r\n\r\n"),
        "RemoteDisconnected": lambda call: call.cut(),
    }
    found = {}
    for words, answer in table.items():

        def answer_and_close(call, answer=answer):
            answer(call)
            call.cut()

        found[words] = fetched(answer_and_close)[0]
    assert {words: str(e) for words, e in found.items() if words not in str(e)} == {}
    assert {type(error) for error in found.values()} == {ScrapeError}


def test_endless_response_ends_at_its_limits_of_bytes_and_of_time():
    def endless(call, part=b"a" * 65536, pause_s=0.0):
        call.start_stream()
        while not call.pause(pause_s):
            call.chunk(part)

    assert f"larger than {MAX_BYTES} bytes" in str(fetched(endless)[0])
    slow = functools.partial(endless, part=b"a 1\n", pause_s=0.05)
    assert str(fetched(slow, fetcher(timeout_s=0.5))[0]) == "no response within 0.5 s"


def test_ca_file_is_used():
    trusted = fetcher(ca_file=TLS / "server.pem")
    assert fetched(lambda call: call.whole(b"a 1\n"), trusted, tls=True)[0] == b"a 1\n"
    error, _ = fetched(lambda call: call.whole(b"a 1\n"), tls=True)
    assert "is ca_file the server's authority?" in str(error)
