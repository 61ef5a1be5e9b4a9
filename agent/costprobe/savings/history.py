"""The history of services by minute, of probes per batch, and of the starts of models.

Results of a probe are runs of the present software, and its last sweep. The work of a service is
aggregated from its rows without keeping them. Start times are those of measured starts.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from costprobe.core.columns import RowColumns, columns_of, number, numbers_of
from costprobe.core.hours import MINUTE_NS, MINUTES, add_evenly
from costprobe.core.periods import HOUR_NS
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import UNITS
from costprobe.core.units import counted
from costprobe.unit_costs.compare import newest_part, sifted

# Fewer runs at a batch are not representative; a sweep has one long run per batch.
LEAST_RUNS = 5
_WAYS = ("cold", "compile", "cuda_graph", "weights", "concurrency")

# Rows do not begin and end at full minutes exactly.
WHOLE_MINUTE_S = 59.0
_NO_MINUTES = array("d", [0.0] * MINUTES)
ALL_MINUTES = (1 << MINUTES) - 1


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The start of a model until its first answer.

    Attributes:
        seconds: Its duration.
        words: Where it is from, as text.
    """

    seconds: float
    words: str


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


def measured_cold_starts(rows: Iterable[Point]) -> Mapping[tuple[str, str], ColdStart]:
    """Return the median start of each probe on each device, of the newest software.

    Starts with a cold page cache are preferred: a device that was released has none.

    Args:
        rows: Rows of `cold_start`.
    """
    by_place: dict[tuple[str, str], list[Point]] = {}
    for row in rows:
        if number(row, "total_s") is not None:
            by_place.setdefault((row.tags["probe"], row.tags["device"]), []).append(row)
    return {place: _median_start(place, starts) for place, starts in by_place.items()}


def _median_start(place: tuple[str, str], starts: list[Point]) -> ColdStart:
    newest = max(starts, key=lambda row: row.time_ns).fields.get("fingerprint")
    present = [row for row in starts if row.fields.get("fingerprint") == newest]
    cold = [row for row in present if row.tags.get("cache") == "cold"]
    totals_s = [number(row, "total_s") or 0.0 for row in cold or present]
    cache = "cold" if cold else "warm"
    runs = counted(len(totals_s), "start")
    words = f"{place[0]} on {place[1]}, median of {runs} with a {cache} page cache"
    return ColdStart(statistics.median(totals_s), words)


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
        key = plain_run(part.tags)
        if key is not None:
            runs.setdefault(key, []).append(part)
    curves: dict[tuple[str, str], list[Point]] = {}
    for row in sweeps:
        if row.tags.get("batch", "").isdigit():
            curves.setdefault((row.tags["probe"], row.tags["device"]), []).append(row)
    histories = []
    for key in sorted(runs.keys() | curves.keys()):
        configured = known.get(key[0], Known(key[0], None))
        history = _history(key, runs.get(key, []), curves.get(key, []), configured)
        if history is not None:
            histories.append(history)
    return histories


def plain_run(tags: Mapping[str, str]) -> tuple[str, str] | None:
    """Return probe and device of a run; None for one of a variant."""
    if tags.get("batch", "").isdigit() and not any(tags.get(way) for way in _WAYS):
        return tags["probe"], tags["device"]
    return None


def _history(
    key: tuple[str, str], runs: Sequence[RowColumns], curve: Sequence[Point], configured: Known
) -> ProbeHistory | None:
    # On a device where only a sweep ran, the probe would run at the sweep's cheapest batch.
    measured_runs = sifted(runs).parts
    usable = measured_runs or columns_of(
        [row for row in curve if row.fields.get("cheapest") is True]
    )
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
        found = _figures(int(row.tags["batch"]), "sweep", columns_of([row]))
        if found is not None:
            figures[found.batch] = found
    for batch, parts in batches.items():
        found = _figures(batch, "runs", parts)
        if found is not None and (found.is_enough or batch not in figures):
            figures[batch] = found
    present = figures.pop(int(newest.tags["batch"]), None)
    if present is None:
        return None
    others = tuple(figures[batch] for batch in sorted(figures))
    return ProbeHistory(key[0], key[1], configured.model, configured.bound_ms, present, others)


def _last_sweep(curve: Sequence[Point], fingerprint: object) -> list[Point]:
    """Return the newest sweep of the present software; other software's figures are outdated."""
    rows_of_sweep = [row for row in curve if row.fields.get("fingerprint") == fingerprint]
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


def _by_minute() -> array[float]:
    return _NO_MINUTES[:]


