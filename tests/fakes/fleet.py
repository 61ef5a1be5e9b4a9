"""A simulated fleet: rows of hosts with GPUs, services and tenants, and their metrics as scraped.

Host `h01` is paid in EUR, `h02` is silent for the last half hour, `h03` was upgraded in between, `h04` was
off for a quarter of an hour, and the store of `h05` was created again: its counters start from 0.
"""

import math
import random
from collections import defaultdict
from functools import cache
from itertools import groupby

from costprobe.core.line_protocol import label_name, render
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import PREFIX, increments, make_point
from fakes.rows import as_known
from fakes.servers import get

END_S = 1_780_012_800
HOURS = 3
START_S = END_S - HOURS * 3600
STEP_S = 60
WINDOW_S = 300
SILENT_S = END_S - 1800
UPGRADED_S = END_S - 4500
OFF_S = range(END_S - 5400, END_S - 4500)
RESET_S = END_S - 3000
FAULT_S = END_S - 2400
HOSTS = 6
GPUS = 2
# The catalogue has the rates of the second one.
MODELS = ("H100", "L40S")
# The newest values that questions ask for.
GAUGES = (
    *("util_pct", "temp_c", "carbon_g", "latency_p50_ms", "sm_clock_mhz", "cost_per_inference"),
    *("energy_per_inference_j", "probe_runs", "rss_bytes"),
)
TENANTS = ("search", "ads")
CHUNK_LINES = 5000


def host_of(number):
    return f"h{number:02}"


def point(measurement, tags, fields, time_s):
    return make_point(measurement, tags, fields, time_s * NS_PER_S)


def hosts_rows(number, start_s=START_S, end_s=END_S, *, step_s=STEP_S, gpus=GPUS):
    """The rows of a host, in the order of their times; rows end at multiples of the step."""
    rng = random.Random(number)
    host, model = host_of(number), MODELS[number % len(MODELS)]
    currency = "EUR" if number == 1 else "USD"
    tags = {"host": host, "rack": f"r{number % 3}"}
    for time_s in range(start_s + step_s, end_s + 1, step_s):
        if (number == 2 and time_s > SILENT_S) or (number == 4 and time_s in OFF_S):
            continue
        version = "0.2.0" if number == 3 and time_s > UPGRADED_S else "0.1.0"
        yield point("agent", {**tags, "version": version}, {"rss_bytes": 40 << 20}, time_s)
        for gpu in range(gpus):
            device = f"gpu{gpu}"
            described = {"kind": "gpu", "device": device, "uuid": f"{host}-{device}"}
            described |= {"model": model, "currency": currency}
            yield from device_rows(rng, tags, described, time_s, step_s)
        if time_s % WINDOW_S == 0:
            yield from window_rows(rng, tags, gpus, currency, time_s)
        if number == 3 and time_s == FAULT_S:
            fault = {"severity": "critical", "title": "no reading"}
            yield point("event", {**tags, "kind": "fault", "device": "gpu1"}, fault, time_s)


def device_rows(rng, tags, described, time_s, step_s):
    power_w = rng.uniform(200, 500)
    fields = {
        "power_w": power_w,
        "energy_j": power_w * step_s,
        "util_pct": rng.uniform(20, 95),
        "temp_c": float(rng.randrange(50, 80)),
        "cost": rng.uniform(0.9, 1.1) * step_s / 1800,
    }
    if tags["host"] != "h01":
        fields |= {"carbon_g": power_w * step_s / 3.6e6 * 380, "carbon_energy_j": power_w * step_s}
    yield point("device", {**tags, **described}, fields, time_s)


def number_of(tags):
    return int(tags["host"].removeprefix("h"))


def window_rows(rng, tags, gpus, currency, time_s):
    """The rows of a window: allocation, service, tenants, and a run of a probe on each device."""
    total = 0.0
    for gpu in range(gpus):
        device = f"gpu{gpu}"
        for part in ("busy", "idle"):
            cost = rng.uniform(0.05, 0.08)
            total += cost
            allocated = {"device": device, "service": "chat", "part": part}
            allocated |= {"currency": currency, "team": "search"}
            yield point("allocation", {**tags, **allocated}, {"cost": cost}, time_s)
        latency_ms = rng.uniform(4, 5)
        probe = {**tags, "device": device, "probe": "ranker"}
        run = {"latency_p50_ms": latency_ms, "energy_per_inference_j": 0.5, "sm_clock_mhz": 1700.0}
        yield point("probe", {**probe, "batch": "8"}, run, time_s)
        software = {"driver": "550" if number_of(tags) % 2 else "570", "torch": "2.9"}
        yield point("software", {**probe, **software}, {"probe_runs": 1}, time_s)
        cost = {"cost_per_inference": latency_ms * 1e-6, "energy_per_inference_j": 0.5}
        based = {"basis": "probe", "plan": "owned", "currency": currency}
        yield point("cost", {**probe, **based}, cost, time_s)
    served = {
        **tags,
        "service": "chat",
        "team": "search",
        "basis": "serving",
        "plan": "owned",
        "currency": currency,
    }
    for model, share in (("", 1.0), ("base", 0.25), ("tuned", 0.75)):
        # Powers of two and thousands: sums of floats stay exact enough for 1e-9.
        inferences = float(rng.randrange(1000, 2000)) if not model else 1000 * share
        fields = {
            "cost_total": total * share,
            "cost_idle": total * share / 2,
            "cost_tokens_in": total * share / 4,
            "cost_tokens_out": total * share / 4 * 3,
            "inferences": inferences,
            "requests": inferences,
            "tokens_in": inferences * 200,
            "tokens_out": inferences * 100,
            "energy_j": total * share * 1e5,
            "window_s": float(WINDOW_S),
        }
        named = {**served, "served_model": model} if model else served
        yield point("cost", named, as_known(fields), time_s)
    for tenant in TENANTS:
        paid = {"service": "chat", "tenant": tenant, "currency": currency}
        fields = {"cost": total / 2, "tokens_out": 1000.0}
        yield point("tenant", {**tags, **paid}, fields, time_s)


