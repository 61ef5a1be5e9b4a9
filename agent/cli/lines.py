"""Readable lines: what a probe came to, in the words and units of the field."""

from __future__ import annotations

from typing import Any

_CURRENCY_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
PER_THOUSAND = 1000


def money(amount: float, currency: str) -> str:
    """An amount with four significant digits: "$0.00158", "12.34 CHF"."""
    text = f"{amount:.4g}"
    if "e" in text:
        text = f"{amount:.12f}".rstrip("0")
    sign = _CURRENCY_SIGNS.get(currency)
    return f"{sign}{text}" if sign else f"{text} {currency}"


def probe_line(document: dict[str, Any]) -> str:
    """One line of a probe report, from the document that `status` and `probe --json` print."""
    parts = [
        f"{document['device']} {document['probe']}",
        f"batch {document['batch']}",
        f"p50 {document['latency_ms']['p50']:.3f} ms",
        f"{document['throughput_per_s']:,.1f} inf/s",
        _energy(document),
        _cost(document),
    ]
    return "  ".join(parts)


def _energy(document: dict[str, Any]) -> str:
    energy = document["energy"]
    if energy is None:
        return f"no energy ({document['energy_absent'] or 'no energy source'})"
    per_inference_j = energy["energy_per_inference_j"]
    return (
        f"{per_inference_j:.3g} J/inf"
        f" ({energy['energy_method'].replace('_', ' ')} ±{energy['energy_rel_err']:.0%})"
    )


def _cost(document: dict[str, Any]) -> str:
    cost, price = document["cost"], document["price"]
    if price is None:
        return "no cost (no price for this device; set [[price]])"
    if cost is None:
        return "no cost (electricity is paid for apart and the energy is unknown)"
    per_thousand = money(cost["cost_per_inference"] * PER_THOUSAND, cost["currency"])
    return f"{per_thousand} per 1,000 ({price_words(price)})"


def price_words(price: dict[str, Any]) -> str:
    """The price behind a cost: "assumed $0.08925/h"."""
    per_hour = money(float(price["per_hour"]), price["currency"])
    return f"{price['plan'].replace('_', ' ')} {per_hour}/h"
