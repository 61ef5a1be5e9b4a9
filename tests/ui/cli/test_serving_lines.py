"""Services in `costprobe status`, and the selection of their series."""

from costprobe.ui.cli.views.status_lines import probe_line, service_lines
from fakes.cli import same

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


def service(**changes):
    document = {"service": "chat", "engine": "vllm", "devices": ["gpu0", "gpu1"]}
    return {**document, "missing": [], "fault": None, "last": LAST, **changes}


def with_tenants(parts, counted_share=0.9, problems=()):
    tenants = {"counted_share": counted_share, "problems": list(problems), "parts": parts}
    return service(last={**LAST, "tenants": tenants})


def with_cache(tenant, **changed):
    """A service whose cache answered, with a tenant whose counters may not have it."""
    prices = {
        "cost_per_million_tokens_fresh": 2.0,
        "cost_per_million_tokens_cached": 0.25,
        "cost_per_million_tokens_out": 9.0,
        "cached_share": 0.8,
        "cost_cache_saved": 0.7,
    }
    rest = {"tenant": "unattributed", "cost": 0.2, "cost_share": 0.4, "cached_tokens": 4e4}
    search = {"tenant": "search", "cost": 0.3, "cost_share": 0.6, "tokens_in": 4e5}
    document = with_tenants([search | tenant, rest], 1.0)
    cost = {**LAST["cost"], **prices, **changed}
    return document | {"last": {**document["last"], "cached_tokens": 4e5, "cost": cost}}


def test_services_are_shown_with_costs_tenants_and_faults():
    costs = {**{f"team{number}": 0.1 - number / 100 for number in range(7)}, "unattributed": 0.02}
    parts = [{"tenant": name, "cost": cost, "cost_share": cost} for name, cost in costs.items()]
    cached = {"cached_tokens": 3.6e5, "cost_cache_saved": 0.63}
    failing = {"cost": None, "energy": None, "problems": ["http://x: away"], "restarts": 2}
    shown = {
        "a window": service(),
        "none yet": service(last=None),
        "faults": service(last={**LAST, **failing}, missing=["vllm:a"]),
        "many tenants": with_tenants(parts),
        "tenants that count too much": with_tenants(parts, 1.6, ["no answer"]),
        "cached tokens": with_cache(cached),
        "cached tokens, which no tenant counts and no calibration weighs": with_cache(
            dict.fromkeys(cached), cost_per_million_tokens_cached=0.0
        ),
    }
    texts = ["\n".join([f"# {name}", *service_lines(one), ""]) for name, one in shown.items()]
    same("services", "\n".join(texts))


def test_price_by_chunks_of_a_stream_is_marked():
    cost = {"currency": "USD", "cost_per_inference": 0.1, "cost_per_million_tokens_out": 5.0}
    document = {
        "device": "gpu0",
        "probe": "chat",
        "batch": 1,
        "tags": {"concurrency": "1"},
        "latency_p50_ms": 1.0,
        "throughput_per_s": 1.0,
        "cost": cost,
        **dict.fromkeys(("energy", "energy_absent", "price")),
    }
    for source, words in (
        ("usage", "per million tokens out"),
        ("chunks", "per million tokens out (chunks of the stream counted as tokens)"),
    ):
        assert probe_line({**document, "fields": {"token_source": source}}).endswith(words)
