"""Every tag is bounded: hostile input cannot create an unlimited number of series."""

import itertools
import random
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from costprobe.adapters.engines.scrape import MAX_NAMES
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.alerts.settings import AlertingConfig
from costprobe.core.incident import Fault
from costprobe.core.line_protocol import series_key
from costprobe.core.records import NS_PER_S, Device, Event, Reading
from costprobe.core.schema import SCHEMA, event_point
from costprobe.devices.charges import device_point
from costprobe.probing.cost import CostSample, ProbeEnergy
from costprobe.probing.rows import run_points
from costprobe.serving.allocation import Line
from costprobe.serving.cost import ServedCost, ServiceCost, TokenShares, tenant_split
from costprobe.serving.meter import ServiceMeter, TenantNames, tenants_endpoint, tenants_engine
from costprobe.serving.rows import allocation_points, window_points
from costprobe.serving.settings import ServiceConfig
from fakes.runs import probe_run

HOST = {"host": "gpu-node-17", "rack": "r1"}
START_NS = 1_780_000_000 * NS_PER_S
ROUNDS = 300
# The bound of each tag's values on a host; a tag without one fails the test.
BOUNDED_BY = tomllib.loads(Path(__file__).with_name("bounded_tags.toml").read_text())


def hostile():
    """An endless sequence of distinct texts."""
    rng = random.Random(1)
    return (f"{rng.random()}, a=b {number}\n" * 3 for number in itertools.count())


def series_of(points):
    return {series_key(point.measurement, point.tags) for point in points}


def test_every_tag_of_the_schema_is_bounded():
    assert {tag for family in SCHEMA.values() for tag in family.tags} == BOUNDED_BY.keys()


def made_by_probe(texts, number):
    cost = CostSample("EUR", "owned", number + 1.0, 0.5, 1.0, is_stale=bool(number % 2))
    run = probe_run(
        batch=32,
        latency_ms={"p50": 1.0 + number, "mean": 1.0, "cv": 0.1},
        stop_reason=next(texts),
        fingerprint=next(texts),
        software={"driver": next(texts), "model": next(texts)},
        activity={"contended": bool(number % 2), "throttled_pct": float(number)},
        time_ns=START_NS + number,
        cost=cost,
        energy=ProbeEnergy(1.0, None, "counter", 0.1),
    )
    return run_points(run, HOST)


def made_by_device(texts, number):
    fields = {"power_w": float(number), "energy_method": next(texts)}
    device = Device("gpu0", "gpu", "GPU-1", "NVIDIA H100")
    reading = Reading("gpu0", number, number + 1, fields)
    return [device_point(reading, device, None, HOST, START_NS + number)]


def made_by_event(texts, number):
    texts_of_event = {name: next(texts) for name in ("title", "detail", "before", "after", "cause")}
    own = {"device": "gpu0", "subject": {"probe": "encoder"}, "metric": "cost"}
    event = Event(
        "drift", "warning", time_ns=START_NS + number, change_pct=number, **texts_of_event, **own
    )
    return [event_point(event, HOST)]


def made_by_allocation(texts, number):
    line = Line("gpu0", "chat", "idle", Decimal(number), Decimal(number), "EUR")
    return allocation_points([line], HOST, START_NS + number)


@pytest.mark.parametrize(
    ("made", "most"),
    [(made_by_probe, 2), (made_by_device, 1), (made_by_event, 1), (made_by_allocation, 1)],
)
def test_texts_and_numbers_add_no_series(made, most):
    texts = hostile()
    found = series_of(point for number in range(ROUNDS) for point in made(texts, number))
    assert len(found) == most


def test_alert_texts_add_no_series():
    texts = hostile()
    rules = effective_rules([], use_defaults=True)
    engine = AlertEngine(rules, AlertingConfig(), (), (), HOST)
    rows = []
    for number in range(ROUNDS):
        severity = "critical" if number % 2 else "warning"
        fault = Fault("device_lost", "gpu0", next(texts), severity, {"device": "gpu0"})
        faults = [fault] if number // 10 % 2 else []
        rows += engine.tick(START_NS + 600 * number * NS_PER_S, faults).points
    assert rows
    states = 3
    assert len(series_of(rows)) <= len(rules) * states


def page_of(names, count):
    """What a server shows: its counters of each model at `count`."""
    counters = ("request_success", "prompt_tokens", "generation_tokens")
    rows = (
        f'vllm:{counter}_total{{model_name="{name}"}} {count}\n'
        for counter in counters
        for name in names
    )
    return "".join(rows).encode()


def service_of(**more):
    known = {"name": "chat", "url": "http://127.0.0.1:1", "engine": "vllm", "devices": ["gpu0"]}
    return ServiceConfig.model_validate({**known, **more})


def clocks():
    """The two clocks of a meter, a second later at each reading."""
    times = itertools.count(START_NS, NS_PER_S)
    return (lambda: next(times),) * 2


def whole(counts, model="", **more):
    return ServedCost(model, counts, hardware=Decimal(1), energy=Decimal(0), idle=None, **more)


def cost_of(window, number, **parts):
    return ServiceCost(window, ("gpu0",), START_NS + number * NS_PER_S, **parts)


def test_labels_of_a_server_add_a_bounded_number_of_series():
    """A server with ever new model labels, odd ones among them."""
    seconds = itertools.count(1)

    def page(_):
        second = next(seconds)
        kept = [f"tenant-{number}" for number in range(second * 20)][-200:]
        return page_of(
            [*kept, *(f"{name}\\n\\u0007é{'x' * 300}" for name in kept[:20])], second * 10
        )

    meter = ServiceMeter(service_of(), page, *clocks())
    rows = []
    for number in range(60):
        window = meter.close_window()
        models = tuple(whole(counts, model) for model, counts in window.models.items())
        rows += window_points(
            cost_of(window, number, total=whole(window.total), models=models), HOST
        )
    # In each of two measurements: a row per named model, one for others, one without a model.
    assert MAX_NAMES < len(series_of(rows)) <= 2 * (MAX_NAMES + 2)


def test_tenants_add_a_bounded_number_of_series():
    tenants = {"label": "model_name", "tokens_in": "vllm:prompt_tokens_total", "names": 5}
    service = service_of(tenants=tenants)
    seconds, (clock, wall_clock) = itertools.count(1), clocks()

    def page(_):
        second = next(seconds)
        return page_of([f"team {number}" for number in range(second)], second * 10)

    meter = ServiceMeter(
        tenants_endpoint(service, service.tenants),
        page,
        clock,
        wall_clock,
        TenantNames(service.tenants, clock, {}),
        tenants_engine(service.tenants),
    )
    rows = []
    for number in range(60):
        counted = meter.close_window()
        total = whole(counted.total, tokens=TokenShares("weights", 1.0, 0.0))
        cost = cost_of(counted, number, total=total, tenants=tenant_split(total, counted))
        rows += [row for row in window_points(cost, HOST) if row.measurement == "tenant"]
    assert len(series_of(rows)) == 5 + 2


def test_series_beyond_the_bound_are_counted_as_other():
    count = 10
    names = [f"m{number}" for number in range(100)]
    meter = ServiceMeter(service_of(), lambda _: page_of(names, count), *clocks())
    meter.close_window()
    count = 20
    window = meter.close_window()
    assert window.total.requests == 100 * 10
    assert window.models["other"].requests == (100 - MAX_NAMES) * 10