@cache
def rows():
    """All rows of the simulated fleet."""
    return tuple(row for number in range(HOSTS) for row in hosts_rows(number))


def gpu_run(tags, time_s, each_s, *, probe, price_per_h, versions, clock_mhz, temp_c, **more):
    """A run of a probe whose inference takes `each_s` and 400 W on a GPU, its cost and its software."""
    energy_j, hardware = 400.0 * each_s, price_per_h / 3600 * each_s
    run = {"throughput_per_s": 1 / each_s, "energy_per_inference_j": energy_j}
    run |= {"sm_clock_mhz": clock_mhz, "temp_max_c": temp_c, **more}
    own = {**tags, "probe": probe}
    yield point("probe", {**own, "batch": "8"}, run, time_s)
    paid = {"basis": "probe", "plan": "owned", "currency": "EUR"}
    energy = 1e-7 * energy_j
    cost = {"cost_hardware": hardware, "cost_energy": energy}
    cost |= {"cost_per_inference": hardware + energy, "energy_per_inference_j": energy_j}
    yield point("cost", {**own, **paid}, cost, time_s)
    yield point("software", {**own, **versions}, {"probe_runs": 1}, time_s)


def lines():
    """All rows in line protocol."""
    return [render(row).encode() for row in rows()]


def write(server, found=None, **query):
    """Write lines to a database, by default all."""
    found = lines() if found is None else found
    for start in range(0, len(found), CHUNK_LINES):
        body = b"\n".join(found[start : start + CHUNK_LINES])
        get(f"{server.url}/write", body, **query)


def scraped():
    """The samples of a Prometheus that scrapes each host whenever it has new rows, in OpenMetrics."""
    hosts = (
        exposed(
            hosts_rows(number),
            {"instance": f"{host_of(number)}:9101", "job": "costprobe"},
            GAUGES,
            reset_s=RESET_S if number == 5 else math.inf,
        )
        for number in range(HOSTS)
    )
    yield from openmetrics(sample for samples in hosts for sample in samples)


def scraped_of(rows_of_hosts, **more):
    """The samples of a Prometheus that scrapes the hosts of these rows, in OpenMetrics."""
    ordered = sorted(rows_of_hosts, key=lambda row: (row.tags["host"], row.time_ns))
    hosts = (
        exposed(of_host, {"instance": f"{host}:9101", "job": "costprobe"}, **more)
        for host, of_host in groupby(ordered, key=lambda row: row.tags["host"])
    )
    return openmetrics(sample for samples in hosts for sample in samples)


def openmetrics(samples):
    """Samples as lines, by series."""
    by_series = defaultdict(list)
    for name, labels, value, time_s in samples:
        by_series[name, labels].append((value, time_s))
    for (name, labels), values in sorted(by_series.items()):
        shown = ",".join(f'{label_name(tag)}="{value}"' for tag, value in labels)
        for value, time_s in values:
            yield f"{name}{{{shown}}} {value!r} {time_s}"
    yield "# EOF"


def exposed(rows_of_host, instance, gauges=None, *, reset_s=math.inf, kept_s=0):
    """Name, labels, value and time of the samples of a host that is scraped whenever it has new rows.

    Its counters begin again at `reset_s`; a newest value is exposed for `kept_s`.
    """
    totals = defaultdict(float)
    newest = {}
    for time_ns, together in groupby(rows_of_host, key=lambda row: row.time_ns):
        time_s = time_ns // NS_PER_S
        if time_s > reset_s:
            totals.clear()
            reset_s = math.inf
        for row in together:
            for name, labels, value in increased(row):
                totals[name, labelled(instance, labels)] += value
            for field, value in shown_fields(row, gauges):
                name = f"{PREFIX}{row.measurement}_{field}"
                newest[name, labelled(instance, row.tags)] = value, time_s
        for (name, labels), (value, since_s) in newest.items():
            if time_s <= since_s + kept_s:
                yield name, labels, value, time_s
        for (name, labels), value in totals.items():
            yield name, labels, value, time_s


def increased(row):
    """Name, labels and value of what a row adds to counters."""
    for sample in increments(row.measurement, row.tags, row.fields):
        name, labels = counter_of(sample)
        if "_below_" not in name:
            yield name, labels, float(sample.value)


def shown_fields(row, gauges):
    """The fields of a row that are gauges."""
    for field, value in row.fields.items():
        if gauges is None or field in gauges:
            yield field, float(value)
    if row.measurement == "event":
        yield "time_s", row.time_ns // NS_PER_S


def counter_of(sample):
    """The name and the labels of a counter; of a histogram its count."""
    labels = dict(sample.labels)
    bound = labels.pop("le", "")
    name = sample.name.replace("_bucket", "_count" if bound == "Infinity" else f"_below_{bound}")
    return f"{PREFIX}{label_name(name)}", labels


def labelled(instance, tags):
    return tuple(sorted({**instance, **tags}.items()))
