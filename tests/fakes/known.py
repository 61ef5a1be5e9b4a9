"""Two hours of rows of three hosts whose sums and means are known by heart.

Nearly all values are constant, so that an hour is twelve times a row. Host `a` is priced in USD, `b` in
EUR; `dead` has only an agent, which stopped 15 minutes before the end.
"""

from functools import cache

from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from fakes import rows

END_NS = 1_780_012_800 * NS_PER_S
STEP_S = 300
HOUR_S = 3600
# The newest rows are a minute old.
NEWEST_NS = END_NS - STEP_S * NS_PER_S
NOW_NS = NEWEST_NS + 60 * NS_PER_S
START_NS = END_NS - HOUR_S * NS_PER_S
EVENTS_NS = START_NS + 600 * NS_PER_S
# Host, device, currency, price per hour, watts.
DEVICES = (
    ("a", "gpu0", "USD", 2.4, 300.0),
    ("a", "gpu1", "USD", 3.6, 500.0),
    ("b", "gpu0", "EUR", 1.2, 200.0),
)
# Service, model (empty for the whole service), host, currency; the models add up to the service.
SERVED = (
    ("chat", "", "a", "USD", 30.0),
    ("chat", "base", "a", "USD", 10.0),
    ("chat", "tuned", "a", "USD", 20.0),
    ("embed", "", "b", "EUR", 60.0),
)


@cache
def points():
    """All rows, in the order of their times."""
    found = []
    for step in range(-12, 12):
        time_ns = START_NS + step * STEP_S * NS_PER_S
        # The last half hour differs from the first in utilization and latency.
        found += of_devices(time_ns, is_late=step >= 6)
        found += of_services(time_ns, step)
        found += [*of_host(time_ns, "a", "USD", step), *of_host(time_ns, "b", "EUR", step)]
        if step < 9:
            found.append(agent(time_ns, "dead", step))
    # An hour a day ago cost 1/1.25 as much, a week ago half.
    for days, factor in ((1, 0.8), (7, 0.5)):
        for step in range(12):
            time_ns = START_NS + (step * STEP_S - days * 86_400) * NS_PER_S
            then = [*of_devices(time_ns, is_late=True), *of_services(time_ns, step=0)]
            found += [cheaper(row, factor) for row in then if row.measurement == "cost"]
    found += events(EVENTS_NS)
    return sorted(found, key=lambda point: point.time_ns)


def cheaper(point, factor):
    """A row of `cost` at other costs."""
    fields = {
        name: v * factor if "cost" in name or "rolling" in name else v
        for name, v in point.fields.items()
    }
    return make_point(point.measurement, point.tags, fields, point.time_ns)


def of_devices(time_ns, *, is_late):
    for host, device, currency, rate, watts in DEVICES:
        index = int(device[-1])
        tags = {"host": host, "device": device}
        # 20 % and 60 %, 90 %, 2 %: b is idle.
        util_pct = {("a", 0): 60.0 if is_late else 20.0, ("a", 1): 90.0, ("b", 0): 2.0}
        # Of b the carbon intensity is not known.
        carbon = {"carbon_g": watts / 1000 * 38, "carbon_energy_j": watts * STEP_S}
        yield rows.device(
            tags,
            time_ns,
            STEP_S,
            rate,
            watts,
            model="H100",
            currency=currency,
            power_max_w=watts + 10,
            util_pct=util_pct[host, index],
            mem_used_bytes=(index + 1) << 30,
            temp_c=60.0 + 10 * index,
            sm_clock_mhz=1500.0 + 100 * index,
            throttle_power_s=3.0 * (1 - index),
            throttle_thermal_s=1.0 * index,
            ecc_uncorrected=2 * index,
            processes=1 + index,
            **({"price_assumed": True} if (host, index) == ("a", 1) else {}),
            **(carbon if host == "a" else {}),
        )
        probe = tags | {"probe": "ranker"}
        yield rows.run(
            probe,
            time_ns,
            8.0 if is_late else 4.0,
            energy_j=0.5,
            latency_p90_ms=9.0,
            latency_p99_ms=10.0,
            throughput_per_s=1000.0 * (1 + index),
            energy_above_idle_j=0.4,
            energy_rel_err=0.06,
            throttled_pct=2.0,
            throttled_power_pct=1.5,
            throttled_thermal_pct=0.5,
            sm_clock_mhz=1400.0,
            temp_max_c=66.0,
            latency_rel_err=0.01,
            samples=700,
            stop_reason="noise",
            fingerprint="f00d",
        )
        cost = 1e-6 * rate / 2.4
        # 25 % more than yesterday, twice last week's.
        rolling = {"rolling_1h": cost, "rolling_24h": cost / 1.25, "rolling_7d": cost / 2}
        yield rows.run_cost(
            probe | {"plan": "owned"},
            time_ns,
            cost * 0.75,
            cost * 0.25,
            currency=currency,
            cost_reference=cost * 0.9,
            **rolling,
            rolling_24h_coverage=0.9,
            carbon_per_inference_g=4e-5,
            energy_per_inference_j=0.5,
        )


