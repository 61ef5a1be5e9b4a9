"""What the devices of each host of a fleet cost by the hour, for the comparison with a bill."""

from __future__ import annotations

from collections import defaultdict

from costprobe.adapters.databases.question import Question
from costprobe.core.periods import HOUR_NS
from costprobe.core.units import HOUR_S
from costprobe.fleet.answers import FleetAnswers
from costprobe.spend.reconcile import MeasuredHour

# Host and currency.
HostMoney = tuple[str, str]


def measured_hours(answers: FleetAnswers) -> dict[HostMoney, dict[int, MeasuredHour]]:
    """Return the hours of each host, by their number since 1970.

    An hour is covered as far as it has rows: the hour of a host with most rows has all.

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
    most: dict[tuple[str, ...], float] = defaultdict(float)
    for (tags, _), count in rows.items():
        most[tags] = max(most[tags], count)
    found: dict[HostMoney, dict[int, MeasuredHour]] = defaultdict(dict)
    for tags, cost, end_ns in paid:
        host, currency = tags
        share = rows.get((tags, end_ns), 0.0) / (most[tags] or 1.0)
        found[host, currency][end_ns // HOUR_NS - 1] = MeasuredHour(cost, share * HOUR_S)
    return found
