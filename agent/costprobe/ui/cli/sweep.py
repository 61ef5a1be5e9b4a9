"""A sweep over batch sizes, on a CPU of threads too: figures of each, as a table and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from costprobe.core.money import common_scale, money, per_words
from costprobe.core.records import END_OF_TIME_NS, Point
from costprobe.core.schema import make_point
from costprobe.core.units import counted
from costprobe.probing.cost import ProbeRun
from costprobe.probing.load_curve import is_load_row
from costprobe.probing.settings import ProbeConfig
from costprobe.ui.amounts import si_column
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import check_names
from costprobe.ui.cli.support.place import Settings, reader_of
from costprobe.ui.cli.views.plots import blank_plot
from costprobe.ui.text import local, with_error

# A latency with a wider 95 % interval within its run is noisy.
NOISY_REL_ERR = 0.05


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One batch size, and number of threads, of a sweep; None where unknown.

    Attributes:
        batch: Items per pass.
        threads: Threads of a CPU; None on other devices.
        latency_p50_ms: Median latency of a pass.
        latency_p90_ms: 90th percentile of it.
        latency_rel_err: Half-width of the 95 % interval of the latency within its run, relative.
        contended: Whether others used the device.
        throughput_per_s: Items per second.
        energy_per_inference_j: Gross joules per item.
        energy_method: Method of the energy measurement.
        energy_rel_err: Their relative uncertainty.
        cost_per_inference: Currency per item, on the probe basis.
        peak_memory_bytes: Peak memory of the process in the search.
    """

    batch: int
    threads: int | None
    latency_p50_ms: float
    latency_p90_ms: float | None
    latency_rel_err: float | None
    contended: bool | None
    throughput_per_s: float
    energy_per_inference_j: float | None
    energy_method: str | None
    energy_rel_err: float | None
    cost_per_inference: float | None
    peak_memory_bytes: int | None

    @property
    def is_noisy(self) -> bool:
        """Whether others used the device, or the latency is not known to 5 %."""
        return bool(self.contended) or (self.latency_rel_err or 0.0) > NOISY_REL_ERR


@dataclass(frozen=True, slots=True)
class SweepCurve:
    """A sweep.

    Attributes:
        probe: Name of the probe.
        device: Name of the device.
        currency: ISO 4217 code; empty if the device has no price.
        fingerprint: Fingerprint of software and model.
        time_ns: UTC in ns of its end.
        latency_bound_ms: The probe's bound; None if it has none.
        points: In order of threads and batch.
        tags: Host and static labels.
    """

    probe: str
    device: str
    currency: str
    fingerprint: str
    time_ns: int
    latency_bound_ms: float | None
    points: tuple[CurvePoint, ...]
    tags: Mapping[str, str]

    @property
    def cheapest(self) -> CurvePoint | None:
        """Cheapest point within the latency bound, the smaller of equals; None if there is none.

        A noisy point counts only if all are noisy.

        Without a price it is the one with the highest throughput, which on one device is also the
        cheapest, except for electricity.
        """
        bound_ms = self.latency_bound_ms
        within = [
            point for point in self.points if bound_ms is None or point.latency_p50_ms <= bound_ms
        ]
        within = [point for point in within if not point.is_noisy] or within
        priced = [point for point in within if point.cost_per_inference is not None]
        if len(priced) == len(within):
            return min(within, key=lambda p: (p.cost_per_inference, p.batch), default=None)
        return min(within, key=lambda p: (-p.throughput_per_s, p.batch), default=None)

    def document(self) -> dict[str, Any]:
        """Return the curve as JSON."""
        cheapest = self.cheapest
        return {
            **{key: value for key, value in asdict(self).items() if key != "tags"},
            "cheapest_batch": None if cheapest is None else cheapest.batch,
            "cheapest_threads": None if cheapest is None else cheapest.threads,
        }


