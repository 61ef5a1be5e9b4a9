"""Rows of probes and sweeps become figures for each batch."""

from costprobe.core.columns import columns_of
from costprobe.core.records import Point
from costprobe.savings.history import Known, probe_histories
from fakes.past import figures

S = 10**9


def run(time_s, batch, latency_ms=10.0, measurement="probe", **more):
    tags = {"device": "gpu0", "probe": "ranker", "batch": str(batch)}
    tags |= {key: more.pop(key) for key in ("cold", "concurrency") if key in more}
    fields = {"latency_p50_ms": latency_ms, "throughput_per_s": batch / latency_ms * 1000}
    return Point(measurement, tags, {**fields, "fingerprint": "new", **more}, time_s * S)


def sweep(time_s, batch, latency_ms, **more):
    return run(time_s, batch, latency_ms, "sweep", **more)


def test_batches_are_from_runs_and_the_last_sweep():
    probes = [run(i, 8, 10.0 + i % 3) for i in range(6)] + [run(10, 4, 6.0), run(11, 8, 11.0)]
    sweeps = [
        sweep(5, 4, 5.0),
        sweep(5, 16, 18.0, energy_per_inference_j=0.5),
        sweep(1, 32, 30.0),  # an older sweep
        sweep(9, 64, 60.0, fingerprint="old"),
    ]
    (found,) = probe_histories(columns_of(probes), sweeps, {"ranker": Known("cnn", 20.0)})
    assert (found.subject, found.model, found.bound_ms) == ("ranker on gpu0", "cnn", 20.0)
    assert (found.present.batch, found.present.runs, found.present.latency_p50_ms) == (8, 7, 11.0)
    # One run at batch 4 is too few to replace the sweep.
    assert [(one.batch, one.source, one.energy_j) for one in found.others] == [
        (4, "sweep", None),
        (16, "sweep", 0.5),
    ]
    assert all(one.is_enough for one in found.others)


def test_disturbed_runs_other_modes_and_older_software_are_excluded():
    probes = [
        run(1, 8, fingerprint="old"),
        run(2, 8, contended=True),
        run(3, 8, throttled_pct=5.0),
        run(4, 8, cold="true"),
        run(5, 8, concurrency="4"),
        run(6, 8),
    ]
    (found,) = probe_histories(columns_of(probes), [], {})
    assert (found.present.runs, found.present.is_enough) == (1, False)
    assert (found.model, found.bound_ms, found.others) == ("ranker", None, ())
    assert probe_histories(columns_of(probes[1:3]), [], {}) == []


def test_a_sweep_alone_is_enough():
    """A probe that the daemon does not run on a device is taken at the cheapest batch."""
    sweeps = [
        sweep(1, 4, 5.0, fingerprint="old", cheapest=True),
        sweep(9, 4, 6.0, cheapest=False),
        sweep(9, 16, 18.0, cheapest=True),
    ]
    (found,) = probe_histories([], sweeps, {})
    assert (found.subject, found.present.batch, found.present.is_enough) == (
        "ranker on gpu0",
        16,
        True,
    )
    assert [(one.batch, one.latency_p50_ms) for one in found.others] == [(4, 6.0)]
    disturbed = [run(5, 8, contended=True)]
    assert probe_histories(columns_of(disturbed), sweeps, {}) == [found]


def test_power_of_a_batch():
    # 800 a second at 2 J, 0.5 J of them above idle: 1,600 W busy, 1,200 W idle.
    measured = figures(8, 10.0, energy_j=2.0, above_idle_j=0.5)
    assert (measured.busy_w, measured.idle_w) == (1600.0, 1200.0)
    assert (figures(8, 10.0).busy_w, figures(8, 10.0, energy_j=2.0).idle_w) == (None, None)
