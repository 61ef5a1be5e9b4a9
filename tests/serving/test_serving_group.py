"""Windows of services on a manual clock: edges, waiting, and booking at a stop."""

from dataclasses import replace

import pytest
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.core.schema import SERVING_RATIOS
from costprobe.serving.device_costs import Claimant
from fakes.inference_server import InferenceServer
from fakes.services import service, service_table
from fakes.serving_bench import ServingBench
from fakes.serving_engine import ServingEngine


@pytest.fixture
def engine():
    return ServingEngine()


@pytest.fixture
def server(engine):
    with engine.over_http() as server:
        yield server


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(*tables):
        made.append(ServingBench(tmp_path, *tables))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


def test_window_is_allocated_at_its_end_when_readings_cover_it(bench, engine, server):
    """Whatever the wall clock does after its end."""
    at_work = bench(service_table("chat", server.url, "gpu0"))
    at_work.move(300, read=False)
    engine.serve(requests=100)
    ended_ns = at_work.clock.time_ns()
    at_work.close()
    assert at_work.rows("serving") == []
    at_work.clock.step(3600)
    at_work.move(1)
    at_work.jobs["serving costs"]()
    (row,), (cost,) = at_work.rows("serving"), at_work.rows("cost")
    assert (row.fields["requests"], row.fields["window_s"]) == (100, 300)
    assert cost.fields["cost_total"] == pytest.approx(0.3 + 90_000 * 1e-7)
    assert cost.fields["cost_per_request"] == pytest.approx(0.00309)
    assert cost.time_ns == row.time_ns == ended_ns


def test_wait_for_a_silent_device_is_bounded(bench, server):
    at_work = bench(service_table("chat", server.url, "gpu0"))
    at_work.move(300, read=False)
    at_work.close()
    at_work.move(24, read=False)
    at_work.jobs["serving costs"]()
    assert at_work.rows("serving") == []
    at_work.move(2, read=False)
    at_work.jobs["serving costs"]()
    (row,) = at_work.rows("serving")
    assert row.fields["problem"] == "the energy of gpu0 was not measured all the time"
    assert at_work.rows("cost") == []
    (status,) = at_work.serving.status()
    assert status["last"]["cost_problems"] == [row.fields["problem"]]


def test_window_waits_for_a_probe_that_runs_at_its_end(bench, server):
    at_work = bench(service_table("chat", server.url, "gpu0"))
    at_work.move(290)
    at_work.runs.begin("gpu0", at_work.clock.monotonic_ns())
    at_work.move(10)
    at_work.close()
    assert at_work.rows("serving") == []
    at_work.runs.end("gpu0", at_work.clock.monotonic_ns(), None)
    at_work.jobs["serving costs"]()
    (probing,) = at_work.rows("allocation", device="gpu0", part="probing")
    assert probing.fields["cost"] == pytest.approx(10 * 0.001 + 3000 * 1e-7)


def test_services_that_share_a_device_end_windows_together(bench, engine, server):
    at_work = bench(
        service_table("a", server.url, "gpu0", share="75%"),
        service_table("b", server.url, "gpu0", "gpu1", share="25%"),
    )
    assert [name for name in at_work.jobs if name.startswith("window ")] == ["window a+b"]
    at_work.move(300)
    engine.serve(requests=10)
    at_work.close()
    rows = at_work.rows("serving")
    assert {(row.tags["service"], row.fields["window_s"], row.time_ns) for row in rows} == {
        ("a", 300.0, at_work.clock.time_ns()),
        ("b", 300.0, at_work.clock.time_ns()),
    }
    each = 0.3 + 90_000 * 1e-7
    (first,), (second,) = at_work.rows("cost", service="a"), at_work.rows("cost", service="b")
    assert first.fields["cost_total"] == pytest.approx(0.75 * each)
    assert second.fields["cost_total"] == pytest.approx(0.25 * each + 0.25 * each)
    # The remainder beyond its share of its exclusive device is unallocated.
    (rest,) = at_work.rows("allocation", device="gpu1", part="unallocated")
    assert rest.fields["cost"] == pytest.approx(0.75 * each)


