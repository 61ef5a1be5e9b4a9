"""What a child reports of a probe run or of a model start: validated, and the record that everyone uses.

For a probe of a server a request counts as an inference, with its latency and its share of the
window's time and energy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from costprobe.core.records import END_OF_TIME_NS, NS_PER_S

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
_STATISTICS: Final = frozenset({"p50", "p90", "p99", "mean", "cv"})
MAX_NOTE_CHARS = 200
# Of the numbers that need no validation.
LARGEST: Final = 1e300
# Tags of execution modes that a worker may add to its rows.
WAYS = frozenset({"cold", "compile", "concurrency", "cuda_graph", "weights"})
MAX_TAG_CHARS = 64
# Facts about the software, and characters of each.
MAX_FACTS, MAX_FACT_CHARS = 100, 1000
BATCH_POINT_FIELDS = ("batch", "latency_ms", "throughput_per_s", "peak_memory_bytes")

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Within the 64 bits of a database.
Count = Annotated[int, Field(ge=0, le=END_OF_TIME_NS)]
Several = Annotated[Count, Field(ge=1)]
Note = Annotated[str, AfterValidator(lambda text: text[:MAX_NOTE_CHARS])]

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
class NaiveTiming:
    """What a mistake of timing reports.

    Attributes:
        mistake: A name of MISTAKES.
        latency_ms: The latency of a batch in ms that it reports; None if it cannot be made here.
        samples: Number of timed passes.
        not_applicable: Why it cannot be made here; empty if it was.
    """

    mistake: str
    latency_ms: Amount | None
    samples: Count
    not_applicable: Note = ""

    def error_pct(self, latency_p50_ms: float) -> float | None:
        """Return the error in percent of the measured latency; None without a latency.

        Args:
            latency_p50_ms: The measured median, above 0.
        """
        if self.latency_ms is None:
            return None
        return (self.latency_ms / latency_p50_ms - 1) * 100


def _bounded_facts(facts: dict[str, str]) -> dict[str, str]:
    known = list(facts.items())[:MAX_FACTS]
    return {name[:MAX_TAG_CHARS]: value[:MAX_FACT_CHARS] for name, value in known}


def _known_ways(tags: dict[str, str]) -> dict[str, str]:
    return {name: value[:MAX_TAG_CHARS] for name, value in tags.items() if name in WAYS}


def _known_mistakes(timings: tuple[NaiveTiming, ...]) -> tuple[NaiveTiming, ...]:
    """Return the last timing of each mistake, in the order of MISTAKES."""
    found = {timing.mistake: timing for timing in timings}
    return tuple(found[name] for name in MISTAKES if name in found)


@dataclass(frozen=True, slots=True)
class Contention:
    """What took processor time from a run; each is None where unknown.

    Attributes:
        contended: Whether other processes, virtual machines or a quota did, on a CPU; on other devices
            only whether the thread that launches its work waited.
        others_pct: Share of the processors' time that other processes ran.
        steal_pct: Share that the hypervisor gave to other virtual machines.
        wait_pct: Share of their time in which the probe's threads waited for a processor.
    """

    contended: bool | None = None
    others_pct: Amount | None = None
    steal_pct: Amount | None = None
    wait_pct: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One run of a probe, by the names of its child's message `result`.

    Attributes:
        probe: Name of the probe.
        device: Name of the device, or devices, it ran on.
        pids: Processes of the probe, to separate its load from that of other processes.
        curve: Points of the batch search; empty if there was none.
        batch: Items per forward pass, or of a response.
        latency_ms: Statistics per batch: p50, mean, cv, and p90 and p99 where supported.
        samples: Number of timed forward passes, or requests.
        stop_reason: Why sampling ended.
        steady_start_ns: CLOCK_MONOTONIC ns from which the load was steady.
        window_start_ns: Start of the steady-state window, CLOCK_MONOTONIC ns.
        window_end_ns: End of the window, CLOCK_MONOTONIC ns.
        steady_end_ns: CLOCK_MONOTONIC ns until which the load was steady.
        inferences: Items inferred in the window (passes times batch), or requests answered, by
            their shares within it.
        has_energy_window: True if the window was long enough (5 s) to measure energy.
        busy_s: Device-seconds of the whole run, warm-up and search included.
        fingerprint: Hash of the measured software and model.
        software: Facts that the fingerprint is computed from.
        tags: Further tags of its rows: execution modes, or the concurrency of requests.
        inference_s: Seconds that the window's inferences take back to back, by the run's own
            loop; None for the whole window.
        latency_rel_err: Half-width of the 95 % interval of median and mean within the run,
            relative, the larger one; None if unknown.
        outliers: Number of outliers among the timed passes; all statistics include them.
        samples_delayed: Passes that others delayed, which are left out.
        pass_low_ms: Shortest mean time of a pass in the parts of a run.
        pass_high_ms: Longest one.
        unsteady: Whether its first and last third differ, or the latencies have two modes.
        h2d_ms: Host-to-device copy of one batch in ms; None without a copy.
        device_ms: Time of a pass on the device alone; None if unknown.
        threads: Intra-op threads on a CPU; None on a GPU.
        contention: What took processor time from the run.
        window_tokens_in: Input tokens in the window; None if unknown.
        window_tokens_out: Output tokens in the window; None if there are none.
        tokens_in: Input tokens of an item, or of a request.
        tokens_out: Output tokens of one.
        flop_per_pass: Floating-point operations of a forward pass; None where they cannot be counted.
        bytes_per_pass: Bytes of weights and state that a forward pass moves; None as above.
        flop_precision: Type in which it computes, as the catalogue names it; None as above.
        naive: What common mistakes of timing report, each at most once; empty if not asked for.
        requests: Timed requests to a server; None for a model, as all that follows.
        ttft_ms: Statistics of the time to first token; None without a stream.
        tpot_ms: Statistics of the time per output token.
        cached_tokens: Input tokens of a request that a cache of the server answered.
        cached: Whether a cache answered most of the work.
        token_source: How generated tokens are counted.
        errors: Requests without a valid answer, by kind.
        itl_ms: Statistics of the times between chunks; of a point of a load curve, as all that follows.
        offered_per_s: Scheduled requests per second of an open loop.
        goodput_per_s: Requests per second within the service level.
        in_flight: Mean number of requests in flight.
        decode_steps: Steps of the model that generated further tokens of answers.
        late_ms: Mean delay of a request behind its schedule.
        client_busy_share: Share of a processor that the client used.
    """

    probe: str
    device: str
    pids: tuple[int, ...] = ()
    curve: tuple[Mapping[str, Count | Amount], ...] = ()
    batch: Several
    latency_ms: Mapping[str, Amount]
    samples: Several
    stop_reason: Note
    steady_start_ns: Count = 0
    window_start_ns: Count
    window_end_ns: Count
    steady_end_ns: Count = 0
    inferences: Positive
    has_energy_window: bool
    busy_s: Amount
    fingerprint: Note
    software: Annotated[dict[str, str], AfterValidator(_bounded_facts)]
    tags: Annotated[dict[str, str], AfterValidator(_known_ways)] = field(default_factory=dict)
    inference_s: Positive | None = None
    latency_rel_err: Amount | None = None
    outliers: Count | None = None
    samples_delayed: Count | None = None
    pass_low_ms: Amount | None = None
    pass_high_ms: Amount | None = None
    unsteady: bool | None = None
    h2d_ms: Amount | None = None
    device_ms: Amount | None = None
    threads: Count | None = None
    contention: Contention = Contention()
    window_tokens_in: Amount | None = None
    window_tokens_out: Amount | None = None
    tokens_in: Count | Amount | None = None
    tokens_out: Count | Amount | None = None
    flop_per_pass: Positive | None = None
    bytes_per_pass: Positive | None = None
    flop_precision: Note | None = None
    naive: Annotated[tuple[NaiveTiming, ...], AfterValidator(_known_mistakes)] = ()
    requests: Count | None = None
    ttft_ms: Mapping[str, Amount] | None = None
    tpot_ms: Mapping[str, Amount] | None = None
    cached_tokens: Count | Amount | None = None
    cached: bool | None = None
    token_source: Note | None = None
    errors: Mapping[str, Count] | None = None
    itl_ms: Mapping[str, Amount] | None = None
    offered_per_s: Amount | None = None
    goodput_per_s: Amount | None = None
    in_flight: Amount | None = None
    decode_steps: Amount | None = None
    late_ms: Amount | None = None
    client_busy_share: Amount | None = None

    @property
    def window_s(self) -> float:
        """Length of the steady-state window in seconds."""
        return (self.window_end_ns - self.window_start_ns) / NS_PER_S

    @property
    def inferring_s(self) -> float:
        """Seconds of the window's inferences: `inference_s`, or the whole window."""
        return self.window_s if self.inference_s is None else self.inference_s

    @property
    def throughput_per_s(self) -> float:
        """Inferences per second."""
        return self.inferences / self.inferring_s

    @property
    def pass_s(self) -> float:
        """Mean seconds of a forward pass in the steady-state window."""
        return self.batch / self.throughput_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStart:
    """A model that was started in a new process, by the names of the message `cold_start`.

    Attributes:
        began_ns: Start of the process, CLOCK_MONOTONIC ns.
        received_ns: The interpreter had started.
        loaded_ns: Packages were imported, the device was open, and the weights were on it.
        answered_ns: First pass, with lazy initialization and compilation.
        fingerprint: Fingerprint of software and model.
        read_bytes: Bytes that were read from storage; None if unknown.
        files: Names of the files that it read, by folder; None if they were not asked for.
    """

    began_ns: Count
    received_ns: Count
    loaded_ns: Count
    answered_ns: Count
    fingerprint: Note
    read_bytes: Count | None = None
    files: Mapping[str, Sequence[str]] | None = None

    @property
    def process_start_s(self) -> float:
        """Until the interpreter had started."""
        return (self.received_ns - self.began_ns) / NS_PER_S

    @property
    def load_s(self) -> float:
        """Until packages were imported, the device was open, and the weights were on it."""
        return (self.loaded_ns - self.received_ns) / NS_PER_S

    @property
    def first_answer_s(self) -> float:
        """First pass, with lazy initialization and compilation."""
        return (self.answered_ns - self.loaded_ns) / NS_PER_S

    @property
    def total_s(self) -> float:
        """From the start of the process to the first answer."""
        return self.process_start_s + self.load_s + self.first_answer_s

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that it read, if they were asked for."""
        folders = (self.files or {}).items()
        return tuple(Path(folder, name) for folder, names in folders for name in names)


@dataclass(frozen=True, slots=True)
class ProbeProgress:
    """Progress of a run: its phase, the share of it that is done, and a note."""

    phase: str
    done: float
    note: str


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


Record = TypeVar("Record")


def _validated(record: type[Record], message: Mapping[str, Any]) -> Record:
    """Return a message, which is from another process and possibly another version, as a record.

    Raises:
        ValueError: A field is missing or invalid.
    """
    try:
        return TypeAdapter(record).validate_python(dict(message))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{name}: {first['msg']}"[:MAX_NOTE_CHARS]) from None


def read_result(
    message: Mapping[str, Any],
    *,
    probe: str,
    device: str,
    pids: Sequence[int] = (),
    curve: Sequence[Mapping[str, float]] = (),
) -> ProbeResult:
    """Validate a child's result.

    Args:
        message: The result, of a model or of a server.
        probe: Name of the requested probe.
        device: Name of the device, or of the server's devices.
        pids: The child's processes.
        curve: Points of its batch search.

    Raises:
        ValueError: A field is missing or invalid.
    """
    own = {"probe": probe, "device": device, "pids": pids, "curve": curve}
    result = _validated(ProbeResult, {**message, **own})
    start_ns, end_ns = result.window_start_ns, result.window_end_ns
    if not result.steady_start_ns <= start_ns < end_ns <= result.steady_end_ns:
        raise ValueError("the edges of its window are out of order")
    if not {"p50", "mean", "cv"} <= set(result.latency_ms) <= _STATISTICS:
        raise ValueError("it lacks p50, mean or cv, or has other statistics")
    if result.requests is not None:
        return result
    counts = (result.window_tokens_in, result.window_tokens_out)
    tokens_in, tokens_out = (None if n is None else n / result.inferences for n in counts)
    if any(of_item is not None and of_item < 1 for of_item in (tokens_in, tokens_out)):
        raise ValueError("it has fewer tokens than items")
    return replace(result, tokens_in=tokens_in, tokens_out=tokens_out)


def read_start(message: Mapping[str, Any], began_ns: int) -> ModelStart:
    """Validate a worker's report of a start.

    Args:
        message: The worker's report.
        began_ns: Start of the process, CLOCK_MONOTONIC ns.

    Raises:
        ValueError: A field is missing or invalid.
    """
    start = _validated(ModelStart, {**message, "began_ns": began_ns})
    if not began_ns <= start.received_ns <= start.loaded_ns <= start.answered_ns:
        raise ValueError("the instants of its start are out of order")
    return start


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
    return value if type(value) in (int, float) and abs(value) < LARGEST else None
