"""Services in `costprobe status`, and the selection of their series."""

import json
import time

import pytest
from click.testing import CliRunner
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from costprobe.ui.cli.main import main
from costprobe.ui.cli.views.status_lines import probe_line, service_lines
from fakes.clock import FakeClock

LAST = {
    "time_ns": 1_780_000_000 * 10**9,
    "window_s": 300.0,
    "requests": 1234.0,
    "errors": 2.0,
    "tokens_in": 500_000.0,
    "tokens_out": None,
    "restarts": 0,
    "busy_share": 0.4,
    "problems": [],
    "cost_problems": [],
    "missing": [],
    "currency": "USD",
    "cost": {
        "cost_total": 0.5,
        "cost_per_request": 0.0004,
        "cost_per_inference": 0.0004,
        "cost_per_million_tokens_in": 1.0,
        "cost_per_million_tokens_out": None,
        "token_split": "weights",
        "idle_share": 0.6,
    },
    "energy": {
        "energy_j": 90_000.0,
        "energy_tokens_in_j": 90_000.0,
        "energy_tokens_out_j": None,
        "energy_per_inference_j": 72.93,
        "energy_per_request_j": 72.93,
        "energy_per_million_tokens_in_j": 180_000.0,
        "energy_per_million_tokens_out_j": None,
        "energy_method": "counter",
        "energy_rel_err": 0.05,
        "energy_scope": "device",
        "energy_suspect": False,
    },
    "tenants": None,
    "rolling": {
        "rolling_1h": 0.0004,
        "rolling_1h_coverage": 1.0,
        "rolling_24h": 0.0005,
        "rolling_24h_coverage": 0.25,
        "rolling_7d": None,
        "rolling_7d_coverage": 0.1,
    },
}


def shown_with(tenants):
    last = {**LAST, "tenants": tenants}
    return "\n".join(
        service_lines(
            {
                "service": "chat",
                "engine": "vllm",
                "devices": ["gpu0"],
                "last": last,
                "missing": [],
                "fault": None,
            }
        )
    )


def test_tenants_with_the_largest_cost_are_shown_with_what_is_wrong():
    costs = {**{f"team{number}": 0.1 - number / 100 for number in range(7)}, "unattributed": 0.02}
    parts = [{"tenant": name, "cost": cost, "cost_share": cost} for name, cost in costs.items()]
    text = shown_with({"counted_share": 0.9, "problems": [], "parts": parts})
    assert "tenants: team0 $0.1 (10 %), team1 $0.09 (9 %)" in text
    assert "team4" in text
    assert "team5" not in text
    assert "and 3 more" in text
    assert "reduced" not in text
    more = shown_with({"counted_share": 1.6, "problems": ["no answer"], "parts": parts})
    assert "cost unattributed: no answer" in more
    assert "tenants count 160 % of the service's tokens" in more


def test_cached_tokens_are_shown_with_their_price_and_what_they_saved():
    prices = {
        "cost_per_million_tokens_fresh": 2.0,
        "cost_per_million_tokens_cached": 0.25,
        "cost_per_million_tokens_out": 9.0,
        "cached_share": 0.8,
        "cost_cache_saved": 0.7,
    }
    search = {"tenant": "search", "cost": 0.3, "cost_share": 0.6, "tokens_in": 4e5}
    search |= {"cached_tokens": 3.6e5, "cost_cache_saved": 0.63}
    rest = {"tenant": "unattributed", "cost": 0.2, "cost_share": 0.4, "cached_tokens": 4e4}
    one_price = "tenants' counters have no cached tokens: all their tokens in have one price"

    def shown(tenant, **changed):
        cost = {**LAST["cost"], **prices, **changed}
        tenants = {"counted_share": 1.0, "problems": [], "parts": [tenant, rest]}
        last = {**LAST, "cached_tokens": 4e5, "cost": cost, "tenants": tenants}
        return "\n".join(service_lines(service(last=last)))

    text = shown(search)
    assert (
        "$2 per million fresh tokens in, $0.25 per million cached tokens in, $9 per million tokens out,"
        " tokens split by token weights, 80 % of tokens in cached, saved $0.7, 60 % of it paid while it waits"
    ) in text
    assert "tenants: search $0.3 (60 %; 90 % of tokens in cached, saved $0.63)" in text
    assert one_price not in text
    uncounted = {**search, "cached_tokens": None, "cost_cache_saved": None}
    free = shown(uncounted, cost_per_million_tokens_cached=0.0)
    assert "$0 per million cached tokens in (no weight measured)" in free
    assert one_price in free


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("usage", "per million tokens out"),
        ("chunks", "per million tokens out (chunks of the stream counted as tokens)"),
    ],
)
def test_price_by_chunks_of_a_stream_is_marked(source, words):
    line = probe_line(
        {
            "device": "gpu0",
            "probe": "chat",
            "batch": 1,
            "tags": {"concurrency": "1"},
            "fields": {"token_source": source},
            "latency_p50_ms": 1.0,
            "throughput_per_s": 1.0,
            "energy": None,
            "energy_absent": None,
            "price": None,
            "cost": {
                "currency": "USD",
                "cost_per_inference": 0.1,
                "cost_per_million_tokens_out": 5.0,
            },
        }
    )
    assert line.endswith(words)


