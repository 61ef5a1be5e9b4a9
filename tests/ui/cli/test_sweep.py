"""A sweep over batches, of which the worker repeats no timed pass."""

import json
import re
from dataclasses import replace

import pytest
from costprobe.ui.cli.sweep import (
    CurvePoint,
    SweepCurve,
    rows_of,
    shown,
)
from fakes.command import called
from fakes.kept_worker import quick_command

pytestmark = pytest.mark.processes


def point(batch, latency_ms, cost=None, **more):
    return CurvePoint(
        **{
            "batch": batch,
            "threads": None,
            "latency_p50_ms": latency_ms,
            "latency_p90_ms": None,
            "latency_rel_err": 0.01,
            "contended": None,
            "throughput_per_s": batch / latency_ms * 1000,
            "energy_per_inference_j": None,
            "energy_method": None,
            "energy_rel_err": None,
            "cost_per_inference": cost,
            "peak_memory_bytes": 1 << 30,
            **more,
        }
    )


CURVE = SweepCurve(
    "ranker",
    "gpu0",
    "USD",
    "abc",
    1_780_000_000 * 10**9,
    50.0,
    (point(1, 10.0, 3e-6), point(8, 30.0, 1e-6), point(16, 70.0, 0.9e-6)),
    {"host": "h"},
)


def test_cheapest_batch_is_within_the_bound():
    assert CURVE.cheapest.batch == 8
    assert replace(CURVE, latency_bound_ms=None).cheapest.batch == 16
    assert replace(CURVE, latency_bound_ms=5.0).cheapest is None
    assert "no batch is within 5 ms" in "\n".join(shown(replace(CURVE, latency_bound_ms=5.0)))


def test_without_a_price_the_highest_throughput_wins():
    points = tuple(replace(p, cost_per_inference=None) for p in CURVE.points)
    curve = replace(CURVE, points=points, latency_bound_ms=None)
    assert curve.cheapest.batch == 8
    assert "batch 8 has the most throughput" in shown(curve)


def test_on_a_cpu_threads_and_batch_are_compared_and_noisy_points_are_marked():
    points = (
        point(1, 10.0, 3e-6, threads=1),
        point(8, 40.0, 2e-6, threads=1),
        point(1, 8.0, 4e-6, threads=2),
        point(8, 30.0, 1e-6, threads=2, contended=True),
        point(16, 35.0, 1.5e-6, threads=2, latency_rel_err=0.2),
    )
    curve = replace(CURVE, device="cpu", points=points)
    assert (curve.cheapest.batch, curve.cheapest.threads) == (8, 1)
    text = "\n".join(shown(curve))
    assert "batch 8 on 1 thread costs least" in text
    assert re.findall(r"^ *~ (\d+) ", text, re.MULTILINE) == ["8", "16"]
    rows = rows_of(curve)
    assert [row.tags["threads"] for row in rows] == ["1", "1", "2", "2", "2"]
    all_noisy = replace(curve, points=points[3:])
    assert all_noisy.cheapest.batch == 8


# Its batch search finds 2: a pass of any batch takes as long, and one of 3 does not fit.
SMALL = """
import time, torch
class Net(torch.nn.Module):
    def forward(self, x):
        if len(x) > 2: raise RuntimeError("out of memory")
        time.sleep(0.001)
        return x
def make(): return Net(), torch.ones(1, 4)
"""


def costprobe(config, *arguments, code=0):
    return called(config, *arguments, code=code).output


def printed(config, *arguments):
    return called(config, *arguments).stdout


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "small.py").write_text(SMALL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("costprobe.probing.run.worker_command", quick_command)
    path = tmp_path / "costprobe.toml"
    path.write_text(
        f'[store]\npath = "{tmp_path}/costprobe.db"\n'
        '[[price]]\nplan = "on_demand"\nper_hour = 3.6\n'
        '[[probe]]\nname = "ranker"\nkind = "module"\nmodule = "small:make"\nthreads = 1\n'
        'sample_cap = "300ms"\nlatency_bound = "10s"\nenergy = false\n'
        '[[probe]]\nname = "chat"\nkind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
    )
    return path


def test_sweep_is_measured_shown_and_stored(config):
    measured = json.loads(printed(config, "probe", "ranker", "--sweep", "--json"))
    assert [p["batch"] for p in measured["points"]] == [1, 2]
    for found in measured["points"]:
        # 3.6 an hour is a thousandth a second, electricity included.
        per_inference = 0.001 / found["throughput_per_s"]
        assert found["cost_per_inference"] == pytest.approx(per_inference)
        assert found["peak_memory_bytes"] > 0
    assert measured["cheapest_batch"] in (1, 2)
    text = costprobe(config, "probe", "ranker", "--sweep", "--stored")
    assert f"batch {measured['cheapest_batch']} on 1 thread costs least within 10000 ms" in text
    assert "* cheapest" in text
    assert "p50 ms (left)" in text
    stored = json.loads(printed(config, "probe", "ranker", "--sweep", "--stored", "--json"))
    assert stored == measured
    other = costprobe(config, "probe", "cnn", "--sweep", "--stored", code=1)
    assert "no sweep of cnn is stored; run: costprobe probe cnn --sweep" in other
    exported = costprobe(config, "export", "--since", "1h")
    assert exported.count("\nsweep,") + exported.startswith("sweep,") == 2
