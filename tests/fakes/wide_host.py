"""A host with 8 GPUs, 12 probe series, a service with two models, long names and three currencies."""

import json
import time
from pathlib import Path

import costprobe
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes import rows
from fakes.clock import FakeClock
from fakes.incidents import incident
from fakes.reported import HOUR_NS, S, end_ns

HOURS = 25
HOST = {"host": "inference-node-017.eu-central.example.com"}
GPUS = 8
PROBES = tuple(f"multilingual-embedding-encoder-v{number}" for number in range(1, 13))
SERVICE = "customer-support-assistant-production"
SERVED_MODELS = ("llama-3.1-70b-instruct-awq-int4", "mistral-small-24b-instruct-2501-fp8")
CURRENCIES = ("USD", "EUR", "JPY")


def _probe(number):
    """Name, device, currency and cost of one inference of a series; costs span six decades."""
    return (
        PROBES[number],
        f"gpu{number % GPUS}",
        CURRENCIES[number % len(CURRENCIES)],
        1.234567e-6 * 3.3**number,
    )


def _rows(until_ns):
    for number in range(GPUS):
        tags = {**HOST, "device": f"gpu{number}"}
        for step in range(HOURS * 12):
            at_ns = until_ns - step * 300 * S
            more = {"sm_clock_mhz": 1755.0, "mem_used_bytes": 61 * rows.GIB}
            yield rows.device(tags, at_ns, 300, 4.25, 651.4, util_pct=87.0, temp_c=71.0, **more)
    for number in range(len(PROBES)):
        probe, device, currency, each = _probe(number)
        own = {**HOST, "device": device, "probe": probe}
        for hour in range(HOURS):
            at_ns, factor = until_ns - hour * HOUR_NS, 1.3 if hour < 12 else 1.0
            more = {"latency_p99_ms": 1456.789, "throughput_per_s": 12345.6, "temp_max_c": 88.0}
            yield rows.run(own, at_ns, 1234.567 * factor, batch=128, energy_j=1234.5, **more)
            rolling = rows.rolling(each * factor)
            yield rows.run_cost(own, at_ns, each * factor, currency=currency, **rolling)
    sweep = {**HOST, "device": "gpu0", "probe": PROBES[0]}
    for batch in (1, 8, 64, 512):
        figures = {"latency_p90_ms": 23.4567 * batch, "throughput_per_s": 123_456.7}
        figures |= {"energy_rel_err": 0.05, "peak_memory_bytes": 70 * rows.GIB}
        figures |= {"energy_j": 1234.5, "cost": 1.2e-3 / batch, "cheapest": batch == 64}
        yield rows.swept(sweep, until_ns - 3 * HOUR_NS, batch, 12.3456 * batch, **figures)
    own = {**HOST, "device": "gpu0", "service": SERVICE}
    counts = {"requests": 4321.0, "tokens_in": 9e6, "tokens_out": 2e6}
    for at_ns in (until_ns - hour * HOUR_NS for hour in range(HOURS)):
        for model, total in zip(SERVED_MODELS, (4.1, 2.2), strict=True):
            named = {**own, "served_model": model}
            sums = {**counts, "inferences": 4321.0, "cost_idle": total / 3}
            sums |= {"cost_per_million_tokens_in": 0.31, "cost_per_million_tokens_out": 1.24}
            yield rows.window_cost(named, at_ns, 3600, total, **sums)
            fields = {**counts, "window_s": 3600.0, "complete": True}
            yield Point("serving", {**named, "engine": "vllm"}, fields, at_ns)
        for part in ("busy", "idle"):
            yield rows.allocation(own, at_ns, part, 2.1)


def _events(until_ns):
    title = f"cost per inference of {PROBES[0]} on gpu0: +30.0 % at constant price since 14:20 UTC"
    own = {**HOST, "device": "gpu0", "probe": PROBES[0]}
    detail = "95 % of it is time per inference; thermal throttling 11 % of the time"
    fields = {"severity": "warning", "title": title, "detail": detail, "change_pct": 30.0}
    fields["since_ns"] = until_ns
    yield Point(
        "event", {**own, "kind": "drift", "metric": "cost"}, fields, until_ns - 12 * HOUR_NS
    )
    price = {"severity": "info", "title": "price of gpu0", "before": "$3.9/h", "after": "$4.25/h"}
    price["detail"] = "plan on_demand from 2026-11-18, published by the cloud's list of prices"
    yield Point("event", {**HOST, "device": "gpu0", "kind": "price"}, price, until_ns - HOUR_NS)
    yield from rows.alert({**own, "rule": "drift"}, until_ns - 9 * HOUR_NS, title)


def _probe_status(number, now_ns, usual):
    probe, device, currency, each = _probe(number)
    rolling = rows.rolling(each, each / 9, coverage=0.41)
    last = {
        "device": device,
        "probe": probe,
        "cost": {"currency": currency, "cost_per_inference": each},
        "price": {"price_rate_per_h": "4.25", "currency": currency, "plan": "on_demand"},
        "rolling": rolling | {f"rolling_{name}_samples": 288 for name in ("1h", "24h", "7d")},
        "contended": number == 3,
    }
    own = {"device": device, "probe": probe, "next_ns": now_ns + 60 * S}
    return {**usual, **own, "last": {**usual["last"], **last}}


def _status(path, now_ns):
    text = Path(__file__).with_name("wide_host.json").read_text()
    usual = json.loads(text.replace('"{now_ns}"', str(now_ns)))
    return rows.status(
        path,
        HOST["host"],
        now_ns - 12 * 24 * HOUR_NS,
        [f"gpu{number}" for number in range(GPUS)],
        restarts=1,
        version=costprobe.__version__,
        probes=[_probe_status(number, now_ns, usual["probe"]) for number in range(len(PROBES))],
        **usual["status"],
    )


def wide_host(folder):
    """Write a configuration and its store of one day, with a status as of now; return its path."""
    path = folder / "costprobe.toml"
    probes = "".join(
        f'[[probe]]\nname = "{name}"\nkind = "cnn"\npython = "/nowhere/python"\n' for name in PROBES
    )
    config = Path(__file__).with_name("wide_host.toml").read_text().replace("{probes}", probes)
    path.write_text(f'[store]\npath = "{folder}/costprobe.db"\n{config}')
    now_ns, until_ns = time.time_ns(), end_ns()
    store = Store.open(folder / "costprobe.db", FakeClock(now_ns))
    store.register_sink("influxdb-of-the-observability-team")
    store.append([*_rows(until_ns), *_events(until_ns)])
    store.put_state("status", _status(store.path, now_ns))
    found = incident(
        since_ns=now_ns - 90 * S,
        summary=f"cost per inference of {PROBES[0]} on gpu0: +30.0 % at constant price",
        labels={**HOST, "device": "gpu0", "probe": PROBES[0]},
    ).to_document()
    store.put_state("alerts", {"alerts": [found], "silenced": [], "silences": []})
    store.close()
    return path