def service(**changes):
    document = {"service": "chat", "engine": "vllm", "devices": ["gpu0", "gpu1"]}
    return {**document, "missing": [], "fault": None, "last": LAST, **changes}


def test_window_is_shown_with_its_cost_per_request_and_token():
    text = "\n".join(service_lines(service()))
    assert text.startswith("service  chat (vllm on gpu0, gpu1): ")
    assert "1,234 requests, 2 failed, 500,000 tokens in" in text
    assert (
        "cost $0.5, $0.4 per 1,000 requests, $1 per million tokens in, tokens split by token weights, 60 % of it paid while it waits"
        in text
    )
    assert (
        "energy 90,000 J, 72.93 J per request, 180,000 J per million tokens in (counter ±5 %)"
    ) in text
    assert "tokens out" not in text
    assert "rolling 1h: $0.4 per 1,000\n" in text
    assert "rolling 24h: $0.5 per 1,000; 25 % covered" in text
    assert "7d" not in text


def test_service_faults_are_shown():
    last = {
        **LAST,
        "cost": None,
        "energy": None,
        "problems": ["http://x: away"],
        "restarts": 2,
    }
    lines = service_lines(service(last=last, missing=["vllm:a"]))
    text = "\n".join(lines)
    assert "counters reset 2 times" in text
    assert "no cost: http://x: away" in text
    assert "rolling 1h: $0.4 per 1,000" in text
    assert "missing counter: vllm:a" in text
    assert "no window is complete yet" in service_lines(service(last=None))[0]


@pytest.fixture
def costprobe(tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n')
    now_ns = time.time_ns()
    common = {"device": "gpu0", "plan": "owned", "currency": "EUR"}
    rows = [
        Point(
            "cost",
            {**common, "probe": "p", "basis": "probe"},
            {"cost_per_inference": 1.0},
            now_ns - 10**9,
        ),
        Point(
            "cost",
            {**common, "service": "chat", "basis": "serving"},
            {"cost_per_inference": 2.0, "cost_per_request": 2.0},
            now_ns - 10**9,
        ),
        Point(
            "cost",
            {**common, "service": "other", "basis": "serving"},
            {"cost_per_inference": 3.0},
            now_ns - 10**9,
        ),
        Point(
            "allocation",
            {"device": "gpu0", "service": "chat", "part": "idle", "currency": "EUR"},
            {"cost": 0.5},
            now_ns - 10**9,
        ),
    ]
    store = Store.open(tmp_path / "costprobe.db", FakeClock(now_ns))
    store.append(rows)
    store.close()

    def call(*arguments):
        result = CliRunner().invoke(main, ["--config", str(config), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    return call


def values(text):
    return [series["values"] for series in json.loads(text)["series"]]


def test_trend_filters_by_service_and_basis(costprobe):
    assert values(costprobe("trend", "--service", "chat", "--json")) == [[2.0]]
    assert values(costprobe("trend", "--label", "basis=probe", "--json")) == [[1.0]]
    assert sorted(values(costprobe("trend", "--label", "basis=serving", "--json"))) == [
        [2.0],
        [3.0],
    ]
    idle = costprobe("trend", "--field", "allocation.cost", "--service", "chat")
    assert "gpu0 chat idle " in idle


def test_export_has_the_costs_of_services(costprobe):
    lines = costprobe("export", "--measurement", "cost", "--measurement", "allocation")
    assert "basis=serving" in lines
    assert "part=idle" in lines
