"""The outcome of a probe run or of a model start: validated, or a fault with the stderr tail.

For a probe of a server a request counts as an inference, with its latency and its share of the
window's time and energy. Tokens and time to first token are additional fields.

The outcome of a start has its durations, and the files that it read. What common mistakes of
timing report about a model is part of a probe's outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from costprobe.core.records import NS_PER_S, FieldValue, ProbeResult

# The names of the mistakes, and what they are.
MISTAKES: Final[Mapping[str, str]] = {
    "no_synchronize": "no synchronize, host clock",
    "host_clock": "host clock for each pass, not events",
    "first_pass": "no warm-up: first pass alone",
    "no_warm_up": "no warm-up: mean with the first pass",
    "transfer_inside": "copy of the input inside",
    "one_sample": "one sample",
    "batch_1": "batch 1 times the batch",
}


@dataclass(frozen=True, slots=True)
class NaiveTiming:
    """What a mistake of timing reports.

    Attributes:
        mistake: A name of MISTAKES.
        latency_ms: The latency of a batch in ms that it reports; None if it cannot be made here.
        samples: Number of timed passes.
        not_applicable: Why it cannot be made here; empty if it was.
    """

    mistake: str
    latency_ms: float | None
    samples: int
    not_applicable: str = ""

    def error_pct(self, latency_p50_ms: float) -> float | None:
        """Return the error in percent of the measured latency; None without a latency.

        Args:
            latency_p50_ms: The measured median, above 0.
        """
        if self.latency_ms is None:
            return None
        return (self.latency_ms / latency_p50_ms - 1) * 100


@dataclass(frozen=True, slots=True)
class ModelStart:
    """A model that was started in a new process.

    Attributes:
        process_start_s: Until the interpreter had started.
        load_s: Until packages were imported, the device was open, and the weights were on it.
        first_answer_s: First pass, with lazy initialization and compilation.
        read_bytes: Bytes that were read from storage; None if unknown.
        fingerprint: Fingerprint of software and model.
    """

    process_start_s: float
    load_s: float
    first_answer_s: float
    read_bytes: int | None
    fingerprint: str

    @property
    def total_s(self) -> float:
        """From the start of the process to the first answer."""
        return self.process_start_s + self.load_s + self.first_answer_s


MAX_NOTE_CHARS = 200
# Tags of execution modes that a worker may add to its rows.
WAYS = frozenset({"cold", "compile", "cuda_graph", "weights"})
MAX_TAG_CHARS = 64
# What takes processor time from a run; on a GPU only the waiting is known.
CONTENTION = ("others", "steal", "wait")
# Shortest and longest mean time of a pass in the parts of a run.
PASS_RANGE = ("pass_low_ms", "pass_high_ms")
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
        naive: What common mistakes of timing report, each at most once; empty if not asked for.
        load: Figures that only a point of a load curve has.
    """

    result: ProbeResult
    steady_start_ns: int
    steady_end_ns: int
    pids: tuple[int, ...]
    curve: tuple[Mapping[str, float], ...]
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
    with _invalid_translated():
        contended, shares_pct = _contention(message.get("contention"))
        result = ProbeResult(
            probe=request_probe,
            device=device,
            **_common(message),
            batch=int(message["batch"]),
            inferences=int(message["inferences"]),
            h2d_ms=optional(message["h2d_ms"]),
            threads=None if message["threads"] is None else int(message["threads"]),
            inference_s=optional(message.get("inference_s")),
            latency_rel_err=optional(message.get("latency_rel_err")),
            outliers=None if message.get("outliers") is None else int(message["outliers"]),
            contended=contended,
            tags=_ways(message.get("tags")),
            fields={**shares_pct, **_tokens_per_item(message), **_timing(message)},
            tokens_in=optional(message.get("window_tokens_in")),
            tokens_out=optional(message.get("window_tokens_out")),
            # 0 is no count of a pass.
            flop_per_pass=optional(message.get("flop_per_pass")) or None,
            bytes_per_pass=optional(message.get("bytes_per_pass")) or None,
            flop_precision=str(message.get("flop_precision") or "")[:MAX_TAG_CHARS],
        )
        steady = int(message["steady_start_ns"]), int(message["steady_end_ns"])
        naive = _naive(message.get("naive"))
    check_result(result, steady)
    if result.inferences < 1 or result.batch < 1:
        raise ValueError("it has no inference")
    if result.inference_s is not None and result.inference_s <= 0:
        raise ValueError("its inferences took no time")
    return ProbeOutcome(result, *steady, pids, tuple(curve), naive=naive)


