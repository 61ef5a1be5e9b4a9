"""A simulated fleet that is watched: silent hosts, a sick GPU, a rollout and its cost, relative to an instant.

All hosts run the probe `ranker` on four GPUs. `h03 gpu1` is slower by SLOWER, at a lower clock. `rolled_out` is
the time from which all hosts have the next driver, at a cost that is higher by DEARER.

All hosts run the service `chat`, which costs more by DEARER on the first DEARER_HOSTS of them in the last window, and
`embed`, which has half of its traffic there; traffic differs from week to week.
"""

import math
import random
from functools import cache

from costprobe.core.line_protocol import render
from costprobe.core.records import NS_PER_S
from fakes import fleet
from fakes.fleet import gpu_run, host_of, point, scraped_of
from fakes.rows import as_known

HOSTS, GPUS = 12, 4
EVERY_S, WINDOW_S, DAY_S = 3600, 6 * 3600, 86_400
SICK, SLOWER, DEARER = ("h03", "gpu1"), 0.08, 0.08
DRIVERS = ("550.54", "560.28")
PRICE_PER_H = 3.6
WEEK_S = 7 * DAY_S
DEARER_HOSTS = 8
NOW_S = 1_780_012_800
ROLLED_OUT_S = NOW_S - 18_600
CHECKS = """
[[fleet.watch.budget]]
name = "gpus"
amount = 10
currency = "EUR"
period = "month"
"""
RACK = [f"h{number:02}" for number in range(6, 12)]
SILENT = (("h01", NOW_S - 1200), *((host, NOW_S - 1500) for host in RACK))


@cache
def lines(now_s, *, silent=(), rolled_out=math.inf):
    """Line protocol of the rows up to an instant, one each.

    Args:
        now_s: UTC in s.
        silent: Each silent host, and the time of its newest row.
        rolled_out: Time of the rollout.
    """
    return [render(row).encode() for row in fleet_rows(now_s, dict(silent), rolled_out)]


def write(server, lines, database="watched"):
    fleet.write(server, lines, db=database)


def fleet_rows(now_s, silent, rolled_out):
    rng = random.Random(7)
    for number in range(HOSTS):
        host = host_of(number)
        ends_s = silent.get(host, now_s)
        tags = {"host": host, "rack": f"r{number % 2}"}
        for time_s in range(now_s - 3600, ends_s + 1, 60):
            yield agent_row(tags, time_s)
        for day in range(8):
            end_s = now_s - day * DAY_S
            for time_s in range(end_s - WINDOW_S - EVERY_S, end_s + 1, EVERY_S):
                if time_s <= ends_s:
                    yield from run_rows(rng, tags, time_s, is_new=time_s > rolled_out)


@cache
def service_lines():
    """Line protocol of the rows of services, and of what belongs to them."""
    return [render(row).encode() for row in service_rows()]


def service_rows():
    for number in range(HOSTS):
        tags = {"host": host_of(number)}
        gpu = {**tags, "device": "gpu0", "kind": "gpu", "model": "NVIDIA H100", "currency": "EUR"}
        for week in (3, 2, 1, 0):
            end_s = NOW_S - week * WEEK_S
            for time_s in range(end_s - WINDOW_S - EVERY_S, end_s + 1, EVERY_S // 2):
                if not week:
                    yield agent_row(tags, time_s)
                    yield point("device", gpu, {"util_pct": 50.0}, time_s)
                is_dearer = not week and number < DEARER_HOSTS
                yield served_row(tags, "chat", 1000.0 * (1 + week), is_dearer, time_s)
                yield served_row(tags, "embed", 1000.0 if week else 500.0, False, time_s)


def served_row(tags, service, tokens, is_dearer, time_s):
    """A window of a service whose tokens cost the same at any traffic, beside its idle time."""
    idle = 2.0 - tokens / 4000
    fields = {"cost_total": tokens * 1e-5 * (1 + DEARER * is_dearer) + idle, "cost_idle": idle}
    paid = {"service": service, "basis": "serving", "plan": "owned", "currency": "EUR"}
    return point("cost", {**tags, **paid}, as_known({**fields, "tokens_out": tokens}), time_s)


def scraped():
    """The samples of a Prometheus that scrapes the fleet with silent hosts, a rollout and services, in OpenMetrics."""
    silent = dict(SILENT)
    rows = [*fleet_rows(NOW_S, silent, ROLLED_OUT_S), *service_rows()]
    return scraped_of(
        row for row in rows if row.time_ns <= silent.get(row.tags["host"], NOW_S) * NS_PER_S
    )


def agent_row(tags, time_s):
    return point("agent", {**tags, "version": "1.0"}, {"rss_bytes": 40 << 20}, time_s)


def run_rows(rng, tags, time_s, *, is_new):
    for gpu in range(GPUS):
        device = {**tags, "device": f"gpu{gpu}"}
        is_sick = (tags["host"], device["device"]) == SICK
        log_time = rng.gauss(0, 0.003) + math.log1p(SLOWER) * is_sick + math.log1p(DEARER) * is_new
        yield from gpu_run(
            device,
            time_s,
            0.001 * math.exp(log_time),
            probe="ranker",
            price_per_h=PRICE_PER_H,
            versions={"driver": DRIVERS[is_new], "torch": "2.13"},
            clock_mhz=1980.0 * (1 - 0.09 * is_sick),
            temp_c=60.0,
        )
        described = {"kind": "gpu", "model": "NVIDIA H100", "currency": "EUR"}
        used = {
            "util_pct": 50.0,
            "price_rate_per_h": PRICE_PER_H,
            "cost": PRICE_PER_H * EVERY_S / 3600,
        }
        yield point("device", {**device, **described}, used, time_s)