def curve_of(
    runs: Sequence[ProbeRun],
    peaks: Mapping[tuple[int | None, int], int],
    probe: ProbeConfig,
    tags: Mapping[str, str],
) -> SweepCurve:
    """Return the curve of a sweep's runs.

    Args:
        runs: One for each batch and number of threads, at least one.
        peaks: Peak memory in bytes by threads and batch.
        probe: The probe.
        tags: Host and static labels.
    """
    points = [_point_of_run(run, peaks.get((run.threads, run.batch))) for run in runs]
    last = runs[-1]
    bound_s = probe.latency_bound_s
    return SweepCurve(
        probe=probe.name,
        device=last.device,
        currency=last.cost.currency if last.cost else "",
        fingerprint=last.fingerprint,
        time_ns=last.time_ns,
        latency_bound_ms=None if bound_s is None else bound_s * 1000,
        points=_in_order(points),
        tags=tags,
    )


def _point_of_run(run: ProbeRun, peak_memory_bytes: int | None) -> CurvePoint:
    energy, cost = run.energy, run.cost
    return CurvePoint(
        batch=run.batch,
        threads=run.threads,
        latency_p50_ms=run.latency_ms["p50"],
        latency_p90_ms=run.latency_ms.get("p90"),
        latency_rel_err=run.latency_rel_err,
        contended=run.contention.contended,
        throughput_per_s=run.throughput_per_s,
        energy_per_inference_j=None if energy is None else energy.per_inference_j,
        energy_method=None if energy is None else energy.method,
        energy_rel_err=None if energy is None else energy.rel_err,
        cost_per_inference=None if cost is None else cost.per_inference,
        peak_memory_bytes=peak_memory_bytes or None,
    )


def rows_of(curve: SweepCurve) -> list[Point]:
    """Return the rows of `sweep`, one for each point, with one timestamp."""
    cheapest = curve.cheapest
    rows = []
    for point in curve.points:
        fields = asdict(point)
        tags = {
            "device": curve.device,
            "probe": curve.probe,
            "batch": str(fields.pop("batch")),
            "threads": "" if point.threads is None else str(point.threads),
            "currency": curve.currency,
        }
        del fields["threads"]
        fields |= {"fingerprint": curve.fingerprint, "cheapest": point == cheapest}
        rows.append(make_point("sweep", {**curve.tags, **tags}, fields, curve.time_ns))
    return rows


def stored(settings: Settings, probe: ProbeConfig, device: str | None) -> SweepCurve:
    """Return the last stored sweep of a probe.

    Raises:
        click.ClickException: There is none.
    """
    tags = {"probe": probe.name, **({"device": device} if device else {})}
    with reader_of(settings) as reader:
        check_names(reader, settings, {"device": device})
        found = reader.points("sweep", 0, END_OF_TIME_NS, tags)
        rows = [row for row in found if not is_load_row(row)]
    if not rows:
        raise click.ClickException(
            f"no sweep of {probe.name} is stored; run: costprobe probe {probe.name} --sweep"
        )
    last_ns = max(row.time_ns for row in rows)
    rows = [row for row in rows if row.time_ns == last_ns]
    bound_s = probe.latency_bound_s
    return SweepCurve(
        probe=probe.name,
        device=rows[0].tags["device"],
        currency=rows[0].tags.get("currency", ""),
        fingerprint=str(rows[0].fields.get("fingerprint", "")),
        time_ns=last_ns,
        latency_bound_ms=None if bound_s is None else bound_s * 1000,
        points=_in_order(_point_of(row) for row in rows),
        tags={},
    )


def _point_of(row: Point) -> CurvePoint:
    names = [name for name in CurvePoint.__slots__ if name not in ("batch", "threads")]
    values: dict[str, Any] = {name: row.fields.get(name) for name in names}
    threads = row.tags.get("threads", "")
    return CurvePoint(
        batch=int(row.tags["batch"]), threads=int(threads) if threads else None, **values
    )


def _in_order(points: Iterable[CurvePoint]) -> tuple[CurvePoint, ...]:
    return tuple(sorted(points, key=lambda point: (point.threads or 0, point.batch)))


MIB = 1 << 20
PLOT_ROWS = 14
_MARKS = {"*": "cheapest", "~": "noisy: measured beside other work"}


