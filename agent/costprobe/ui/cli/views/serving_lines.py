"""Readable lines of a service: last window, its cost, and faults."""

from __future__ import annotations

from typing import Any

from costprobe.core.money import money, price_scale, price_text, unit_price
from costprobe.core.schema import UNATTRIBUTED
from costprobe.core.statistics import WINDOWS_S
from costprobe.core.units import counted, percent
from costprobe.ui.text import ago, cache_words, joules, kind_prices, local

HALF = 0.5
MAX_TENANTS_SHOWN = 5
# A gateway counts a request at its end, which may be in another window than its tokens.
COUNTED_MOST = 1.1
_SPLITS = {
    "measured": "device time",
    "calibrated": "calibration",
    "weights": "token weights",
}


def service_lines(service: dict[str, Any]) -> list[str]:
    """Return the lines of a service, from the JSON of `status`."""
    head = f"service  {service['service']} ({service['engine']} on {', '.join(service['devices'])})"
    last = service["last"]
    if last is None:
        lines = [f"{head}: no window is complete yet"]
    else:
        lines = [f"{head}: {local(last['time_ns'])}, {ago(last['window_s'])}: {_served(last)}"]
        lines += [f"         {_cost(last)}"] if last["cost"] else []
        lines += [f"         {_energy(last['energy'])}"] if last["energy"] else []
        lines += _tenants(last) if last.get("tenants") else []
        lines += _rolling(last)
        lines += [f"         no cost: {text}" for text in last["problems"]]
    lines += _calibration(service.get("calibration"))
    missing = service["missing"] or (last["missing"] if last else [])
    lines += [f"         missing counter: {text}" for text in missing]
    if service["fault"]:
        lines.append(f"  FAULT  service {service['service']} cannot be read: {service['fault']}")
    return lines


def _calibration(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    if found["problem"]:
        return [f"         not calibrated: {found['problem']}"]
    if found["time_ns"] is None:
        return []
    measured = f"{local(found['time_ns'])} by {found['probe']}"
    return [f"         calibration: {measured}, {counted(found['in_flight'], 'request')} in flight"]


def _served(last: dict[str, Any]) -> str:
    parts = [] if last["requests"] is None else [counted(round(last["requests"]), "request")]
    others = (("errors", "failed"), ("tokens_in", "tokens in"), ("tokens_out", "tokens out"))
    parts += [f"{last[key]:,.0f} {word}" for key, word in others if last[key] is not None]
    if last["restarts"]:
        parts.append(f"counters reset {counted(last['restarts'], 'time')}")
    return ", ".join(parts) or "no counter was read"


def _cost(last: dict[str, Any]) -> str:
    cost = last["cost"]
    currency = last["currency"] or ""
    parts = [f"cost {money(cost['cost_total'], currency)}"]
    if cost["cost_per_request"] is not None:
        each = cost["cost_per_request"]
        parts.append(unit_price(each, currency, price_scale(each), "request"))
    parts += [
        f"{money(price.amount, currency)} per million {price.which}tokens {price.way}"
        for price in kind_prices(lambda kind: cost.get(f"cost_per_million_tokens_{kind}"))
    ]
    if cost["token_split"] is not None:
        parts.append(f"tokens split by {_SPLITS[cost['token_split']]}")
    if words := cache_words(cost.get("cached_share"), cost.get("cost_cache_saved"), currency):
        parts.append(words)
    if cost["idle_share"] is not None:
        parts.append(f"{percent(cost['idle_share'])} of it idle")
    return ", ".join(parts)


def _tenants(last: dict[str, Any]) -> list[str]:
    """Return the tenants with the largest cost, and what is wrong with their counters."""
    tenants, currency = last["tenants"], last["currency"] or ""
    parts = [part for part in tenants["parts"] if part["cost"] > 0]
    shown = []
    for part in parts[:MAX_TENANTS_SHOWN]:
        cached, tokens_in = part.get("cached_tokens"), part.get("tokens_in")
        share = cached / tokens_in if cached and tokens_in else None
        words = cache_words(share, part.get("cost_cache_saved"), currency)
        inside = "; ".join(text for text in (percent(part["cost_share"]), words) if text)
        shown.append(f"{part['tenant']} {money(part['cost'], currency)} ({inside})")
    more = len(parts) - len(shown)
    shown += [f"and {more} more"] if more else []
    lines = [f"         tenants: {', '.join(shown)}"] if shown else []
    lines += [f"         cost unattributed: {text}" for text in tenants["problems"]]
    named = [part for part in tenants["parts"] if part["tenant"] != UNATTRIBUTED]
    if named and last.get("cached_tokens") and not any(part.get("cached_tokens") for part in named):
        lines.append(
            "         tenants' counters have no cached tokens: all their tokens in have one price"
        )
    if (tenants["counted_share"] or 0.0) > COUNTED_MOST:
        lines.append(
            f"         tenants count {percent(tenants['counted_share'])} of the service's tokens or"
            " requests; their costs are reduced in proportion"
        )
    return lines


def _energy(energy: dict[str, Any]) -> str:
    parts = [f"energy {joules(energy['energy_j'])}"]
    for key, word in (
        ("energy_per_request_j", "per request"),
        ("energy_per_million_tokens_in_j", "per million tokens in"),
        ("energy_per_million_tokens_out_j", "per million tokens out"),
    ):
        if energy[key] is not None:
            parts.append(f"{joules(energy[key])} {word}")
    board = ", of the whole board by slices" if energy["energy_scope"] == "parent" else ""
    suspect = ", suspect" if energy["energy_suspect"] else ""
    method = f"{energy['energy_method']} ±{percent(energy['energy_rel_err'])}"
    return f"{', '.join(parts)} ({method}{board}{suspect})"


def _rolling(last: dict[str, Any]) -> list[str]:
    """Return the rolling costs; a window without an inference has none."""
    lines = []
    rolling = last["rolling"]
    for window in WINDOWS_S:
        per_inference = rolling.get(f"rolling_{window}")
        if per_inference is not None:
            coverage = rolling[f"rolling_{window}_coverage"]
            covered = "" if coverage >= HALF else f"; {percent(coverage)} covered"
            price = price_text(per_inference, last["currency"] or "")
            lines.append(f"         rolling {window}: {price}{covered}")
    return lines