@dataclass(slots=True)
class ServedHour:
    """An hour of a service.

    Attributes:
        covered_s: Seconds of each minute that complete rows cover.
        active: One bit for each minute of a row with work.
        is_doubtful: Whether a row is incomplete.
        counts: Work in each minute by unit; a row's work is spread over its minutes.
    """

    covered_s: array[float] = field(default_factory=_by_minute)
    active: int = 0
    is_doubtful: bool = False
    counts: dict[str, array[float]] = field(
        default_factory=lambda: {unit: _by_minute() for unit in UNITS}
    )

    @property
    def idle(self) -> int:
        """One bit for each minute that is known to be without work."""
        if self.active == ALL_MINUTES:
            return 0
        known = sum(
            1 << minute
            for minute, covered_s in enumerate(self.covered_s)
            if covered_s >= WHOLE_MINUTE_S
        )
        return known & ~self.active

    @property
    def is_known(self) -> bool:
        """Whether complete rows cover all of it."""
        return not self.is_doubtful and min(self.covered_s) >= WHOLE_MINUTE_S

    @property
    def requests(self) -> float:
        """Answered requests; output tokens where a server does not count requests."""
        return sum(self.counts["requests"]) or sum(self.counts["tokens_out"])


@dataclass(slots=True)
class ServiceHistory:
    """The history of a service.

    Attributes:
        name: Name of the service.
        devices: Names of its devices.
        cold_start_s: Configured duration of a start until the first answer; None if not stated.
        part: What it is of a service of several hosts; empty if it answers requests alone.
        hours: By hour number since 1970, UTC.
        row_s: Length of its longest row: shorter gaps between requests are not seen.
        missing: Units that a complete row lacks.
    """

    name: str
    devices: tuple[str, ...]
    cold_start_s: float | None = None
    part: str = ""
    hours: dict[int, ServedHour] = field(default_factory=dict)
    row_s: float = 0.0
    missing: set[str] = field(default_factory=set)

    def add(
        self,
        start_ns: int,
        end_ns: int,
        counts: Mapping[str, float | None],
        *,
        is_active: bool,
        is_complete: bool,
    ) -> None:
        """Add a row.

        Args:
            start_ns: UTC ns.
            end_ns: UTC ns.
            counts: Work by unit; None where it is not counted.
            is_active: Whether any counter increased.
            is_complete: Whether its counters are complete.
        """
        length_ns = end_ns - start_ns
        self.row_s = max(self.row_s, length_ns / NS_PER_S)
        if is_complete:
            self.missing |= {unit for unit in UNITS if counts.get(unit) is None}
        work = [(unit, count) for unit in UNITS if (count := counts.get(unit))]
        for index in range(start_ns // HOUR_NS, -(-end_ns // HOUR_NS)):
            hour = self.hours.get(index)
            if hour is None:
                hour = self.hours[index] = ServedHour()
            hour_ns = index * HOUR_NS
            within = max(start_ns, hour_ns) - hour_ns, min(end_ns - hour_ns, HOUR_NS)
            hour.is_doubtful |= not is_complete
            if is_active:
                hour.active |= (1 << -(-within[1] // MINUTE_NS)) - (1 << within[0] // MINUTE_NS)
            if is_complete:
                _spread(hour.covered_s, within, 1, NS_PER_S)
            for unit, count in work:
                _spread(hour.counts[unit], within, count, length_ns)

    @property
    def unit(self) -> str | None:
        """The unit that every row counts and some row has; None if there is none."""
        return next(
            (unit for unit in UNITS if unit not in self.missing and self.most_per_s(unit)), None
        )

    def most_per_s(self, unit: str) -> float:
        """Return the work per second in the minute with the most."""
        return max((max(hour.counts[unit]) for hour in self.hours.values()), default=0.0) / 60


def _spread(
    by_minute: array[float], within: tuple[int, int], amount: float, length_ns: int
) -> None:
    """Add the part of an amount that falls on each minute.

    Args:
        by_minute: The minutes of an hour.
        within: Start and end in ns since the start of the hour.
        amount: The amount of a length of time.
        length_ns: This length.
    """
    since_ns, until_ns = within
    first, last = since_ns // MINUTE_NS, (until_ns - 1) // MINUTE_NS
    if first < last:
        by_minute[first] += amount * ((first + 1) * MINUTE_NS - since_ns) / length_ns
        add_evenly(by_minute, first + 1, last, amount * MINUTE_NS / length_ns)
        since_ns = last * MINUTE_NS
    by_minute[last] += amount * (until_ns - since_ns) / length_ns