def shown(curve: SweepCurve) -> list[str]:
    """Return the curve as a table and a plot, with the cheapest batch size."""
    has_threads = any(point.threads is not None for point in curve.points)
    energies = [point.energy_per_inference_j for point in curve.points]
    unit, cells = si_column(energies, "J")
    heads = (
        "batch",
        *(["threads"] if has_threads else []),
        *(
            "p50 ms",
            "p90 ms",
            "inf/s",
            f"{unit}/inf",
            per_words(_scale(curve)),
            "peak MiB",
        ),
    )
    rows = [
        _cells(curve, point, energy, has_threads=has_threads)
        for point, energy in zip(curve.points, cells, strict=True)
    ]
    used = [mark for mark in _MARKS if any(mark in row[0] for row in rows)]
    methods = sorted({point.energy_method for point in curve.points if point.energy_method})
    lines = [
        f"{curve.probe} on {curve.device}, {local(curve.time_ns)}, fingerprint {curve.fingerprint}",
        *table_lines([heads, *rows], text_columns=0),
        *(f"{mark} {_MARKS[mark]}" for mark in used),
        *([f"energy: {', '.join(methods).replace('_', ' ')}"] if methods else []),
        _verdict(curve),
    ]
    if len(curve.points) > 1:
        lines += _plot(curve).split("\n")
    return lines


def _cells(
    curve: SweepCurve, point: CurvePoint, energy: str, *, has_threads: bool
) -> tuple[str, ...]:
    cost = point.cost_per_inference
    marks = ("*" if point == curve.cheapest else "") + ("~" if point.is_noisy else "")
    threads = "-" if point.threads is None else str(point.threads)
    return (
        f"{marks} {point.batch}".lstrip(),
        *([threads] if has_threads else []),
        f"{point.latency_p50_ms:.3f}",
        "-" if point.latency_p90_ms is None else f"{point.latency_p90_ms:.3f}",
        f"{point.throughput_per_s:,.1f}",
        with_error(energy, point.energy_rel_err),
        "-" if cost is None else money(cost * _scale(curve), curve.currency),
        "-" if point.peak_memory_bytes is None else f"{point.peak_memory_bytes / MIB:,.0f}",
    )


def _scale(curve: SweepCurve) -> int:
    """Return the number of inferences that costs are written for, as the dashboard chooses it."""
    return common_scale(point.cost_per_inference for point in curve.points)


def _verdict(curve: SweepCurve) -> str:
    bound_ms, cheapest = curve.latency_bound_ms, curve.cheapest
    within = "" if bound_ms is None else f" within {bound_ms:g} ms"
    if cheapest is None:
        fastest = curve.points[0]
        return f"no batch is{within}: batch {fastest.batch} takes {fastest.latency_p50_ms:.3f}"
    reason = "costs least" if cheapest.cost_per_inference is not None else "has the most throughput"
    threads = "" if cheapest.threads is None else f" on {counted(cheapest.threads, 'thread')}"
    return f"batch {cheapest.batch}{threads} {reason}{within}"


def _plot(curve: SweepCurve) -> str:
    """Plot latency and cost, or throughput without a cost, over the batch size.

    On a CPU it is the curve of the number of threads with the cheapest point.
    """
    best = curve.cheapest or curve.points[0]
    points = [point for point in curve.points if point.threads == best.threads]
    batches = [point.batch for point in points]
    costs = [point.cost_per_inference for point in points]
    has_cost = all(cost is not None for cost in costs)
    plotext = blank_plot(PLOT_ROWS)
    plotext.xscale("log")
    right = (
        [(cost or 0.0) * _scale(curve) for cost in costs]
        if has_cost
        else [point.throughput_per_s for point in points]
    )
    label = f"{curve.currency} {per_words(_scale(curve))} (right)" if has_cost else "inf/s (right)"
    latencies = [point.latency_p50_ms for point in points]
    plotext.plot(batches, latencies, label="p50 ms (left)", marker="braille")
    plotext.plot(batches, right, label=label, marker="dot", yside="right")
    plotext.xticks(batches, [str(batch) for batch in batches])
    plotext.xlabel("batch")
    return str(plotext.uncolorize(plotext.build()))
