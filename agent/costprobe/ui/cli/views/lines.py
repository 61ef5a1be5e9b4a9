"""Readable lines of a probe result."""

from __future__ import annotations

from typing import Any

from costprobe.core.money import PER_THOUSAND, money, price_text
from costprobe.core.units import percent, significant
from costprobe.ui.text import CHUNKS, joules

MILLION = 1_000_000
# What an energy covers, in words.
SCOPES = {"parent": " of the whole board", "module": " of the whole module"}


def probe_line(document: dict[str, Any]) -> str:
    """Return one line of a probe report, from the JSON of `status` and `probe`."""
    if "concurrency" in document["tags"]:
        return _served_line(document)
    parts = [
        f"{document['device']} {document['probe']}",
        " ".join([f"batch {document['batch']}", *_ways(document["tags"])]),
        f"p50 {document['latency_p50_ms']:.3f} ms{_spread(document)}",
        f"{document['throughput_per_s']:,.1f} inf/s",
        _energy(document, "inf"),
        _cost(document),
        *_carbon(document),
        *_tokens(document),
        *_limit(document),
    ]
    if document["fields"].get("unsteady"):
        parts.append("unsteady: its time changed within the run")
    if document.get("contended"):
        parts.append("contended: others used the device")
    return "  ".join(parts)


def _spread(document: dict[str, Any]) -> str:
    """Return how well the median is known within the run, and how runs differ."""
    shares = {
        "within this run": document.get("latency_rel_err"),
        "between runs": document["fields"].get("latency_spread"),
    }
    known = [f"±{percent(share)} {name}" for name, share in shares.items() if share is not None]
    return f" ({', '.join(known)})" if known else ""


def _served_line(document: dict[str, Any]) -> str:
    """Return one line of a probe of a server: a request counts as an inference, or each of its items."""
    fields, batch = document["fields"], document["batch"]
    unit = "req" if batch == 1 else "inf"
    parts = [
        f"{document['device']} {document['probe']}",
        f"concurrency {document['tags']['concurrency']}",
        *([f"{batch} inferences a request"] if batch > 1 else ()),
        f"p50 {document['latency_p50_ms']:.1f} ms",
    ]
    if "ttft_p50_ms" in fields:
        parts.append(f"first token {fields['ttft_p50_ms']:.1f} ms")
    if "tpot_p50_ms" in fields:
        parts.append(f"then {fields['tpot_p50_ms']:.2f} ms per token")
    parts += [
        f"{document['throughput_per_s']:,.2f} {unit}/s",
        _energy(document, unit),
        _cost(document),
        *_carbon(document),
    ]
    per_million = (document["cost"] or {}).get("cost_per_million_tokens_out")
    if per_million is not None:
        counted = f" ({CHUNKS})" if fields.get("token_source") == "chunks" else ""
        price = money(per_million, document["cost"]["currency"])
        parts.append(f"{price} per million tokens out{counted}")
    if fields.get("cached"):
        parts.append("cached: a cache of the server answered")
    if fields.get("errors"):
        parts.append(f"{fields['errors']} of {fields['requests']} failed")
    return "  ".join(parts)


def _tokens(document: dict[str, Any]) -> list[str]:
    """Return rate, energy and cost of the tokens of a decoder's prefill or decode."""
    fields, cost = document["fields"], document["cost"] or {}
    parts = []
    for name, words in (("tokens_in", "tokens in"), ("tokens_out", "tokens out")):
        per_s = fields.get(f"{name}_per_s")
        if per_s is None:
            continue
        figures = [f"{significant(per_s)} {words}/s"]
        energy_j = fields.get(f"energy_per_million_{name}_j")
        price = cost.get(f"cost_per_million_{name}")
        if energy_j is not None:
            figures.append(f"{joules(energy_j / MILLION)} per token")
        if price is not None:
            figures.append(f"{money(price, cost['currency'])} per million")
        at_limit = cost.get(f"cost_roofline_per_million_{name}")
        if at_limit is not None:
            figures.append(f"{money(at_limit, cost['currency'])} {_at_limit(fields)}")
        parts.append(", ".join(figures))
    return parts


def _limit(document: dict[str, Any]) -> list[str]:
    """Return the used shares of the board's peaks."""
    fields = document["fields"]
    shares = [
        f"{name.upper()} {percent(fields[f'{name}_pct'] / 100)}"
        for name in ("mfu", "mbu")
        if f"{name}_pct" in fields
    ]
    return [", ".join(shares)] if shares else []


def _at_limit(fields: dict[str, Any]) -> str:
    """Return which peak of the board limits a pass, in words."""
    is_moving = fields["mbu_pct"] >= fields["mfu_pct"]
    return f"at the board's {'bandwidth' if is_moving else 'peak FLOP/s'}"


def _ways(tags: dict[str, str]) -> list[str]:
    """Return the options of a run that differ from the default."""
    return [name if value == "true" else f"{value} {name}" for name, value in sorted(tags.items())]


def _energy(document: dict[str, Any], unit: str) -> str:
    energy = document["energy"]
    if energy is None:
        return f"no energy ({document['energy_absent'] or 'no energy source'})"
    per_inference_j = energy["energy_per_inference_j"]
    board = SCOPES.get(energy.get("energy_scope"), "")
    suspect = ", suspect" if energy.get("energy_suspect") else ""
    return (
        f"{joules(per_inference_j)}/{unit}{board}"
        f" ({energy['energy_method'].replace('_', ' ')} ±{percent(energy['energy_rel_err'])}{suspect})"
    )


def _cost(document: dict[str, Any]) -> str:
    cost, price = document["cost"], document["price"]
    if price is None:
        return "no cost (no price for this device; set [[price]])"
    if cost is None:
        return "no cost (electricity is not included and the energy is unknown)"
    shown = f"{price_text(cost['cost_per_inference'], cost['currency'])} ({price_words(price)})"
    at_limit = cost.get("cost_roofline")
    if at_limit is None:
        return shown
    limit = price_text(at_limit, cost["currency"])
    return f"{shown}, {limit} {_at_limit(document['fields'])}"


def _carbon(document: dict[str, Any]) -> list[str]:
    carbon = document.get("carbon")
    if carbon is None:
        return []
    stale = ", stale intensity" if carbon["carbon_method"] == "stale" else ""
    return [f"{carbon['carbon_per_inference_g'] * PER_THOUSAND:.3g} g CO2e per 1,000{stale}"]


def price_words(price: dict[str, Any]) -> str:
    """Return the price behind a cost: "list $6.88/h", "$4/h assumed, 2.5 to 9 USD/h"."""
    per_hour = money(float(price["price_rate_per_h"]), price["currency"])
    low, high = price.get("price_rate_low_per_h"), price.get("price_rate_high_per_h")
    if low is not None and high is not None:
        return f"{per_hour}/h {price['plan']}, {range_words(low, high, price['currency'])}"
    return f"{price['plan'].replace('_', ' ')} {per_hour}/h"


def range_words(low: str, high: str, currency: str) -> str:
    """Return the range of an assumed price: "2.5 to 9 USD/h"."""
    least, largest = f"{float(low):.3g}", f"{float(high):.3g}"
    return f"{least if least == largest else f'{least} to {largest}'} {currency}/h"
