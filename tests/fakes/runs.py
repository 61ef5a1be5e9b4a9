"""Runs of probes: as their child reports them, and as measured."""

from costprobe.core.records import NS_PER_S
from costprobe.probing.cost import ProbeRun

# What the child of a probe reports.
RESULT = {
    "type": "result",
    "batch": 4,
    "latency_ms": {"p50": 1.0, "mean": 1.1, "cv": 0.1},
    "samples": 300,
    "stop_reason": "runs",
    "steady_start_ns": 1,
    "window_start_ns": 2,
    "window_end_ns": 6_000_000_002,
    "steady_end_ns": 6_000_000_003,
    "inferences": 1200,
    "has_energy_window": True,
    "h2d_ms": None,
    "busy_s": 8.0,
    "fingerprint": "abc",
    "software": {"torch": "2"},
    "threads": 2,
}


def probe_run(**more):
    """A run of 1,000 inferences in 10 s, with changes."""
    measured = {
        "probe": "encoder",
        "device": "gpu0",
        "batch": 8,
        "latency_ms": {"p50": 4.0, "mean": 4.1, "cv": 0.01},
        "samples": 300,
        "stop_reason": "runs",
        "window_start_ns": 0,
        "window_end_ns": 10 * NS_PER_S,
        "inferences": 1000,
        "has_energy_window": True,
        "h2d_ms": 0.1,
        "busy_s": 12.0,
        "fingerprint": "aa",
        "software": {},
        "every_s": 300,
    }
    return ProbeRun(**measured | more)
