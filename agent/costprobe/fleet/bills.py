"""What the devices of each host of a fleet cost by the hour, for the comparison with a bill."""

from __future__ import annotations

from collections import Counter, defaultdict

from costprobe.adapters.databases.question import Question
from costprobe.core.periods import HOUR_NS
from costprobe.core.units import HOUR_S
from costprobe.fleet.answers import FleetAnswers
from costprobe.spend.reconcile import MeasuredHour

# Host and currency.
HostMoney = tuple[str, str]


def fleet_hours(answers: FleetAnswers) -> dict[HostMoney, dict[int, MeasuredHour]]:
    """Return the hours of each host, by their number since 1970.

    An hour is covered as far as it has rows: one with the host's usual number of rows has all.

    Args:
        answers: The database, and the period.

    Raises:
        DeliveryError: The database did not answer.
    """
    by = ("host", "currency")
    paid, counted = answers.rows_of_each(
        Question("device", "cost", "sum", by=by, every_s=int(HOUR_S)),
        Question("device", "cost", "count", by=by, every_s=int(HOUR_S)),
    )
    rows = {(row.tags, row.time_ns): row.value for row in counted}
    seen: dict[tuple[str, ...], Counter[float]] = defaultdict(Counter)
    for (tags, _), count in rows.items():
        seen[tags][count] += 1
    # A start or a stop within an hour divides a row; the usual number is the most frequent one.
    usual = {tags: max(counts, key=lambda n: (counts[n], n)) for tags, counts in seen.items()}
    found: dict[HostMoney, dict[int, MeasuredHour]] = defaultdict(dict)
    for tags, cost, end_ns in paid:
        host, currency = tags
        share = min(1.0, rows.get((tags, end_ns), 0.0) / (usual.get(tags) or 1.0))
        found[host, currency][end_ns // HOUR_NS - 1] = MeasuredHour(cost, share * HOUR_S)
    return found
