"""`costprobe savings` on a store with five weeks of a small host."""

from contextlib import closing
from datetime import UTC, datetime

import pytest
from costprobe.adapters.store.retention import KeepSince
from costprobe.adapters.store.write import Store
from costprobe.core.records import Point
from fakes.cli import NOW_S, host, session
from fakes.clock import FakeClock

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
GIB = 1 << 30
NOW_NS = NOW_S * 10**9


def telemetry(now_ns, days):
    """Rows of 5 min each: idle on weekends, 20 % busy on working days."""
    tags = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": "NVIDIA A100-SXM4-40GB"}
    for i in range(days * 288):
        at_ns = now_ns - i * 300 * 10**9
        works = datetime.fromtimestamp(at_ns // 10**9, UTC).weekday() < 5
        fields = {
            "util_pct": 20.0 if works else 0.0,
            "power_w": 200.0 if works else 50.0,
            "mem_used_bytes": 8 * GIB,
            "mem_total_bytes": 40 * GIB,
        }
        yield Point("device", tags, fields, at_ns)
    tags = {"device": "cpu", "kind": "cpu", "uuid": "cpu", "model": "EPYC"}
    yield Point("device", tags, {"util_pct": 5.0}, now_ns)


def probed(now_ns):
    for i in range(6):
        for name, ms in (("gpu0", 10.0), ("cpu", 40.0)):
            fields = {"latency_p50_ms": ms, "throughput_per_s": 8 / ms * 1000}
            tags = {"device": name, "probe": "ranker", "batch": "8"}
            yield Point("probe", tags, fields, now_ns - i * HOUR_NS)


def rolled_up(cli, points):
    """Store points, rolled up with the default retention."""
    cli.append(points, time_ns=NOW_NS)
    ages = KeepSince(NOW_NS - 7 * DAY_NS, NOW_NS - 90 * DAY_NS, 0, 0)
    with closing(Store.open(cli.store, FakeClock(NOW_NS))) as store:
        while not store.retain(ages, 10_000).is_done:
            pass


# Offers of prices, and files that are none.
FILES = {"leased.toml": '[[price]]\nplan = "leased"\n', "torn.toml": "[[price"}


@pytest.mark.usefixtures("stopped")
def test_supplies_and_offers_of_a_host(costprobe):
    """20 % of the GPU at a quarter of its speed is 0.8 of a CPU, with 20 % free one; weekends are idle.

    The rows end with the last full hour, so that no hour has partial coverage.
    """
    costprobe.write(host("savings"))
    end_ns = NOW_NS // HOUR_NS * HOUR_NS - 10**9
    rolled_up(costprobe, [*telemetry(end_ns, 35), *probed(end_ns)])
    spot = "time,price\n2026-01-01T00:00:00Z,0.9\n"
    files = {
        **FILES,
        "plans.toml": host("savings_plans").format(folder=costprobe.folder),
        "spot.csv": spot,
    }
    for name, text in files.items():
        (costprobe.folder / name).write_text(text)
    session("savings", costprobe.config)


def served(now_ns, days):
    """Rows of a service each 5 min: 300 requests in the first ten minutes of an hour."""
    tags = {"service": "chat", "engine": "vllm"}
    for i in range(days * 288):
        end_ns = now_ns - i * 300 * 10**9
        is_busy = (end_ns - 150 * 10**9) % HOUR_NS < HOUR_NS // 6
        count = 150.0 if is_busy else 0.0
        fields = {"requests": count, "tokens_out": 10 * count, "window_s": 300.0, "complete": True}
        yield Point("serving", tags, fields, end_ns)
        tokens = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": "A100"}
        util = {"util_pct": 30.0 if is_busy else 0.0, "power_w": 100.0}
        yield Point("device", tokens, util, end_ns)


@pytest.mark.usefixtures("stopped")
def test_a_service_between_whose_requests_the_device_is_released(costprobe):
    """10 min, the time-out of 45 s and the start of 45 s are paid: 11.5 of 60 min. Of 30 requests in
    the first minute one waits for 45 s, and 29 x 45 / 60 that follow for 22.5 s."""
    rolled_up(costprobe, served(NOW_NS // HOUR_NS * HOUR_NS, 28))
    costprobe.write(host("savings_service"))
    session("savings_without_a_start", costprobe.config)
    costprobe.write(f'{host("savings_service")}cold_start = "45s"\n')
    session("savings_between_requests", costprobe.config)
