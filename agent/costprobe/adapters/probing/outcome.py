"""The outcome of a probe run: a validated result, or a fault with the child's stderr tail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from costprobe.core.records import FieldValue, ProbeResult
from costprobe.domain.costing.probe.reported import MISTAKES, NaiveTiming

MAX_NOTE_CHARS = 200
# Tags of execution modes that a worker may add to its rows.
WAYS = frozenset({"cold", "compile", "cuda_graph", "weights"})
MAX_TAG_CHARS = 64
# What takes processor time from a run on a CPU.
CONTENTION = ("others", "steal", "wait")
BATCH_POINT_FIELDS = ("batch", "latency_ms", "throughput_per_s", "peak_memory_bytes")

FaultKind = Literal[
    "busy",
    "cancelled",
    "config",
    "crash",
    "deadline",
    "device",
    "died",
    "interrupted",
    "oom",
    "malformed",
    "spawn",
]


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """Progress of a run: its phase, the share of it that is done, and a note."""

    phase: str
    done: float
    note: str


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """A run with a result.

    Attributes:
        result: The result.
        steady_start_ns: CLOCK_MONOTONIC ns from which the load was steady.
        steady_end_ns: CLOCK_MONOTONIC ns until which it was.
        pids: Processes of the probe, to separate its load from that of other processes.
        curve: Points of the batch search; empty if there was none.
        search_contended: Whether others took processor time from the search; None where unknown.
        naive: What common mistakes of timing report, each at most once; empty if not asked for.
        load: Figures that only a point of a load curve has.
    """

    result: ProbeResult
    steady_start_ns: int
    steady_end_ns: int
    pids: tuple[int, ...]
    curve: tuple[Mapping[str, float], ...]
    search_contended: bool | None = None
    naive: tuple[NaiveTiming, ...] = ()
    load: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """A run without a result.

    Attributes:
        kind: Kind of the fault.
        title: Problem and fix, in one line.
        stderr_tail: The last lines that the child wrote to stderr.
    """

    kind: FaultKind
    title: str
    stderr_tail: Sequence[str]


def read_outcome(
    request_probe: str,
    device: str,
    message: Mapping[str, Any],
    pids: tuple[int, ...],
    curve: Sequence[Mapping[str, float]],
) -> ProbeOutcome:
    """Validate a worker's result, which is from another process and possibly another version.

    Args:
        request_probe: Name of the requested probe.
        device: Name of the device.
        message: The worker's result.
        pids: The worker's processes.
        curve: Points of its batch search.

    Raises:
        ValueError: A field is missing or invalid.
    """
    try:
        contended, shares_pct = _contention(message.get("contention"))
        result = ProbeResult(
            probe=request_probe,
            device=device,
            batch=int(message["batch"]),
            latency_ms={str(k): finite(v) for k, v in dict(message["latency_ms"]).items()},
            samples=int(message["samples"]),
            stop_reason=str(message["stop_reason"]),
            window_start_ns=int(message["window_start_ns"]),
            window_end_ns=int(message["window_end_ns"]),
            inferences=int(message["inferences"]),
            has_energy_window=bool(message["has_energy_window"]),
            h2d_ms=optional(message["h2d_ms"]),
            busy_s=finite(message["busy_s"]),
            fingerprint=str(message["fingerprint"]),
            software={str(k): str(v) for k, v in dict(message["software"]).items()},
            threads=None if message["threads"] is None else int(message["threads"]),
            inference_s=optional(message.get("inference_s")),
            latency_rel_err=optional(message.get("latency_rel_err")),
            outliers=None if message.get("outliers") is None else int(message["outliers"]),
            contended=contended,
            tags=_ways(message.get("tags")),
            fields={**shares_pct, **_tokens_per_item(message)},
            tokens_in=optional(message.get("window_tokens_in")),
            tokens_out=optional(message.get("window_tokens_out")),
        )
        steady = int(message["steady_start_ns"]), int(message["steady_end_ns"])
        naive = _naive(message.get("naive"))
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    check_result(result, steady)
    if result.inferences < 1 or result.batch < 1:
        raise ValueError("it has no inference")
    if result.inference_s is not None and not 0 < result.inference_s <= result.window_s:
        raise ValueError("its inferences took longer than its window")
    searched = message.get("search_contended")
    return ProbeOutcome(
        result,
        *steady,
        pids,
        tuple(curve),
        search_contended=searched if isinstance(searched, bool) else None,
        naive=naive,
    )


def check_result(result: ProbeResult, steady: tuple[int, int]) -> None:
    """Validate what every result must contain.

    Raises:
        ValueError: A value is missing or inconsistent.
    """
    if not (steady[0] <= result.window_start_ns < result.window_end_ns <= steady[1]):
        raise ValueError("the edges of its window are out of order")
    if result.samples < 1 or result.inferences <= 0:
        raise ValueError("it has no inference")
    if not {"p50", "mean", "cv"} <= set(result.latency_ms):
        raise ValueError("it lacks p50, mean or cv")


def _ways(tags: Any) -> dict[str, str]:  # noqa: ANN401 - from another process
    if not isinstance(tags, dict):
        return {}
    return {name: str(value)[:MAX_TAG_CHARS] for name, value in tags.items() if name in WAYS}


def _tokens_per_item(message: Mapping[str, Any]) -> dict[str, FieldValue | None]:
    """Return the tokens that a pass reads and generates for each item, without unknown ones.

    Raises:
        TypeError, ValueError: A value is invalid.
    """
    items = int(message["inferences"])
    found: dict[str, FieldValue | None] = {}
    for name in ("tokens_in", "tokens_out"):
        tokens = optional(message.get(f"window_{name}"))
        if tokens is not None and tokens < items:
            raise ValueError(f"{name}: fewer tokens than items")
        if tokens is not None and items > 0:
            found[name] = tokens / items
    return found


def _naive(timings: Any) -> tuple[NaiveTiming, ...]:  # noqa: ANN401 - from another process
    """Return what common mistakes of timing report, in the order of MISTAKES; unknown ones are skipped.

    Raises:
        KeyError, TypeError, ValueError: A value is missing or invalid.
    """
    found = {}
    for timing in timings or ():
        name = str(timing["mistake"])
        latency_ms = optional(timing["latency_ms"])
        if latency_ms is not None and latency_ms < 0:
            raise ValueError(f"{name}: a latency below 0")
        reason = str(timing["not_applicable"])[:MAX_NOTE_CHARS]
        found[name] = NaiveTiming(name, latency_ms, int(timing["samples"]), reason)
    return tuple(found[name] for name in MISTAKES if name in found)


def _contention(contention: Any) -> tuple[bool | None, dict[str, float | None]]:  # noqa: ANN401 - from another process
    """Return whether a run on a CPU was contended, and by what, as fields."""
    if not isinstance(contention, dict):
        return None, {}
    contended = contention.get("contended")
    shares_pct = {f"cpu_{name}_pct": number(contention.get(f"{name}_pct")) for name in CONTENTION}
    return contended if isinstance(contended, bool) else None, shares_pct


def read_progress(message: Mapping[str, Any]) -> ProbeProgress:
    """Return a worker's progress; invalid values are bounded."""
    share = number(message.get("done"))
    return ProbeProgress(
        phase=str(message.get("phase", ""))[:MAX_NOTE_CHARS],
        done=0.0 if share is None else min(max(share, 0.0), 1.0),
        note=str(message.get("note", ""))[:MAX_NOTE_CHARS],
    )


def read_batch_point(message: Mapping[str, Any]) -> dict[str, float]:
    """Return a point of the batch search without values that are not numbers."""
    figures = {name: number(message.get(name)) for name in BATCH_POINT_FIELDS}
    return {name: value for name, value in figures.items() if value is not None}


def number(value: Any) -> float | None:  # noqa: ANN401 - from another process
    """Return a finite number as it is, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def finite(value: Any) -> float:  # noqa: ANN401 - from another process
    """Return a value as a finite number.

    Raises:
        ValueError, TypeError: It is not a finite number.
    """
    converted = float(value)
    if not math.isfinite(converted):
        raise ValueError(f"{value!r} is not a number")
    return converted


def optional(value: Any) -> float | None:  # noqa: ANN401 - from another process
    """Return a value as a finite number; None as it is.

    Raises:
        ValueError, TypeError: It is neither a finite number nor None.
    """
    return None if value is None else finite(value)
