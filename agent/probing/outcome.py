"""What a probe run came to: a result that was checked, or a fault with the child's last words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.model import ProbeResult

MAX_NOTE_CHARS = 200
BATCH_POINT_FIELDS = ("batch", "latency_ms", "throughput_per_s", "peak_memory_bytes")

FaultKind = Literal[
    "busy", "cancelled", "config", "crash", "deadline", "device", "died", "oom", "rubbish", "spawn"
]


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """Where a run is: its phase, the share of it that is done, and a word on it."""

    phase: str
    done: float
    note: str


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """A run that came to a result.

    Attributes:
        result: What was measured.
        steady_start_ns: CLOCK_MONOTONIC ns from which the load was steady.
        steady_end_ns: CLOCK_MONOTONIC ns until which it was.
        pids: Processes of the probe, to tell its load from a neighbour's.
        curve: Points of the batch search; empty if there was none.
    """

    result: ProbeResult
    steady_start_ns: int
    steady_end_ns: int
    pids: tuple[int, ...]
    curve: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """A run that came to nothing.

    Attributes:
        kind: What went wrong, in one word.
        title: What went wrong, in one line, and what to do.
        last_words: The last lines that the child wrote to standard error.
    """

    kind: FaultKind
    title: str
    last_words: Sequence[str]


def read_outcome(
    request_probe: str,
    device: str,
    message: Mapping[str, Any],
    pids: tuple[int, ...],
    curve: Sequence[Mapping[str, float]],
) -> ProbeOutcome:
    """Checks a worker's result: it comes from another process, perhaps another version.

    Args:
        request_probe: Name of the probe that was asked for.
        device: Our name of the device.
        message: The worker's result.
        pids: The worker's processes.
        curve: Points of its batch search.

    Raises:
        ValueError: A field is missing or cannot be what it says.
    """
    try:
        result = ProbeResult(
            probe=request_probe,
            device=device,
            batch=int(message["batch"]),
            latency_ms={str(k): _finite(v) for k, v in dict(message["latency_ms"]).items()},
            samples=int(message["samples"]),
            stop_reason=str(message["stop_reason"]),
            region_start_ns=int(message["region_start_ns"]),
            region_end_ns=int(message["region_end_ns"]),
            inferences=int(message["inferences"]),
            has_energy_window=bool(message["has_energy_window"]),
            h2d_ms=_optional(message["h2d_ms"]),
            launch_overhead_pct=_optional(message["launch_overhead_pct"]),
            busy_s=_finite(message["busy_s"]),
            fingerprint=str(message["fingerprint"]),
            software={str(k): str(v) for k, v in dict(message["software"]).items()},
            threads=None if message["threads"] is None else int(message["threads"]),
        )
        steady = int(message["steady_start_ns"]), int(message["steady_end_ns"])
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not (steady[0] <= result.region_start_ns < result.region_end_ns <= steady[1]):
        raise ValueError("its region's edges are out of order")
    if result.inferences < 1 or result.batch < 1 or result.samples < 1:
        raise ValueError("it holds no inference")
    if not {"p50", "mean", "cv"} <= set(result.latency_ms):
        raise ValueError("it lacks p50, mean or cv")
    return ProbeOutcome(result, *steady, pids, tuple(curve))


def read_progress(message: Mapping[str, Any]) -> ProbeProgress:
    """A worker's word on where it is, whatever it says."""
    share = _number(message.get("done"))
    return ProbeProgress(
        phase=str(message.get("phase", ""))[:MAX_NOTE_CHARS],
        done=0.0 if share is None else min(max(share, 0.0), 1.0),
        note=str(message.get("note", ""))[:MAX_NOTE_CHARS],
    )


def read_batch_point(message: Mapping[str, Any]) -> dict[str, float]:
    """A point of the batch search; what is no number is left out."""
    found = {name: _number(message.get(name)) for name in BATCH_POINT_FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def _number(value: Any) -> float | None:  # noqa: ANN401 - from another process
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def _finite(value: Any) -> float:  # noqa: ANN401 - from another process
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no number")
    return number


def _optional(value: Any) -> float | None:  # noqa: ANN401 - from another process
    return None if value is None else _finite(value)
