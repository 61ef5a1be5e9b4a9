"""What a probe measured at each batch: the present software's runs, and its last sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.costing.compare import summarized
from agent.costing.compare_rows import number, sifted
from agent.costing.probe_basis import cost_sample
from agent.model import Point
from agent.pricing.book import Terms

# Fewer runs at a batch tell little of it; a sweep's run is one, and long.
LEAST_RUNS = 5
_WAYS = ("cold", "compile", "cuda_graph", "weights", "concurrency")


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What a probe came to at one batch; medians over its runs.

    Attributes:
        batch: Items per pass.
        source: Whether its runs or a sweep told it.
        runs: Number of runs.
        latency_p50_ms: Median latency of a pass.
        throughput_per_s: Items per second.
        energy_j: Joules per item; None where not known.
    """

    batch: int
    source: Literal["runs", "sweep"]
    runs: int
    latency_p50_ms: float
    throughput_per_s: float
    energy_j: float | None

    @property
    def is_enough(self) -> bool:
        """Whether it was measured often enough to rely on."""
        return self.source == "sweep" or self.runs >= LEAST_RUNS

    def cost_per_inference(self, terms: Terms) -> float | None:
        """Currency per item under price terms; None where its energy is paid for and not known."""
        priced = cost_sample(
            terms,
            terms,
            region_s=1 / self.throughput_per_s,
            inferences=1,
            energy_per_inference_j=self.energy_j,
        )
        return None if priced is None else priced.per_inference

    @property
    def words(self) -> str:
        """How much data it is."""
        return "a sweep" if self.source == "sweep" else f"{self.runs} runs"


@dataclass(frozen=True, slots=True)
class ProbeHistory:
    """A probe on a device.

    Attributes:
        probe: Name of the probe.
        device: Name of its device.
        model: What is run, the same for probes of the same model.
        bound_ms: What the probe's median latency may be at most; None where nobody said.
        present: What it runs at now.
        others: Other batches, rising.
    """

    probe: str
    device: str
    model: str
    bound_ms: float | None
    present: BatchFigures
    others: tuple[BatchFigures, ...]

    @property
    def subject(self) -> str:
        """What people call it."""
        return f"{self.probe} on {self.device}"


@dataclass(frozen=True, slots=True)
class Known:
    """What the configuration says of a probe.

    Attributes:
        model: What is run.
        bound_ms: Its latency bound; None where it has none.
    """

    model: str
    bound_ms: float | None


def probe_histories(
    probes: Iterable[Point], sweeps: Iterable[Point], known: Mapping[str, Known]
) -> list[ProbeHistory]:
    """The probes that were run in the plain way, each device by itself.

    Args:
        probes: Rows of `probe`.
        sweeps: Rows of `sweep`.
        known: What the configuration says, by the probe's name; a probe that it does not know
            is taken to be of a model of its own name, without a bound.
    """
    runs: dict[tuple[str, str], list[Point]] = {}
    for row in probes:
        if row.tags.get("batch", "").isdigit() and not any(row.tags.get(way) for way in _WAYS):
            runs.setdefault((row.tags["probe"], row.tags["device"]), []).append(row)
    curves: dict[tuple[str, str], list[Point]] = {}
    for row in sweeps:
        curves.setdefault((row.tags["probe"], row.tags["device"]), []).append(row)
    found = []
    for key, rows in sorted(runs.items()):
        said = known.get(key[0], Known(key[0], None))
        history = _history(key, rows, curves.get(key, []), said)
        if history is not None:
            found.append(history)
    return found


def _history(
    key: tuple[str, str], rows: Sequence[Point], curve: Sequence[Point], said: Known
) -> ProbeHistory | None:
    kept = sifted(rows).rows
    if not kept:
        return None
    batches: dict[int, list[Point]] = {}
    for row in kept:
        batches.setdefault(int(row.tags["batch"]), []).append(row)
    figures: dict[int, BatchFigures] = {}
    for row in _last_sweep(curve, kept[-1].fields.get("fingerprint")):
        batch = int(row.tags["batch"])
        _take(figures, _figures(batch, "sweep", [row]))
    for batch, own in batches.items():
        measured = _figures(batch, "runs", own)
        if measured is not None and (measured.is_enough or batch not in figures):
            _take(figures, measured)
    present = figures.pop(int(kept[-1].tags["batch"]), None)
    if present is None:
        return None
    others = tuple(figures[batch] for batch in sorted(figures))
    return ProbeHistory(key[0], key[1], said.model, said.bound_ms, present, others)


def _take(figures: dict[int, BatchFigures], found: BatchFigures | None) -> None:
    if found is not None:
        figures[found.batch] = found


def _last_sweep(curve: Sequence[Point], fingerprint: object) -> list[Point]:
    """The newest sweep of the present software: another's figures are not to be had any more."""
    own = [
        row
        for row in curve
        if row.fields.get("fingerprint") == fingerprint and row.tags.get("batch", "").isdigit()
    ]
    last_ns = max((row.time_ns for row in own), default=0)
    return [row for row in own if row.time_ns == last_ns]


def _figures(
    batch: int, source: Literal["runs", "sweep"], rows: Sequence[Point]
) -> BatchFigures | None:
    latency = _median(rows, "latency_p50_ms")
    throughput = _median(rows, "throughput_per_s")
    if latency is None or not throughput or throughput < 0:
        return None
    own = [row for row in rows if row.fields.get("energy_scope") != "parent"]
    energy_j = _median(own, "energy_per_inference_j")
    return BatchFigures(batch, source, len(rows), latency, throughput, energy_j)


def _median(rows: Sequence[Point], field: str) -> float | None:
    values = (number(row, field) for row in rows)
    found = summarized([value for value in values if value is not None])
    return None if found is None else found.value
