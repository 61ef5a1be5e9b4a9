"""Counters of /metrics: sums of all rows that were ever stored."""

from contextlib import closing

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.rows import rendered
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import increments, make_point
from fakes.pages import served
from fakes.rows import as_known
from fakes.servers import answered
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
HOST = {"host": "h", "team": "search"}
DEVICE = {**HOST, "device": "gpu0", "kind": "gpu", "uuid": "u1", "model": "H100", "currency": "EUR"}
PRICED = {**HOST, "device": "gpu0", "service": "chat", "currency": "EUR"}
SERVED = {**HOST, "service": "chat", "engine": "vllm"}


def rows(time_ns):
    """Rows of one window, with values that floats cannot add exactly."""
    cost = {"cost_total": 0.3, "cost_idle": 0.1, "requests": 7.0, "tokens_out": 20.0}
    serving = {"requests": 7.0, "errors": 0.0, "window_s": 60.0, "busy_share": 0.75}
    basis = {**PRICED, "basis": "serving", "plan": "owned"}
    return [
        make_point("device", DEVICE, {"cost": 0.1, "energy_j": 0.7}, time_ns),
        # Another board in the same place continues the counter.
        make_point("device", {**DEVICE, "uuid": "u2"}, {"cost": 0.2}, time_ns),
        make_point("allocation", {**PRICED, "part": "busy"}, {"cost": 0.2}, time_ns),
        make_point("allocation", {**PRICED, "part": "idle"}, {"cost": 0.1}, time_ns),
        make_point("serving", SERVED, serving, time_ns),
        make_point("serving", {**SERVED, "served_model": "m"}, {"requests": 5.0}, time_ns),
        make_point("cost", basis, cost, time_ns),
        # The cost of a probe is no spend.
        make_point("cost", {**basis, "basis": "probe"}, {"cost_total": 9.0}, time_ns),
        make_point("probe", {**HOST, "probe": "p"}, {"latency_p50_ms": 2.5}, time_ns),
    ]


SHOWN = {
    "costprobe_cost_total": 0.3,
    "costprobe_energy_joules_total": 0.7,
    "costprobe_allocated_cost_total busy": 0.2,
    "costprobe_allocated_cost_total idle": 0.1,
    "costprobe_service_requests_total": 7,
    "costprobe_service_errors_total": 0,
    "costprobe_service_window_seconds_total": 60,
    "costprobe_service_idle_seconds_total": 15,
    "costprobe_service_busy_seconds_total": 45,
    "costprobe_model_requests_total": 5,
    "costprobe_service_cost_total": 0.3,
    "costprobe_service_idle_cost_total": 0.1,
    "costprobe_service_priced_requests_total": 7,
    "costprobe_service_priced_tokens_out_total": 20,
    "costprobe_probe_run_latency_seconds_count": 1,
    "costprobe_probe_run_latency_seconds_sum": 0.0025,
}


def page(store, clock, accept="", **options):
    """The content type and the text of /metrics."""
    with served(store, clock, **options) as host:
        _, headers, body = answered(f"http://{host}/metrics", Accept=accept)
        return headers["Content-Type"], body.decode()


def counted(text, parse=text_string_to_metric_families):
    """The values of the counters by name and, if there is one, part."""
    found = {}
    for family in parse(text):
        for sample in family.samples:
            is_total = sample.name.endswith(("_total", "_seconds_count", "_seconds_sum"))
            if is_total and family.type != "gauge" and "http" not in sample.name:
                part = sample.labels.get("part")
                found[f"{sample.name} {part}" if part else sample.name] = sample.value
    return found


def test_counters_are_exact_sums_that_outlive_retention_and_restarts(tmp_path, clock):
    now_ns = clock.time_ns()
    for day in range(3):
        store = Store.open(tmp_path / "costprobe.db", clock)
        for minute in range(10):
            window = rows(now_ns + (day * 1440 + minute) * 60 * NS_PER_S)
            store.append(window)
            # A commit that was reported as failed is repeated.
            store.write(rendered(window[:3]), repeated=True)
        while not store.retain(KeepSince(*[now_ns + day * 86400 * NS_PER_S] * 4)).is_done:
            pass
        assert counted(page(store, clock)[1]) == {
            name: pytest.approx(value * 10 * (day + 1), rel=1e-15) for name, value in SHOWN.items()
        }
        store.close()
    with closing(StoreReader.open(tmp_path / "costprobe.db")) as reader:
        totals = {(total.name, total.labels.get("part")): total.value for total in reader.totals()}
        assert str(totals["cost_total", None]) == "9.0"
        assert sum(1 for _ in reader.points("device", 0, 2**62)) < 60, "retention deleted rows"


def test_page_is_openmetrics_for_a_client_that_accepts_it(store, clock):
    store.append(rows(clock.time_ns()))
    kind, text = page(store, clock, OPENMETRICS)
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("# EOF\n")
    assert counted(text, openmetrics_families) == SHOWN
    assert page(store, clock, "text/html, */*")[0].startswith("text/plain; version=0.0.4")


def test_counter_with_the_most_series_is_cut_first_and_counted(store, clock):
    devices = [{"device": f"gpu{number:03}"} for number in range(130)]
    store.append([make_point("device", tags, {"energy_j": 1.0}, -1) for tags in devices])
    store.append(rows(-1))
    _, text = page(store, clock, max_series=100)
    assert set(counted(text)) == set(SHOWN)
    others = len(SHOWN) - 2 + 17  # energy apart; a histogram has buckets and no count of its own
    assert text.count("costprobe_energy_joules_total{") == 100 - others
    assert f"costprobe_metrics_dropped_series {131 - 100 + others}.0" in text
    # A histogram that would be incomplete is left out.
    store.append([make_point("probe", tags, {"latency_p50_ms": 1.0}, -1) for tags in devices])
    families = {
        f.name: f for f in openmetrics_families(page(store, clock, OPENMETRICS, max_series=100)[1])
    }
    for sample in families["costprobe_probe_run_latency_seconds"].samples:
        assert not sample.name.endswith("_count") or sample.value == 1


def test_metered_counters_have_only_windows_with_known_energy():
    tags = {**SERVED, **PRICED, "basis": "serving"}
    counts = {"requests": 2.0, "tokens_in": 3.0, "tokens_out": 4.0}
    found = [
        {one.name: float(one.value) for one in increments("cost", tags, fields)}
        for fields in (counts, as_known({**counts, "energy_j": 9.0, "energy_tokens_in_j": 1.0}))
    ]
    priced = {f"service_priced_{name}_total": value for name, value in counts.items()}
    metered = {f"service_metered_{name}_total": value for name, value in counts.items()}
    joules = {
        "service_energy_joules_total": 9.0,
        "service_tokens_in_energy_joules_total": 1.0,
    }
    assert found == [priced, priced | metered | joules]