def of_services(time_ns, step):
    for service, model, host, currency, requests in SERVED:
        tags = {"host": host, "service": service, **({"served_model": model} if model else {})}
        counts = {
            "requests": requests,
            "inferences": 2 * requests,
            "tokens_in": 2000 * requests,
            "tokens_out": 1000 * requests,
        }
        window = {**counts, "errors": requests / 3, "window_s": 300.0, "complete": True}
        window |= {} if model else {"busy_share": 0.4, "restarts": 0, "readings": 20}
        yield make_point("serving", tags | {"engine": "vllm"}, window, time_ns)
        if not model:
            level = {"requests": requests, "requests_met": requests * 0.8, "bound_ms": 500.0}
            own = {"host": host, "service": service, "bound": "ttft_p90"}
            yield make_point("slo", own, level, time_ns)
        cost = requests / 100
        energy = {
            "energy_j": 900 * requests,
            "energy_tokens_in_j": 300 * requests,
            "energy_tokens_out_j": 600 * requests,
            "energy_rel_err": 0.1,
        }
        yield rows.window_cost(
            tags | {"plan": "owned", "currency": currency},
            time_ns,
            STEP_S,
            cost,
            ratios=(),
            **counts,
            cost_idle=cost * 0.4,
            idle_share=0.4,
            cost_tokens_in=cost * 0.2,
            cost_tokens_out=cost * 0.6,
            # Of b the energy is known in every other window.
            **(energy if host == "a" or step % 2 == 0 else {}),
            cost_per_inference=5e-3,
            cost_hardware=4e-3,
            cost_energy=1e-3,
            cost_per_request=1e-2,
            cost_per_million_tokens_in=1.25,
            cost_per_million_tokens_out=7.5,
            rolling_1h=5e-3,
            rolling_24h=4e-3,
            rolling_7d=1e-2,
        )


def of_host(time_ns, host, currency, step):
    yield agent(time_ns, host, step)
    place = {"host": host, "device": "gpu0"}
    for part, service, cost in (
        ("busy", "chat", 0.12),
        ("idle", "chat", 0.04),
        ("unallocated", "", 0.04),
    ):
        owner = {"service": service} if service else {}
        paid = (cost * 0.75, cost * 0.25)
        yield rows.allocation(place | owner, time_ns, part, *paid, currency=currency)
    for tenant, cost in (("search", 0.1), ("unattributed", 0.06)):
        split = {"host": host, "service": "chat", "tenant": tenant, "currency": currency}
        yield make_point("tenant", split, {"cost": cost, "tokens_out": 50.0}, time_ns)
    budget = {"host": host, "budget": "gpus", "period": "month", "currency": currency}
    amount = 1000.0 if host == "a" else 500.0
    status = {"amount": amount, "spent": 400.0, "forecast": 1200.0, "coverage": 0.95}
    status |= {"exceeded": False, "forecast_exceeded": True}
    yield make_point("budget", budget, status, time_ns)


def agent(time_ns, host, step):
    """The row of an agent: in 300 s it takes 0.6 s of CPU time and sends 600 points."""
    fields = {
        "rss_bytes": 50 << 20,
        "cpu_s": 0.6 * (step + 12),
        "outbox_points": 100,
        "outbox_lag_s": 30.0,
        "sent_points": 600 * (step + 12),
        "dropped_points": 0,
        "late_jobs": step + 12,
        "child_restarts": 1,
    }
    return make_point("agent", {"host": host, "version": "0.1.0"}, fields, time_ns)


def events(at_ns):
    place = {"host": "a", "device": "gpu0", "probe": "ranker"}
    for offset, (kind, change_pct) in enumerate(
        (
            ("anomaly", 4.5),
            ("drift", -9.5),
            ("price", None),
            ("software", None),
            ("fault", None),
            ("annotation", None),
        )
    ):
        fields = {
            "severity": "warning",
            "title": f"{kind} of ranker",
            "cause": f"{kind} cause",
            "detail": f"{kind} detail",
            "before": "1",
            "after": "2",
            "change_pct": change_pct,
            "level_pct": change_pct,
            "cost_per_month": change_pct and change_pct * 10,
        }
        tags = place | {"kind": kind} | ({"metric": "cost"} if change_pct else {})
        yield make_point("event", tags, fields, at_ns + offset * NS_PER_S)
    for offset, (rule, state) in enumerate(
        (("drift", "pending"), ("drift", "firing"), ("hot", "firing"), ("hot", "resolved"))
    ):
        fields = {
            "id": f"{rule}-1",
            "severity": "warning",
            "summary": f"{rule} on gpu0",
            "cause": f"{rule} cause",
            "value": 8.5,
            "threshold": 5.0,
            "since": at_ns / NS_PER_S,
            "symptoms": 1,
        }
        yield make_point(
            "alert", place | {"rule": rule, "state": state}, fields, at_ns + offset * NS_PER_S
        )
    for batch in (4, 8):
        fields = {
            "latency_p50_ms": 2.0 + batch,
            "throughput_per_s": 100.0 * batch,
            "energy_per_inference_j": 4.0 / batch,
            "cost_per_inference": 1e-6 / batch,
            "cheapest": batch == 8,
        }
        yield make_point("sweep", place | {"batch": str(batch), "currency": "USD"}, fields, at_ns)
    for step in (1, 2):
        fields = {
            "throughput_per_s": 2.0 * step,
            "tokens_out_per_s": 200.0 * step,
            "ttft_p90_ms": 50.0 * step,
            "tpot_p90_ms": 4.0 * step,
            "energy_per_million_tokens_out_j": 1e6 / step,
            "cost_per_million_tokens_out": 5.0 / step,
        }
        tags = {"loop": "closed", "step": str(step), "concurrency": str(4**step), "currency": "USD"}
        yield make_point("sweep", place | tags, fields, at_ns)
