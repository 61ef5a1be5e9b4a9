"""Why the cost of services changed between two spans, as lines of output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costprobe.adapters.store.read import SeriesValues, StoreReader
from costprobe.core.periods import HOUR_NS, TimeSpan
from costprobe.core.records import NS_PER_S, Point
from costprobe.drift.message import explanation
from costprobe.unit_costs.change import (
    COMPARED_SHARE,
    ProductionSums,
    Unit,
    middle_ns,
    production_change,
    production_sums,
)

# What the cost of each field is divided by.
_UNITS: dict[str, Unit] = {
    "cost_per_inference": "inference",
    "cost_per_thousand_inferences": "inference",
    "cost_hardware": "inference",
    "cost_energy": "inference",
    "cost_per_request": "request",
    "cost_per_million_tokens_in": "token",
    "cost_per_million_tokens_out": "token",
}


def production_reasons(
    reader: StoreReader,
    field: str,
    all_series: Iterable[SeriesValues],
    spans: tuple[TimeSpan, TimeSpan],
) -> list[str]:
    """Return a line for each service with a decomposition of its change of cost.

    Args:
        reader: The store.
        field: A field of `cost`; others than costs of a unit have no lines.
        all_series: The series that are shown.
        spans: The earlier and the later span.
    """
    unit = _UNITS.get(field)
    keys = {
        (series.tags["service"], series.tags.get("currency", ""))
        for series in all_series
        if series.tags.get("basis") == "serving"
    }
    lines = []
    for service, currency in sorted(keys) if unit else ():
        tags = {"service": service, "basis": "serving", "currency": currency}
        # The row of an hour is stamped at its start.
        rows = list(reader.points("cost", spans[0].start_ns - HOUR_NS, spans[1].end_ns + 1, tags))
        before, after = (_sums(rows, span) for span in spans)
        if before is None or after is None:
            continue
        try:
            change = production_change(before, after, unit=unit)
        except ValueError:
            continue
        lines.append(f"{service}: {change.change_pct:+z.1f} % per {unit}; {explanation(change)}")
    return lines


def _sums(rows: Sequence[Point], span: TimeSpan) -> ProductionSums | None:
    """Return the sums over a span; None where windows cover too little of it."""
    sums = production_sums(row for row in rows if span.start_ns < middle_ns(row) <= span.end_ns)
    least_s = COMPARED_SHARE * (span.end_ns - span.start_ns) / NS_PER_S
    return sums if sums is not None and sums.window_s >= least_s else None
