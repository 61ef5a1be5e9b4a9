"""A load curve as rows of `sweep`, and rows as a load curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from costprobe.core.records import Point
from costprobe.core.schema import make_point
from costprobe.domain.costing.load.curve import LoadCurve
from costprobe.domain.costing.load.point import FIGURES, LoadPoint, Loop


def curve_rows(curve: LoadCurve) -> list[Point]:
    """Return the rows of a curve, one for each point, with one timestamp."""
    cheapest, front = curve.cheapest, curve.front
    last = {point.loop: point for point in curve.points}
    slo = slo_text(curve.bounds_ms)
    rows = []
    for point in curve.points:
        tags = {
            **curve.tags,
            "device": curve.device,
            "probe": curve.probe,
            "loop": point.loop,
            "step": str(point.number),
            "concurrency": "" if point.concurrency is None else str(point.concurrency),
            "currency": curve.currency,
        }
        fields = {
            **point.figures,
            "energy_method": point.energy_method,
            "contended": point.contended,
            "fingerprint": curve.fingerprint,
            "slo": slo or None,
            "meets_slo": point.meets(curve.bounds_ms) if slo else None,
            "cheapest": point == cheapest,
            "front": point in front,
            "loop_end": curve.ends.get(point.loop) if point == last[point.loop] else None,
        }
        rows.append(make_point("sweep", tags, fields, curve.time_ns))
    return rows


def is_load_row(row: Point) -> bool:
    """Return whether a row of `sweep` is a point of a load curve, not of a sweep over batches."""
    return "loop" in row.tags


def curves_from_rows(rows: Iterable[Point], bounds_ms: Mapping[str, float]) -> list[LoadCurve]:
    """Return the curves among rows of `sweep` of one probe, in order of time.

    Args:
        rows: Rows of the probe; those of sweeps over batches are skipped.
        bounds_ms: The service level to compare the points with.
    """
    by_curve: dict[tuple[int, str], list[Point]] = {}
    for row in rows:
        if is_load_row(row):
            by_curve.setdefault((row.time_ns, row.tags.get("device", "")), []).append(row)
    return [_curve(by_curve[key], bounds_ms) for key in sorted(by_curve)]


def curve_from_rows(rows: Iterable[Point], bounds_ms: Mapping[str, float]) -> LoadCurve:
    """Return the newest curve among rows of one probe, of which at least one is of a load curve.

    Args:
        rows: Rows of the probe.
        bounds_ms: The service level to compare the points with.
    """
    return curves_from_rows(rows, bounds_ms)[-1]


def _curve(rows: Sequence[Point], bounds_ms: Mapping[str, float]) -> LoadCurve:
    points = sorted((_point(row) for row in rows), key=lambda point: (point.loop, point.number))
    first = rows[0]
    return LoadCurve(
        probe=first.tags["probe"],
        device=first.tags["device"],
        currency=first.tags.get("currency", ""),
        fingerprint=str(first.fields.get("fingerprint", "")),
        time_ns=first.time_ns,
        bounds_ms=bounds_ms,
        points=tuple(points),
        ends={
            cast("Loop", row.tags["loop"]): str(row.fields["loop_end"])
            for row in rows
            if "loop_end" in row.fields
        },
    )


def slo_text(bounds_ms: Mapping[str, float]) -> str:
    """Return a service level as text: "ttft_p90 500 ms, tpot_p90 50 ms"; empty without one."""
    return ", ".join(f"{name} {bound_ms:g} ms" for name, bound_ms in bounds_ms.items())


def _point(row: Point) -> LoadPoint:
    figures: dict[str, float | None] = {}
    for name in FIGURES:
        value = row.fields.get(name)
        figures[name] = float(value) if isinstance(value, int | float) else None
    method, contended = row.fields.get("energy_method"), row.fields.get("contended")
    concurrency, step = row.tags.get("concurrency", ""), row.tags.get("step", "")
    return LoadPoint(
        loop=cast("Loop", row.tags["loop"]),
        number=int(step) if step.isdigit() else 0,
        concurrency=int(concurrency) if concurrency.isdigit() else None,
        figures=figures,
        energy_method=None if method is None else str(method),
        contended=contended if isinstance(contended, bool) else None,
    )
