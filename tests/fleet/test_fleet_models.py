"""The models of a fleet's probes by GPU model: runs, sweeps, variants and servers, from rows in memory."""

import pytest
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from costprobe.fleet.answers import FleetAnswers, fleet_period
from costprobe.fleet.boards import fleet_models
from fakes import rows
from fakes.fleet_answers import RowsReader

HOUR_NS = 3600 * NS_PER_S
END_NS = 1_780_012_800 * NS_PER_S
GIB = 1 << 30


def device(host, model, kind="gpu"):
    tags = {"host": host, "device": "gpu0", "kind": kind, "uuid": host, "model": model}
    return make_point("device", tags, {"mem_total_bytes": 24 * GIB, "cost": 1.0}, END_NS)


def of_probe(host, latencies, *, dtype="fp16", probe="ranker", currency="USD"):
    tags = {"host": host, "device": "gpu0", "probe": probe}
    for number, latency_ms in enumerate(latencies):
        more = {"flop_per_pass": 1e9, "mfu_pct": 10.0, "mem_used_pct": 40.0 + number}
        yield rows.run(tags, END_NS - number * NS_PER_S, latency_ms, **more)
    yield rows.run({**tags, "cold": "true"}, END_NS - 60 * NS_PER_S, 99.0)
    yield make_point("software", {**tags, "dtype": dtype}, {"probe_runs": 3}, END_NS)
    yield rows.run_cost({**tags, "basis": "probe"}, END_NS, 1e-7, currency=currency)


def found(*of_hosts):
    reader = RowsReader([row for rows_of_host in of_hosts for row in rows_of_host])
    return fleet_models(FleetAnswers(reader, fleet_period(END_NS - HOUR_NS, END_NS, END_NS), {}))


def test_one_model_for_all_devices_with_the_same_gpu():
    tags = {"host": "a", "device": "gpu0", "probe": "ranker"}
    swept = [
        rows.swept(tags, END_NS, batch, ms, energy_j=0.2, cost=1e-7, peak_memory_bytes=peak * GIB)
        for batch, ms, peak in ((8, 7.0, 3), (64, 30.0, 9))
    ]
    server = rows.run({"host": "a", "device": "gpu0", "probe": "chat"}, END_NS, 900.0, batch=1)
    models, servers = found(
        [device("a", "L4"), *of_probe("a", (4.0, 5.0, 9.0)), *swept, server],
        [device("b", "L4"), *of_probe("b", (6.0, 7.0, 8.0))],
        [device("c", "A10"), *of_probe("c", (2.0,), dtype="bf16", currency="EUR")],
        [device("d", "L4", "mig"), *of_probe("d", (50.0,))],
    )
    assert servers == ["chat"]
    (of_a10, _), (of_l4, devices) = models
    assert (of_a10.device.model, of_a10.precision, of_a10.paid[1]) == ("A10", "bf16", "EUR")
    assert (devices, of_l4.device.memory_bytes, of_l4.subject) == (2, 24 * GIB, "ranker on 2 x L4")
    ran, other = of_l4.batches
    # Medians of 5 and 7; the sweep's latency stands only where no run has the batch.
    assert (ran.figures.batch, ran.figures.runs, ran.figures.latency_p50_ms) == (8, 2, 6.0)
    assert (other.figures.batch, other.figures.source, other.figures.latency_p50_ms) == (
        64,
        "sweep",
        30.0,
    )
    assert [one.most_bytes for one in (ran, other)] == [3 * GIB, 9 * GIB]
    # 1 GFLOP in 6 ms is 10 % of the peak.
    assert of_l4.peak_flop_per_s == pytest.approx(1e9 / 0.006 / 0.1, rel=0.1)
    assert of_l4.paid == (pytest.approx(1e-7), "USD")


def test_several_types_and_currencies_of_a_gpu_model_are_none():
    ((one, _),), _ = found(
        [device("a", "L4"), *of_probe("a", (4.0,))],
        [device("b", "L4"), *of_probe("b", (4.0,), dtype="bf16", currency="EUR")],
    )
    assert (one.precision, one.paid) == ("fp16", None)
    assert one.batches[0].most_bytes == pytest.approx(24 * GIB * 0.4)
