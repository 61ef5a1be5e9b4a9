"""`costprobe compare` on a store with history."""

import pytest
from fakes import rows
from fakes.cli import NOW_S, Cli, host, session

HOUR_NS = 3600 * 10**9
LABELS = {"large": {"team": "search"}}


def probed(probe, device, now_ns, cost, p99_ms, count=10, **more):
    """Ten hours of runs of one probe."""
    way = {"concurrency": "4"} if probe == "chat" else {}
    tags = {"device": device, "probe": probe, **LABELS.get(probe, {})}
    for at_ns in range(now_ns, now_ns - count * HOUR_NS, -HOUR_NS):
        latencies = {"latency_p99_ms": p99_ms, "samples": 700}
        yield rows.run({**tags, **way}, at_ns, p99_ms / 2, **latencies)
        yield rows.run_cost(tags, at_ns, cost, **more)


@pytest.mark.usefixtures("stopped")
def test_comparisons_are_as_recorded(tmp_path):
    """Within a bound, with a plot, and filtered by label, device, currency and name."""
    now_ns = NOW_S * 10**9 - HOUR_NS
    served = {"device": "gpu0", "service": "shop", "currency": "EUR"}
    counts = {"cost_idle": 1.5, "inferences": 2000.0}
    cli = Cli(tmp_path, host("compare"))
    cli.append(
        probed("large", "gpu0", now_ns, 4e-6, 40.0),
        probed("small", "gpu0", now_ns, 1e-6, 10.0),
        probed("small", "cpu", now_ns, 2e-6, 90.0),
        probed("chat", "gpu1", now_ns, 3e-3, 800.0, cost_per_million_tokens_out=7.0),
        probed("seldom", "gpu0", now_ns, 1e-9, 1.0, count=3),
        (rows.window_cost(served, now_ns - i * HOUR_NS, 3600, 2.0, **counts) for i in range(6)),
    )
    session("compare", cli.config)
