"""Incidents as the rules emit them."""

from costprobe.core.incident import Alert, Symptom

NS_PER_S = 1_000_000_000
SINCE_NS = 1_780_000_000 * NS_PER_S + 123_456_789


def symptom(**more):
    known = {
        "rule": "drift",
        "series": "latency of transformer on gpu0",
        "text": "+7.2 % since 14:05: SM clock 1980 → 1815 MHz",
        "since_ns": SINCE_NS,
        "value": 1.072,
        "threshold": 1.02,
        "cause": "thermal throttling",
        "severity": "warning",
        "labels": {"device": "gpu0", "probe": "transformer"},
    }
    return Symptom(**(known | more))


def incident(**more):
    """A firing alert with two symptoms; `changes` replace its fields."""
    known = {
        "id": "3f2a-1",
        "name": "drift",
        "state": "firing",
        "severity": "warning",
        "labels": {"host": "node7", "device": "gpu0"},
        "summary": "gpu0 is slower because it throttles",
        "symptoms": (
            symptom(),
            symptom(series="energy of cnn on gpu0", text="+5 % energy", value=None, threshold=None),
        ),
        "since_ns": SINCE_NS,
        "fired_ns": SINCE_NS + 60 * NS_PER_S,
        "cause": "thermal throttling",
        "detail": "cause: thermal throttling 90 %. To do: check the fan",
        "link": "http://gpu-01:9470/?at=2026-05-28T20:26:40Z",
    }
    return Alert(**(known | more))