def test_part_of_a_group_has_its_cost_and_no_unit_costs(bench, engine, server):
    """A pool of a disaggregated server, and a host of an engine whose counters another host has."""
    group = {"group": "big"}
    without_url = '[[service]]\nname = "b"\nengine = "vllm"\ngroup = "big"\nrole = "worker"\n'
    at_work = bench(
        service_table("a", server.url, "gpu0", **group, role="decode"),
        without_url + 'devices = ["gpu1"]\n',
    )
    at_work.move(300)
    engine.serve(requests=10)
    engine.extra = 'vllm:nixl_bytes_transferred_sum{model_name="m"} 4096\n'
    engine.extra += 'vllm:nixl_xfer_time_seconds_sum{model_name="m"} 0.5\n'
    at_work.close()
    (decode,), (worker,) = at_work.rows("cost", service="a"), at_work.rows("cost", service="b")
    each = 0.3 + 90_000 * 1e-7
    tokens = {"cost_tokens_in": 0.0, "cost_tokens_fresh": 0.0, "cost_tokens_cached": 0.0}
    tokens["cost_tokens_out"] = each
    known = {"cost_total": each, "cost_idle": 0.6 * each, "energy_j": 90_000, "window_s": 300}
    counts = {ratio.per for ratio in SERVING_RATIOS.values()} - {"cost_idle_known"}
    divided = {"requests", "tokens_in", "tokens_out", "inferences", *SERVING_RATIOS, *counts}
    for row, role, of_tokens in ((decode, "decode", tokens), (worker, "worker", {})):
        assert (row.tags["service_group"], row.tags["service_role"]) == ("big", role)
        found = {name: row.fields[name] for name in row.fields if name.startswith("cost_tokens_")}
        assert found == pytest.approx(of_tokens)
        assert {name: row.fields[name] for name in known} == pytest.approx(known, rel=0.02)
        assert divided & {*row.fields} == {"idle_share"}
        assert row.fields["rolling_1h_coverage"] > 0
        assert "rolling_1h" not in row.fields
    counted = {row.tags["service"]: row.fields for row in at_work.rows("serving")}
    assert (counted["a"]["requests"], counted["a"]["tokens_out"]) == (10, 500)
    assert (counted["a"]["kv_transfer_bytes"], counted["a"]["kv_transfer_s"]) == (4096, 0.5)
    assert counted["b"]["complete"]
    assert {"requests", "tokens_in", "problem"} & {*counted["b"]} == set()
    (decode, worker) = at_work.serving.status()
    assert (worker["group"], worker["role"], worker["fault"]) == ("big", "worker", None)
    assert worker["last"]["cost"]["cost_per_request"] is None
    assert decode["last"]["requests"] == 10


def test_stop_allocates_cost_until_the_last_reading(bench, engine, server):
    """Of a window that has begun, and of one that waits for its readings."""
    at_work = bench(service_table("chat", server.url, "gpu0"))
    at_work.move(300)
    at_work.close()
    at_work.move(395)
    at_work.move(5, read=False)
    engine.serve(requests=10)
    at_work.close()
    at_work.serving.stop()
    booked = sum(row.fields["cost"] for row in at_work.rows("allocation"))
    assert booked == pytest.approx(2 * (690 * 0.001 + 690 * 300 * 1e-7))
    assert len(at_work.rows("serving")) == 1


def test_rolling_cost_starts_with_stored_windows_of_its_currency(bench, engine, server):
    at_work = bench(service_table("chat", server.url, "gpu0"))
    for requests in (30, 0):
        engine.serve(requests=requests)
        at_work.move(300)
        at_work.close()
    before = at_work.serving.status()[0]["last"]
    at_work.ledger = StoreLedger(at_work.store)
    at_work.begin()
    # A restart keeps the last window until the next one ends.
    assert before
    assert at_work.serving.status()[0]["last"] == before
    engine.serve(requests=10)
    at_work.move(300)
    at_work.close()
    cost = at_work.rows("cost")[-1]
    # Three windows that cost the same, one of them idle, over forty requests.
    assert cost.fields["rolling_1h"] == pytest.approx(3 * 0.309 / 40)
    assert cost.fields["rolling_1h_coverage"] == pytest.approx(0.25)
    assert cost.fields["rolling_24h_coverage"] == pytest.approx(900 / 86_400)
    (status,) = at_work.serving.status()
    assert status["last"]["rolling"]["rolling_1h"] == cost.fields["rolling_1h"]


def test_failing_endpoint_and_its_recovery_have_one_event_each(bench, engine, server):
    at_work = bench(service_table("chat", server.url, "gpu0"))
    engine.is_away = True
    at_work.scrape()
    at_work.scrape()
    assert "503" in at_work.serving.status()[0]["fault"]
    engine.is_away = False
    at_work.scrape()
    at_work.scrape()
    assert [event.severity for event in at_work.events] == ["warning", "info"]
    assert all(event.subject == {"service": "chat"} for event in at_work.events)
    assert at_work.serving.status()[0]["fault"] is None
    at_work.move(300)
    at_work.close()
    (row,) = at_work.rows("serving")
    assert not row.fields["complete"]
    assert at_work.rows("cost") == []
    # The cost of the devices is unchanged.
    assert sum(r.fields["cost"] for r in at_work.rows("allocation")) == pytest.approx(0.618)


def container(name, *devices, shares=None, service=None):
    return Claimant(f"prod:{name}:main", devices, shares or {}, service=service)


