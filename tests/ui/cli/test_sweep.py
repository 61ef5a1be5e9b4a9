"""A sweep over batches, of which the worker repeats no timed pass."""

from dataclasses import fields, replace

import pytest
from costprobe.ui.cli.sweep import CurvePoint, SweepCurve, rows_of, shown
from fakes.cli import host, same
from fakes.kept_worker import quick_command

pytestmark = pytest.mark.processes


def point(batch, latency_ms, cost=None, **more):
    known = dict.fromkeys(field.name for field in fields(CurvePoint))
    known |= {"batch": batch, "latency_p50_ms": latency_ms, "latency_rel_err": 0.01}
    known |= {"throughput_per_s": batch / latency_ms * 1000, "peak_memory_bytes": 1 << 30}
    return CurvePoint(**known | {"cost_per_inference": cost, **more})


POINTS = (point(1, 10.0, 3e-6), point(8, 30.0, 1e-6), point(16, 70.0, 0.9e-6))
WITHOUT_PRICES = tuple(replace(one, cost_per_inference=None) for one in POINTS)
NOISY = (
    point(8, 30.0, 1e-6, threads=2, contended=True),
    point(16, 35.0, 1.5e-6, threads=2, latency_rel_err=0.2),
)
ON_A_CPU = (
    point(1, 10.0, 3e-6, threads=1),
    point(8, 40.0, 2e-6, threads=1),
    point(1, 8.0, 4e-6, threads=2),
    *NOISY,
)
# Points, the bound of their latency in ms, and the cheapest batch with its threads.
CURVES = (
    (POINTS, 50.0, (8, None)),
    (POINTS, None, (16, None)),
    (POINTS, 5.0, None),
    (WITHOUT_PRICES, None, (8, None)),
    (ON_A_CPU, 50.0, (8, 1)),
    (NOISY, 50.0, (8, 2)),
)


def test_cheapest_batch_within_the_bound_is_named_and_noisy_points_are_marked():
    texts, found = [], []
    for points, bound_ms, _ in CURVES:
        device = "gpu0" if points[0].threads is None else "cpu"
        curve = SweepCurve("ranker", device, "USD", "abc", 1, bound_ms, points, {"host": "h"})
        # How a plot is drawn is not ours.
        texts += [line for line in shown(curve) if not set(line) & set("┌┤│├└")]
        best = curve.cheapest
        found.append(best and (best.batch, best.threads))
        threads = [row.tags.get("threads") for row in rows_of(curve)]
        assert threads == [one.threads and str(one.threads) for one in points]
    assert found == [cheapest for *_, cheapest in CURVES]
    same("sweep", "\n".join([*texts, ""]))


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


@pytest.fixture
def sweeping(costprobe, monkeypatch):
    """A model whose passes take a millisecond, and a price of a thousandth a second."""
    (costprobe.folder / "small.py").write_text(SMALL)
    monkeypatch.setenv("PYTHONPATH", str(costprobe.folder))
    monkeypatch.setattr("costprobe.probing.run.worker_command", quick_command)
    costprobe.write(host("sweep"))
    return costprobe


def test_sweep_is_measured_shown_and_stored(sweeping):
    measured = sweeping.json("probe", "ranker", "--sweep")
    assert [p["batch"] for p in measured["points"]] == [1, 2]
    for found in measured["points"]:
        per_inference = 0.001 / found["throughput_per_s"]
        assert found["cost_per_inference"] == pytest.approx(per_inference)
        assert found["peak_memory_bytes"] > 0
    text = sweeping("probe", "ranker", "--sweep", "--stored")
    assert f"batch {measured['cheapest_batch']} on 1 thread costs least within 10000 ms" in text
    assert sweeping.json("probe", "ranker", "--sweep", "--stored") == measured
    exported = sweeping("export", "--since", "1h")
    assert exported.count("\nsweep,") + exported.startswith("sweep,") == 2
