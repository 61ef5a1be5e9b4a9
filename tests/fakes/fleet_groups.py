"""Rows of groups of services over hosts, with planted costs and counts."""

from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point

# A full hour.
START_S = 1_780_012_800
HOUR_S = 3600
WINDOW_S = 300


def member(
    host,
    role,
    hours,
    *,
    group="big",
    service="llm",
    currency="USD",
    devices=("gpu0",),
    cost=1.0,
    idle=0.25,
    split=None,
    energy_j=3.6e6,
    counts=None,
    ahead_s=0,
    until_s=None,
    labels=None,
    slo=None,
):
    """The rows of a member in some hours after START_S, of which the first is 0.

    Args:
        host: Its host.
        role: What it is of the group.
        hours: The hours.
        group: Tag of the group; empty for none.
        service: Its service.
        currency: Tag of the amounts.
        devices: Its devices.
        cost: Currency units an hour.
        idle: Share of idle time in it.
        split: Share of input in the cost, of a member that does both.
        energy_j: Joules an hour; None where it is unknown.
        counts: Counts of an hour by field of `serving`; None without a url.
        ahead_s: How far the clock of its host is ahead.
        until_s: UTC in s of its last row.
        labels: Further tags.
        slo: Of each bound, the requests of an hour that were timed, and those within it.
    """
    own = {"host": host, "service": service, **(labels or {})}
    own |= {"service_group": group, "service_role": role} if group else {}
    windows = HOUR_S // WINDOW_S
    for hour in hours:
        for number in range(1, windows + 1):
            at_s = START_S + hour * HOUR_S + number * WINDOW_S
            if until_s is not None and at_s > until_s:
                return
            time_ns = (at_s + ahead_s) * NS_PER_S
            paid = {**own, "currency": currency}
            shares = {"prefill": 1.0, "decode": 0.0}
            share = shares.get(role, split)
            fields = {
                "cost_total": cost / windows,
                "cost_idle": cost * idle / windows,
                "cost_idle_known": cost / windows,
                "window_s": float(WINDOW_S),
                "energy_j": energy_j and energy_j / windows,
            }
            if share is not None and counts:
                fields["cost_tokens_in"] = cost * share / windows
                fields["cost_tokens_out"] = cost * (1 - share) / windows
                fields["energy_tokens_in_j"] = energy_j and energy_j * share / windows
                fields["energy_tokens_out_j"] = energy_j and energy_j * (1 - share) / windows
            counted = {name: count / windows for name, count in (counts or {}).items()}
            if role == "all" or not group:
                fields |= {name: counted.get(name) for name in ("requests", "tokens_in")}
                fields |= {name: counted.get(name) for name in ("tokens_out", "cached_tokens")}
                fields["inferences"] = counted.get("requests")
            named = {**paid, "device": "+".join(devices), "basis": "serving", "plan": "owned"}
            yield make_point("cost", named, fields, time_ns)
            served = {**own, "engine": "vllm"}
            window = {"window_s": float(WINDOW_S), "complete": True}
            yield make_point("serving", served, {**counted, **window}, time_ns)
            for bound, (timed, met) in (slo or {}).items():
                fields = {"requests": timed / windows, "requests_met": met / windows}
                level = {**own, "bound": bound}
                yield make_point("slo", level, {**fields, "bound_ms": 500.0}, time_ns)
            for device in devices:
                each = cost / windows / len(devices)
                for part, of_part in (("busy", 1 - idle), ("idle", idle)):
                    allocated = {**paid, "device": device, "part": part}
                    yield make_point("allocation", allocated, {"cost": each * of_part}, time_ns)
                described = {"host": host, "device": device, "kind": "gpu", "uuid": host + device}
                described |= {"model": "H100", "currency": currency}
                spent = {"cost": each, "energy_j": energy_j and energy_j / windows / len(devices)}
                yield make_point("device", described, spent, time_ns)


def disaggregated(hours=range(24), **more):
    """Two hosts of prefill, of which one has the url, and two decode servers; 0.5 and 4 M tokens."""
    reads = {"requests": 1000.0, "tokens_in": 4e6, "cached_tokens": 1e6, "tokens_out": 1000.0}
    writes = {"requests": 500.0, "errors": 20.0, "tokens_in": 2e6, "tokens_out": 0.25e6}
    moved = {"kv_transfer_bytes": 1e12, "kv_transfer_s": 50.0, "kv_transfer_failures": 1.0}
    pair = ("gpu0", "gpu1")
    yield from member("p1", "prefill", hours, cost=4.0, devices=pair, counts=reads, **more)
    yield from member("p2", "prefill", hours, cost=4.0, devices=pair, **more)
    yield from member("d1", "decode", hours, cost=3.0, counts={**writes, **moved}, **more)
    yield from member("d2", "decode", hours, cost=5.0, counts={**writes, **moved}, **more)