@contextmanager
def _invalid_translated() -> Iterator[None]:
    """Translate what the conversion of a message raises to ValueError."""
    try:
        yield
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _common(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the results of all runs have.

    Raises:
        KeyError, OverflowError, TypeError, ValueError: A value is missing or invalid.
    """
    return {
        "latency_ms": {str(k): finite(v) for k, v in dict(message["latency_ms"]).items()},
        "samples": int(message["samples"]),
        "stop_reason": str(message["stop_reason"]),
        "window_start_ns": int(message["window_start_ns"]),
        "window_end_ns": int(message["window_end_ns"]),
        "has_energy_window": bool(message["has_energy_window"]),
        "busy_s": finite(message["busy_s"]),
        "fingerprint": str(message["fingerprint"]),
        "software": {str(k): str(v) for k, v in dict(message["software"]).items()},
    }


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


def _timing(message: Mapping[str, Any]) -> dict[str, FieldValue | None]:
    """Return the time of a pass on the device alone, its range, and whether the run was unsteady.

    Raises:
        TypeError, ValueError: A value is invalid.
    """
    unsteady, delayed = message.get("unsteady"), message.get("samples_delayed")
    return {
        "device_ms": optional(message.get("device_ms")),
        "samples_delayed": None if not delayed else int(delayed),
        **{name: optional(message.get(name)) for name in PASS_RANGE},
        "unsteady": unsteady if isinstance(unsteady, bool) else None,
    }


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
    """Return whether a run was contended, and what took processor time from it, as fields."""
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


MAX_ERROR_KINDS = 16
_PERCENTILES = ("p50", "p90", "p99", "mean")
_LOAD_FIGURES = (
    *("goodput_per_s", "offered_per_s", "in_flight", "decode_steps"),
    *("late_ms", "client_busy_share"),
)


def read_served_outcome(
    request_probe: str, devices: str, message: Mapping[str, Any], pids: tuple[int, ...]
) -> ProbeOutcome:
    """Validate a worker's result of a probe of a server.

    Args:
        request_probe: Name of the requested probe.
        devices: Name of the server's devices.
        message: The worker's result.
        pids: The worker's processes.

    Raises:
        ValueError: A field is missing or invalid.
    """
    with _invalid_translated():
        items = int(message.get("items", 1))
        result = ProbeResult(
            probe=request_probe,
            device=devices,
            **_common(message),
            batch=items,
            inferences=finite(message["window_requests"]) * items,
            h2d_ms=None,
            tags={"concurrency": str(int(message["concurrency"]))},
            fields=_fields(message),
            tokens_in=optional(message["window_tokens_in"]),
            tokens_out=optional(message["window_tokens_out"]),
        )
        steady = int(message["steady_start_ns"]), int(message["steady_end_ns"])
    check_result(result, steady)
    return ProbeOutcome(result, *steady, pids, (), load=_load(message.get("load")))


def _load(message: Any) -> dict[str, float]:  # noqa: ANN401 - from another process
    """Return the figures that only a point of a load curve has; empty for a run of a probe."""
    if not isinstance(message, dict):
        return {}
    gaps = message.get("itl_ms")
    found = {
        f"itl_{figure}_ms": number(gaps.get(figure)) if isinstance(gaps, dict) else None
        for figure in _PERCENTILES
    }
    found |= {name: number(message.get(name)) for name in _LOAD_FIGURES}
    return {name: value for name, value in found.items() if value is not None}


def _fields(message: Mapping[str, Any]) -> dict[str, FieldValue | None]:
    """Return the fields of `probe` that exist only for servers."""
    fields: dict[str, FieldValue | None] = {"requests": int(message["requests"])}
    for name in ("ttft", "tpot"):
        figures = message[f"{name}_ms"]
        for figure in _PERCENTILES:
            if isinstance(figures, dict):
                fields[f"{name}_{figure}_ms"] = number(figures.get(figure))
    fields["tokens_in"] = number(message["tokens_in"])
    fields["tokens_out"] = number(message["tokens_out"])
    fields["cached_tokens"] = number(message["cached_tokens"])
    cached = message["cached"]
    fields["cached"] = cached if isinstance(cached, bool) else None
    source, errors = message["token_source"], message["errors"]
    fields["token_source"] = None if source is None else str(source)
    counts = errors.items() if isinstance(errors, dict) else ()
    fields["errors"] = sum(int(count) for _, count in list(counts)[:MAX_ERROR_KINDS])
    return fields


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """A start with a first answer.

    Attributes:
        start: Its durations.
        files: Files that it read, if they were asked for.
    """

    start: ModelStart
    files: tuple[Path, ...]


def read_start(message: Mapping[str, Any], began_ns: int) -> StartOutcome:
    """Validate a worker's report of a start.

    Args:
        message: The worker's report.
        began_ns: Start of the process, CLOCK_MONOTONIC ns.

    Raises:
        ValueError: A field is missing or invalid.
    """
    with _invalid_translated():
        received_ns, loaded_ns, answered_ns = (
            int(message[name]) for name in ("received_ns", "loaded_ns", "answered_ns")
        )
        read = message["read_bytes"]
        start = ModelStart(
            process_start_s=(received_ns - began_ns) / NS_PER_S,
            load_s=(loaded_ns - received_ns) / NS_PER_S,
            first_answer_s=(answered_ns - loaded_ns) / NS_PER_S,
            read_bytes=None if read is None else int(read),
            fingerprint=str(message["fingerprint"]),
        )
        folders = dict(message["files"] or {})
        files = tuple(
            Path(str(folder), str(name)) for folder, names in folders.items() for name in names
        )
    if not began_ns <= received_ns <= loaded_ns <= answered_ns:
        raise ValueError("the instants of its start are out of order")
    return StartOutcome(start, files)
