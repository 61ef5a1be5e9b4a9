"""What a span cost, divided by a label of services, probes or hosts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from costprobe.adapters.storage.history import SeriesValues
from costprobe.app.budgeting.spend_reading import Usual, span_spend
from costprobe.domain.costing.budgets.periods import TimeSpan


def label_spend(
    label: str,
    costs: Sequence[SeriesValues],
    allocations: Sequence[SeriesValues],
    span: TimeSpan,
    usual: Usual,
    currency_at: Callable[[str, int], str],
) -> dict[str, dict[str, float]]:
    """Return the cost of each value of a label by currency: as allocated, else that of the devices.

    Cost without the label is not included.

    Args:
        label: The tag.
        costs: `cost` of the rows of `device`, over the span and LATE_NS around it.
        allocations: `cost` of the rows of `allocation`, over the span.
        span: The span.
        usual: Length of intervals if there are too few rows.
        currency_at: Currency of a device's price at a UTC ns, for rows without one.
    """
    amounts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for series in allocations:
        own = amounts[series.tags.get("currency") or "?"]
        own[series.tags.get(label, "")] += math.fsum(series.values)
    of_services = set(amounts)
    for value in {series.tags.get(label, "") for series in costs}:
        labelled = (series for series in costs if series.tags.get(label, "") == value)
        for currency, spend in span_spend(labelled, span, usual, currency_at).items():
            if currency not in of_services:
                amounts[currency][value] += math.fsum(d.cost for d in spend.by_device.values())
    return {
        currency: {value: cost for value, cost in own.items() if value}
        for currency, own in amounts.items()
    }