def test_scraped_container_counts_across_a_change_of_its_group(bench, engine, server):
    pod = service("prod:chat:main", url=server.url)
    chat = container("chat", "gpu0", service=pod)
    at_work = bench()
    at_work.serving.replace([chat])
    at_work.scrape()
    at_work.move(100)
    engine.serve(requests=10)
    # A second container shares its device from now on.
    shared = {"gpu0": 0.5}
    at_work.serving.replace(
        [replace(chat, shares=shared), container("train", "gpu0", shares=shared)]
    )
    engine.serve(requests=5)
    at_work.move(300)
    at_work.jobs["serving costs"]()
    at_work.close()
    rows = at_work.rows("serving")
    assert [(row.fields["requests"], row.fields["window_s"]) for row in rows] == [
        (10, 100),
        (5, 300),
    ]
    at_work.serving.replace([])
    assert not [name for name in at_work.jobs if name.startswith("service ")]


def litellm(*rows):
    """A page of LiteLLM; each row has a team, its tokens in and out, and the requested model."""
    lines = []
    for team, tokens_in, tokens_out, *model in rows:
        labels = f'requested_model="{[*model, "llama"][0]}",status_code="200",team="{team}"'
        counts = {"proxy_total_requests": 1, "input_tokens": tokens_in, "output_tokens": tokens_out}
        lines += [f"litellm_{name}_metric_total{{{labels}}} {n}\n" for name, n in counts.items()]
    return "".join(lines).encode()


def by_tenant(at_work, time_ns):
    rows = at_work.rows("tenant")
    return {row.tags["tenant"]: row.fields["cost"] for row in rows if row.time_ns == time_ns}


def test_cost_of_a_service_is_divided_among_the_teams_of_a_gateway(bench, engine, server, tmp_path):
    secret = tmp_path / "token"
    secret.write_text("gateway-word\n")
    secret.chmod(0o600)
    search = 9_000_000, 9_000_000  # before the first window
    pages = [
        (litellm(("search", *search)), 200),
        (
            litellm(
                ("search", search[0] + 4000, search[1] + 1000),  # weighs 8,000
                ("ads", 2000, 250),  # 3,000
                ("None", 1000, 500),  # 3,000 without a team
                ("late", 400, 400),  # 2,000, the third name
                ("search", 50_000, 50_000, "gpt"),  # not of this service
            ),
            200,
        ),
        (b"", 503),
    ]
    tokens = set()

    def answer(call):
        tokens.add(call.headers.get("Authorization"))
        call.whole(*pages[0])

    with InferenceServer(answer) as proxy:
        tenants = (
            f'[service.tenants]\ngateway = "litellm"\nurl = "{proxy.url}"\nlabel = "team"\n'
            f'models = ["llama"]\nnames = 2\ntoken = "file:{secret}"\n'
        )
        at_work = bench(service_table("chat", server.url, "gpu0", weight_out=4) + tenants)
        for _ in range(2):
            del pages[0]
            # A token out weighs as much as four tokens in: 10,000 + 4 x 2,500 = 20,000 of 0.309.
            engine.serve(requests=10, tokens_in=1000, tokens_out=250)
            at_work.move(300)
            at_work.close()
        failed = at_work.serving.status()[0]["last"]["tenants"]
    first, second = sorted({row.time_ns for row in at_work.rows("tenant")})
    # Unattributed are 3,000 of no team, and 4,000 that the gateway did not count.
    shares = {"search": 0.4, "ads": 0.15, "other": 0.1, "unattributed": 0.35}
    assert by_tenant(at_work, first) == pytest.approx({k: 0.309 * x for k, x in shares.items()})
    assert by_tenant(at_work, second) == {"unattributed": pytest.approx(0.309)}
    assert failed["counted_share"] is None
    assert "HTTP 503" in failed["problems"][0]
    assert tokens == {"Bearer gateway-word"}


def test_tenants_of_the_service_s_own_page_keep_their_names_after_a_restart(bench, engine, server):
    own = '[service.tenants]\nlabel = "model_name"\nrequests = "vllm:request_success_total"\nnames = 1'
    at_work = bench(service_table("chat", server.url, "gpu0") + own)
    for name in ("a", "b"):
        engine.serve(name, requests=1, tokens_in=0, tokens_out=0)
        at_work.move(300)
        at_work.close()
    at_work.begin()
    engine.serve("b", requests=3, tokens_in=0, tokens_out=0)
    engine.serve("a", requests=1, tokens_in=0, tokens_out=0)
    at_work.move(300)
    at_work.close()
    newest = max(row.time_ns for row in at_work.rows("tenant"))
    assert by_tenant(at_work, newest) == pytest.approx(
        {"a": 0.309 / 4, "other": 0.309 * 3 / 4, "unattributed": 0}
    )
