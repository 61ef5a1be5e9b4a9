"""The results of a probe per batch: runs of the present software, and its last sweep."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costprobe.core.records import Point
from costprobe.core.row_columns import RowColumns, columns_of, numbers_of
from costprobe.core.row_values import number
from costprobe.core.units import counted
from costprobe.domain.costing.comparison.compare_rows import newest_part, sifted

# Fewer runs at a batch are not representative; a sweep has one long run per batch.
LEAST_RUNS = 5
_WAYS = ("cold", "compile", "cuda_graph", "weights", "concurrency")


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """Results of a probe at one batch; medians over its runs.

    Attributes:
        batch: Items per pass.
        source: Whether the figures are from runs or from a sweep.
        runs: Number of runs.
        latency_p50_ms: Median latency of a pass.
        throughput_per_s: Items per second.
        energy_j: Joules per item; None if unknown.
        above_idle_j: The part of it above idle power; None if unknown.
    """

    batch: int
    source: Literal["runs", "sweep"]
    runs: int
    latency_p50_ms: float
    throughput_per_s: float
    energy_j: float | None
    above_idle_j: float | None = None

    @property
    def is_enough(self) -> bool:
        """Whether it was measured often enough to be reliable."""
        return self.source == "sweep" or self.runs >= LEAST_RUNS

    @property
    def busy_w(self) -> float | None:
        """Power of the device while it computes; None if unknown."""
        return None if self.energy_j is None else self.energy_j * self.throughput_per_s

    @property
    def idle_w(self) -> float | None:
        """Power of the device without work; None if unknown."""
        if self.energy_j is None or self.above_idle_j is None:
            return None
        return (self.energy_j - self.above_idle_j) * self.throughput_per_s

    @property
    def words(self) -> str:
        """Amount of data, as text."""
        return "a sweep" if self.source == "sweep" else counted(self.runs, "run")


@dataclass(frozen=True, slots=True)
class ProbeHistory:
    """A probe on a device.

    Attributes:
        probe: Name of the probe.
        device: Name of its device.
        model: Identity of the model, the same for probes of the same model.
        bound_ms: Configured bound of the median latency; None if there is none.
        present: Results at the batch it runs at now.
        others: Results at other batches, ascending.
    """

    probe: str
    device: str
    model: str
    bound_ms: float | None
    present: BatchFigures
    others: tuple[BatchFigures, ...]

    @property
    def subject(self) -> str:
        """Probe and device, as text."""
        return f"{self.probe} on {self.device}"

    def measurement_needed(self, device: str) -> str:
        """Return what to measure on a device: a sweep is stored, and one is enough."""
        return (
            f"a measurement of {self.probe} on {device}; run: costprobe probe {self.probe}"
            f" --device {device} --sweep"
        )


@dataclass(frozen=True, slots=True)
class Known:
    """Configuration of a probe.

    Attributes:
        model: Identity of the model.
        bound_ms: Its latency bound; None if there is none.
    """

    model: str
    bound_ms: float | None


def probe_histories(
    probes: Iterable[RowColumns], sweeps: Iterable[Point], known: Mapping[str, Known]
) -> list[ProbeHistory]:
    """Return the history of each probe on each device, without variant runs.

    Args:
        probes: Rows of `probe`.
        sweeps: Rows of `sweep`.
        known: Configured probes by name; the model of a probe that is not configured is its
            name, and it has no bound.
    """
    runs: dict[tuple[str, str], list[RowColumns]] = {}
    for part in probes:
        key = _plain_run(part.tags)
        if key is not None:
            runs.setdefault(key, []).append(part)
    curves: dict[tuple[str, str], list[Point]] = {}
    for row in sweeps:
        curves.setdefault((row.tags["probe"], row.tags["device"]), []).append(row)
    histories = []
    for key in sorted(runs.keys() | curves.keys()):
        configured = known.get(key[0], Known(key[0], None))
        history = _history(key, runs.get(key, []), curves.get(key, []), configured)
        if history is not None:
            histories.append(history)
    return histories


def _plain_run(tags: Mapping[str, str]) -> tuple[str, str] | None:
    """Return probe and device of a run; None for one of a variant."""
    if tags.get("batch", "").isdigit() and not any(tags.get(way) for way in _WAYS):
        return tags["probe"], tags["device"]
    return None


def _history(
    key: tuple[str, str], runs: Sequence[RowColumns], curve: Sequence[Point], configured: Known
) -> ProbeHistory | None:
    # On a device where only a sweep ran, the probe would run at the sweep's cheapest batch.
    measured_runs = sifted(runs).parts
    usable = measured_runs or columns_of(_cheapest(curve))
    if not usable:
        return None
    newest = newest_part(usable)
    batches: dict[int, list[RowColumns]] = {}
    for part in measured_runs:
        batches.setdefault(int(part.tags["batch"]), []).append(part)
    figures: dict[int, BatchFigures] = {}
    # Of several numbers of threads the one with the highest throughput is taken last.
    sweep = _last_sweep(curve, newest.column("fingerprint")[-1])
    for row in sorted(sweep, key=lambda row: number(row, "throughput_per_s") or 0.0):
        batch = int(row.tags["batch"])
        _take(figures, _figures(batch, "sweep", columns_of([row])))
    for batch, parts in batches.items():
        measured = _figures(batch, "runs", parts)
        if measured is not None and (measured.is_enough or batch not in figures):
            _take(figures, measured)
    present = figures.pop(int(newest.tags["batch"]), None)
    if present is None:
        return None
    others = tuple(figures[batch] for batch in sorted(figures))
    return ProbeHistory(key[0], key[1], configured.model, configured.bound_ms, present, others)


def _take(figures: dict[int, BatchFigures], new: BatchFigures | None) -> None:
    if new is not None:
        figures[new.batch] = new


def _cheapest(curve: Sequence[Point]) -> list[Point]:
    return [
        row
        for row in curve
        if row.fields.get("cheapest") is True and row.tags.get("batch", "").isdigit()
    ]


def _last_sweep(curve: Sequence[Point], fingerprint: object) -> list[Point]:
    """Return the newest sweep of the present software; other software's figures are outdated."""
    rows_of_sweep = [
        row
        for row in curve
        if row.fields.get("fingerprint") == fingerprint and row.tags.get("batch", "").isdigit()
    ]
    last_ns = max((row.time_ns for row in rows_of_sweep), default=0)
    return [row for row in rows_of_sweep if row.time_ns == last_ns]


def _figures(
    batch: int, source: Literal["runs", "sweep"], parts: Sequence[RowColumns]
) -> BatchFigures | None:
    latency = _median(parts, "latency_p50_ms")
    throughput = _median(parts, "throughput_per_s")
    if latency is None or not throughput or throughput < 0:
        return None
    own = [
        part.where([scope != "parent" for scope in part.column("energy_scope")]) for part in parts
    ]
    energy_j = _median(own, "energy_per_inference_j")
    above_idle_j = _median(own, "energy_above_idle_j")
    runs = sum(len(part.times_ns) for part in parts)
    return BatchFigures(batch, source, runs, latency, throughput, energy_j, above_idle_j)


def _median(parts: Sequence[RowColumns], field: str) -> float | None:
    values = numbers_of(parts, field)
    return statistics.median(values) if values else None
