"""A simulated fleet with a sick GPU and a rollout: probe runs, their costs and software, and their devices.

`h03` has a `gpu1` that is slower by SLOWER, at a lower clock, and `h07` a `gpu0` that is slower by SLOWER beside another
process. Hosts with an even number below 8 change their
driver, one after the other, and are faster by FASTER from then on. The label `release` has no effect: `h01`, `h05` and `h09`
change it, and `h09` goes back.
"""

import math
import random

from fakes.fleet import gpu_run, point, scraped_of

END_S = 1_780_012_800
HOURS = 4
START_S = END_S - HOURS * 3600
EVERY_S = 300
HOSTS, GPUS = 12, 3
SICK = ("h03", "gpu1")
SHARED = ("h07", "gpu0")
SLOWER, FASTER = 0.08, 0.04
DRIVERS = ("550.54", "560.28")
CHANGED = (0, 2, 4, 6)
RELEASES = {1: (7200, math.inf), 5: (8400, math.inf), 9: (6000, 9600)}
UTIL_PCT = 50.0
# /metrics shows the versions before a change for a while.
KEPT_S = 900
PRICE_PER_H, PER_J = 3.6, 1e-7


def changed_s(number):
    """Time from which a host has the new driver."""
    return START_S + 5400 + 600 * number if number in CHANGED else math.inf


def rows():
    rng = random.Random(5)
    for number in range(HOSTS):
        host = {"host": f"h{number:02}", "rack": f"r{number % 2}"}
        level = rng.gauss(0, 0.01)
        for time_s in range(START_S + EVERY_S, END_S + 1, EVERY_S):
            for gpu in range(GPUS):
                yield from run_rows(rng, host, number, gpu, level, time_s)


def run_rows(rng, host, number, gpu, level, time_s):
    since_s, until_s = RELEASES.get(number, (math.inf, math.inf))
    release = "r2" if since_s < time_s - START_S <= until_s else "r1"
    tags = {**host, "device": f"gpu{gpu}", "release": release}
    is_sick = (host["host"], tags["device"]) == SICK
    is_shared = (host["host"], tags["device"]) == SHARED
    is_new = time_s > changed_s(number)
    common = 0.02 * math.sin(time_s / 3000) + 0.01 * (number % 2)
    log_time = level + common + rng.gauss(0, 0.003)
    log_time += math.log1p(SLOWER) * (is_sick or is_shared) + math.log1p(-FASTER) * is_new
    each_s = 0.001 * math.exp(log_time)
    yield from gpu_run(
        tags,
        time_s,
        each_s,
        probe="ranker",
        price_per_h=PRICE_PER_H,
        versions={"driver": DRIVERS[is_new], "torch": "2.13", "dtype": "float16"},
        clock_mhz=1980.0 * (1 - 0.09 * is_sick) * (1 + rng.gauss(0, 0.001)),
        temp_c=60.0 + rng.gauss(0, 1),
        latency_p50_ms=8000 * each_s,
        contended=is_shared and time_s % 3600 != 0,
    )
    described = {"kind": "gpu", "model": "NVIDIA H100", "currency": "EUR"}
    used = {"util_pct": UTIL_PCT, "price_rate_per_h": PRICE_PER_H}
    used["cost"] = PRICE_PER_H / 3600 * EVERY_S
    yield point("device", {**tags, **described}, used, time_s)


def scraped():
    """The samples of a Prometheus that scrapes each host every five minutes, in OpenMetrics."""
    return scraped_of(rows(), kept_s=KEPT_S)
