"""What services answered in each hour, from stored rows."""

from __future__ import annotations

from costprobe.adapters.storage.reader import StoreReader
from costprobe.adapters.storage.rollup.rolled import row_end
from costprobe.core.records import NS_PER_S, Point
from costprobe.domain.advice.daily_load import HourCount
from costprobe.domain.advice.device_history import HOUR_NS
from costprobe.domain.costing.comparison.compare_rows import number


def service_counts(
    reader: StoreReader, since_ns: int, until_ns: int
) -> dict[str, dict[int, HourCount]]:
    """Return what each service answered, by hour number since 1970; incomplete windows are gaps."""
    counts: dict[str, dict[int, HourCount]] = {}
    for row in reader.points("serving", since_ns, until_ns):
        if "served_model" not in row.tags:  # otherwise a part of the service's own row
            hours = counts.setdefault(row.tags.get("service", ""), {})
            if row.fields.get("complete") is not False:
                _add(hours, row)
    return counts


def _add(hours: dict[int, HourCount], row: Point) -> None:
    """Divide the counts of a window among its hours by time."""
    end_ns = row_end(row).end_ns
    # An aggregated row has the sum of its windows, the last of which ends there.
    length_ns = int((number(row, "window_s") or 0.0) * NS_PER_S)
    start_ns = end_ns - length_ns
    tokens = [number(row, "tokens_in"), number(row, "tokens_out")]
    known = [count for count in tokens if count is not None]
    requests, total = number(row, "requests"), sum(known) if known else None
    while start_ns < end_ns:
        hour = hours.setdefault(start_ns // HOUR_NS, HourCount())
        until_ns = min(end_ns, (start_ns // HOUR_NS + 1) * HOUR_NS)
        share = (until_ns - start_ns) / length_ns
        hour.covered_s += (until_ns - start_ns) / NS_PER_S
        if requests is not None:
            hour.requests = (hour.requests or 0.0) + requests * share
        if total is not None:
            hour.tokens = (hour.tokens or 0.0) + total * share
        start_ns = until_ns
