"""The comparison of alternatives as JSON, a table and bars."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from costprobe.core.money_text import PER_THOUSAND, money
from costprobe.core.units import HOUR_S, MONTH_H, counted
from costprobe.domain.costing.comparison.what_if import (
    WhatIfSample,
    break_even_share,
    repriced,
    typical,
)
from costprobe.domain.pricing.book import PriceBook, Terms

PLOT_BARS = 50


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another plan, batch size or device for the same samples.

    Attributes:
        name: Name in the table.
        book: Price book.
        is_always_paid: Whether idle hours are paid, too.
        samples: Predicted samples; None for the measured ones.
    """

    name: str
    book: PriceBook
    is_always_paid: bool = False
    samples: Sequence[WhatIfSample] | None = None


def compared(
    group: tuple[str, str], samples: Sequence[WhatIfSample], alternatives: Sequence[Alternative]
) -> dict[str, Any]:
    """Return one probe on one device under each alternative, as JSON.

    Args:
        group: Names of the device and the probe.
        samples: Measured samples, oldest first.
        alternatives: The first one is the plans in force.
    """
    device, probe = group
    now_ns = time.time_ns()
    entries = [_entry(alternative, samples, now_ns) for alternative in alternatives]
    on_demand = next(
        (e for e in entries if e["plan"] in ("on_demand", "assumed") and e["price_rate_per_h"]),
        None,
    )
    for entry, alternative in zip(entries, alternatives, strict=True):
        share = None
        if alternative.is_always_paid and on_demand is not None:
            share = _break_even(entry, on_demand)
        entry["break_even_share"] = None if share is None else float(share)
    return {"device": device, "probe": probe, "samples": len(samples), "plans": entries}


def _entry(
    alternative: Alternative, measured: Sequence[WhatIfSample], now_ns: int
) -> dict[str, Any]:
    samples = measured if alternative.samples is None else alternative.samples
    outcome = repriced(samples, alternative.book.terms)
    device = samples[-1].device
    terms = alternative.book.terms(device, now_ns)
    electricity = None if terms is None else _electricity_per_hour(terms, samples)
    return {
        "name": alternative.name,
        "device": device,
        "plan": None if terms is None else terms.rate.plan,
        "currency": None if terms is None else terms.rate.currency,
        "price_rate_per_h": None if terms is None else str(terms.rate.per_hour),
        "price_per_month": None if terms is None else str(terms.rate.per_hour * MONTH_H),
        "electricity_per_h": None if electricity is None else str(electricity),
        "latency_p50_ms": typical(samples).latency_p50_ms,
        "cost_per_inference": outcome.per_inference,
        "unpriced_samples": outcome.unpriced,
    }


def _electricity_per_hour(terms: Terms, samples: Sequence[WhatIfSample]) -> Decimal | None:
    """Return the electricity cost of an hour of use; None if the power is unknown."""
    if terms.electricity_per_j == 0:
        return Decimal(0)
    powers_w = [sample.power_w for sample in samples if sample.power_w is not None]
    if not powers_w:
        return None
    return Decimal(repr(statistics.median(powers_w) * terms.electricity_per_j * HOUR_S))


def _break_even(entry: Mapping[str, Any], on_demand: Mapping[str, Any]) -> Decimal | None:
    """Return the break-even utilization of a fixed price; None if unknown."""
    needed = ("price_rate_per_h", "electricity_per_h")
    if any(alternative[name] is None for alternative in (entry, on_demand) for name in needed):
        return None
    if entry["currency"] != on_demand["currency"]:
        return None
    rented = Decimal(on_demand["price_rate_per_h"]) + Decimal(on_demand["electricity_per_h"])
    fixed, drawn = Decimal(entry["price_rate_per_h"]), Decimal(entry["electricity_per_h"])
    return break_even_share(fixed, rented, drawn)


def shown(entry: Mapping[str, Any]) -> str:
    """Return the alternatives as a table, bars, and the number of unpriced samples.

    Args:
        entry: Result of `compared`.
    """
    lines = [f"{entry['device']} {entry['probe']}, {counted(entry['samples'], 'sample')}"]
    heads = ("plan", "per hour", "per month", "p50 ms", "per 1,000", "vs. current", "break-even")
    rows = [heads, *_rows(entry["plans"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    lines += _bars(entry["plans"])
    lines += [
        f"{plan['name']}: {counted(plan['unpriced_samples'], 'sample')} without a price or without energy"
        for plan in entry["plans"]
        if plan["unpriced_samples"]
    ]
    return "\n".join(lines)


def _rows(plans: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for plan in plans:
        cost, currency, share, latency_ms = (
            plan["cost_per_inference"],
            plan["currency"],
            plan["break_even_share"],
            plan["latency_p50_ms"],
        )
        yield (
            plan["name"],
            "-" if currency is None else money(float(plan["price_rate_per_h"]), currency),
            "-" if currency is None else money(float(plan["price_per_month"]), currency),
            "-" if latency_ms is None else f"{latency_ms:.3f}",
            "-" if cost is None else money(cost * PER_THOUSAND, currency),
            _against(plan, plans[0]),
            "-" if share is None else f"{share:.0%} use",
        )


def _against(plan: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the cost difference to the plans in force; "-" for another currency."""
    cost, before = plan["cost_per_inference"], now["cost_per_inference"]
    if not cost or not before or plan["currency"] != now["currency"]:
        return "-"
    return f"{(cost / before - 1) * 100:+.1f} %"


def _bars(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield cost per inference as bars, for alternatives in the currency in force."""
    priced = [plan for plan in plans if plan["cost_per_inference"]]
    comparable = [plan for plan in priced if plan["currency"] == priced[0]["currency"]]
    most = max((plan["cost_per_inference"] for plan in comparable), default=0.0)
    width = max((len(plan["name"]) for plan in comparable), default=0)
    size = min(PLOT_BARS, max(10, shutil.get_terminal_size().columns - width - 2))
    for plan in comparable:
        bar = "#" * max(1, round(size * plan["cost_per_inference"] / most))
        yield f"{plan['name'].ljust(width)}  {bar}"
