"""A store with a day of rows of a host with two GPUs."""

from pathlib import Path

from costprobe.adapters.store.write import Store
from costprobe.core.records import Event
from costprobe.core.schema import event_point, make_point
from costprobe.ui.dashboard.budgets import DashboardBudgets
from fakes import rows

NS_PER_S = 1_000_000_000
HOUR_NS = 3600 * NS_PER_S
HOST = {"host": "gpu-01"}
DEVICES = ("gpu0", "gpu1")
HOURS = 24
BUDGETS = Path(__file__).with_name("budgets.toml").read_text()
# Of each load: requests in flight, tokens/s of a user, tokens/s, currency per million tokens out, within the SLO.
LOADS = (
    (1, 60.0, 60.0, 9.0, True),
    (4, 52.0, 200.0, 2.8, True),
    (8, 45.0, 330.0, 1.7, True),
    (16, 30.0, 400.0, 1.4, False),
    (32, 15.0, 390.0, 1.45, False),
)


def row(measurement, time_ns, fields, **tags):
    """A row of the host."""
    return make_point(measurement, {**HOST, **tags}, fields, time_ns)


def cost_rows(device, count, time_ns, cost=1.6e-6, plan="owned"):
    """A probe row and its cost row at one instant; the cost rises slightly with each."""
    amount = cost * (1 + count / 1000) * (1 + DEVICES.index(device))
    own = {**HOST, "device": device, "probe": "encoder"}
    run = rows.run(own, time_ns, 11.5 + count / 500, batch=16, energy_j=0.21)
    hourly = {"currency": "EUR", "rolling_1h": amount}
    paid = {**own, "plan": plan}
    return [run, rows.run_cost(paid, time_ns, amount * 0.75, amount * 0.25, **hourly)]


def many_rows(now_ns):
    """A day of a probe on twelve equal devices; the last one's cost rises by a tenth at noon."""
    for number in range(12):
        own = {"device": f"gpu{number}", "probe": "many", "basis": "probe", "currency": "EUR"}
        for hour in range(HOURS, 0, -1):
            rise = 1.1 if number == 11 and hour <= HOURS // 2 else 1.0
            amount = 2e-6 * rise * (1 + number / 1e4)
            fields = {"cost_per_inference": amount, "cost_reference": amount}
            yield row("cost", now_ns - hour * HOUR_NS + 60 * NS_PER_S, fields, **own)


def served_rows(time_ns):
    """A window of a service with two models: its own row, then one of each."""
    own = {**HOST, "device": "gpu0", "service": "chat", "currency": "EUR"}
    for model, amount in (("", 0.3), ("base", 0.2), ("tuned", 0.9)):
        counts = {"inferences": 1000.0, "requests": 1000.0, "tokens_in": 2000.0}
        cached = {
            "cached_tokens": 1000.0,
            "fresh_tokens": 1000.0,
            "cost_cache_saved": amount / 1000,
        }
        split = {"cost_tokens_in": amount, "cost_tokens_fresh": amount, "cost_tokens_cached": 0.0}
        drawn = {"energy_j": amount * 1e6, "energy_tokens_in_j": amount * 1e6}
        said = {"token_split": "weights", "energy_method": "counter", "energy_rel_err": 0.05}
        sums = {**counts, **cached, **split, **drawn, **said}
        yield rows.window_cost({**own, "served_model": model}, time_ns, 300, amount, **sums)


def labelled_rows(time_ns):
    """A window of a service with a label: its cost per inference, and its share of a device."""
    own = {**HOST, "device": "gpu0", "service": "rank", "currency": "EUR", "team": "search"}
    return [
        rows.window_cost(own, time_ns, 300, 0.3, inferences=1000.0),
        rows.allocation(own, time_ns, "busy", 0.5, currency="EUR"),
        rows.allocation(own, time_ns, "idle", 0.25, currency="EUR"),
    ]


def tenant_rows(time_ns, costs):
    """A window of a service, divided among tenants; of one most is cached."""
    cached = {"tokens_in": 100.0, "cached_tokens": 90.0, "cost_cache_saved": 0.02}
    return [
        row(
            "tenant",
            time_ns,
            {"cost": cost, **(cached if tenant == "other" else {})},
            service="chat",
            currency="EUR",
            tenant=tenant,
        )
        for tenant, cost in costs.items()
    ]


def device_row(device, count, time_ns, **fields):
    is_idle = count % 4 == 0
    known = {
        "util_pct": 0.0 if is_idle else 95.0,
        "temp_c": 40.0 if is_idle else 71.0,
        "throttle_thermal_s": 0.0,
        "mem_used_bytes": 60 * 2**30,
        "mem_total_bytes": 141 * 2**30,
    }
    power_w = 120.0 if is_idle else 640.0 + count % 20
    own = {**HOST, "device": device}
    described = {"model": "H200", "currency": "EUR"}
    return rows.device(own, time_ns, 60, 2.4, power_w, **described, **known | fields)


def sweep_rows(time_ns):
    """A sweep whose cheapest batch is 32."""
    own = {**HOST, "device": "gpu0", "probe": "encoder"}
    for batch in (1, 2, 4, 8, 16, 32, 64):
        cost = {"cost": 1e-5 / batch + batch * 1e-8, "currency": "EUR", "cheapest": batch == 32}
        yield rows.swept(own, time_ns, batch, 3.0 + batch / 4, energy_j=1.0 / batch, **cost)


def load_rows(time_ns):
    """A load curve of a server, whose last point is slower than one that costs as much."""
    own = {"device": "gpu1", "probe": "chat", "loop": "closed", "currency": "EUR"}
    for step, (flying, speed, tokens, cost, is_within) in enumerate(LOADS, 1):
        fields = {
            "throughput_per_s": tokens / 100,
            "tokens_out_per_s": tokens,
            "tokens_per_s_user": speed,
            "cost_per_million_tokens_out": cost,
            "cost_per_inference": cost / 1e4,
            "tpot_p50_ms": 1000 / speed,
            "slo": "tpot_p50 25 ms",
            "meets_slo": is_within,
            "cheapest": flying == 8,
            "front": flying != 32,
        }
        yield row("sweep", time_ns, fields, **own, step=str(step), concurrency=str(flying))


def event_rows(now_ns):
    """A drift and a price, and an incident that fired and was resolved."""
    drift = Event(
        kind="drift",
        severity="warning",
        title="cost per inference of encoder on gpu0: +8.5 %",
        time_ns=now_ns - 6 * HOUR_NS,
        detail="95 % of it is time per inference",
        device="gpu0",
        subject={"probe": "encoder"},
        cause="thermal throttling",
        metric="cost",
        change_pct=8.5,
    )
    at_ns = now_ns - 3 * HOUR_NS
    price = Event("price", "info", "gpu0 now costs €2.1 per hour", at_ns, device="gpu0")
    fired = {"rule": "drift", **HOST, "device": "gpu1"}
    past_ns = now_ns - 5 * HOUR_NS
    return [
        *(event_point(event, HOST) for event in (drift, price)),
        *rows.alert(fired, past_ns, "gpu1 drifted", hours=1, cause="driver"),
    ]


def status_document(path, now_ns):
    sinks = {"influxdb": {"retry_in_s": 12.0, "last_error": "connection refused"}}
    started_ns = now_ns - HOURS * HOUR_NS
    return rows.status(path, "gpu-01", started_ns, DEVICES, model="H200", sinks=sinks)


def write_status(store, now_ns):
    """The status of a daemon that runs, and one alert that fires."""
    text = "cost per inference of encoder on gpu0: +8.5 % <b>since noon</b>"
    labels = {**HOST, "device": "gpu0"}
    symptoms = [{"text": "latency +8 %"}, {"text": "cost +8.5 %"}]
    more = {"symptoms": symptoms, "cause": "thermal throttling"}
    alert = rows.firing("drift", text, now_ns - 6 * HOUR_NS, labels, **more)
    store.put_state("status", status_document(store.path, now_ns))
    store.put_state("alerts", {"alerts": [alert], "silenced": [], "silences": []})


def planned(store, clock, text=BUDGETS):
    """DashboardBudgets of a configuration file next to the store."""
    file = store.path.parent / "costprobe.toml"
    file.write_text(f'[store]\npath = "{store.path}"\n{text}')
    return DashboardBudgets(clock, file)


def filled(path, clock):
    """A store of a day, a run each five minutes and a reading each minute; the caller closes it."""
    store = Store.open(path, clock)
    now_ns = clock.time_ns()
    begin_ns = now_ns - HOURS * HOUR_NS
    made = [*sweep_rows(now_ns - HOUR_NS), *load_rows(now_ns - HOUR_NS), *event_rows(now_ns)]
    for device in DEVICES:
        for count in range(HOURS * 12):
            made += cost_rows(device, count, begin_ns + (60 + count * 300) * NS_PER_S)
        for count in range(HOURS * 60 - 1):
            made.append(device_row(device, count, begin_ns + (count + 1) * 60 * NS_PER_S))
    store.append(made)
    write_status(store, now_ns)
    return store
