"""The position of a load on its curve as JSON and as text, the same in the command and in the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from costprobe.core.money import money, price_scale, unit_price
from costprobe.core.units import counted, percent, significant
from costprobe.probing.load_curve import slo_text
from costprobe.savings.load import LoadCost, LoadPosition, Merge
from costprobe.ui.text import ago, local

_WORDS = {"tokens_out": "generated token", "requests": "request"}
_MILLION = 1_000_000


def position_lines(position: LoadPosition, currency: str) -> Iterator[str]:
    """Yield what the load costs against the curve, what to do, and what both rest on."""
    cost = position.cost
    if cost is None:
        yield f"load curve: no advice: {position.problem}"
    else:
        yield cost_words(position, cost, currency)
        yield advice_words(position, cost, currency)
    yield from basis_lines(position)
    if cost is not None and cost.merge is not None:
        yield from (f"if {line}" for line in cost.merge.assumptions)


def cost_words(position: LoadPosition, cost: LoadCost, currency: str) -> str:
    """Return what the present load costs against the cheapest point."""
    unit = position.evidence.unit
    scale = _MILLION if unit == "tokens_out" else price_scale(cost.each_floor)
    now, floor = (
        unit_price(each, currency, scale, _WORDS[unit]) for each in (cost.each, cost.each_floor)
    )
    now = now.partition(" per ")[0]
    of = "saturation" if position.evidence.curve.is_saturated else "the highest measured load"
    return (
        f"at {percent(cost.saturation_share)} of {of} ({significant(cost.load_per_s, 3)} of"
        f" {significant(cost.saturation_per_s)} {_WORDS[unit]}s/s of a replica) it pays"
        f" {cost.times_floor:.2g} times the lowest cost: {now}, not {floor} as at {cost.floor.text}"
        f"{_within(position)}"
    )


def advice_words(position: LoadPosition, cost: LoadCost, currency: str) -> str:
    """Return what would cost less."""
    merge = cost.merge
    if merge is None:
        low, high = (money(each, currency) for each in (cost.unused_low, cost.unused_high))
        return (
            f"{money(cost.unused_per_month, currency)} of {money(cost.cost_per_month, currency)} a"
            f" month ({low} to {high}) pay for capacity that it does not use; no replica is released:"
            f" {cost.kept_because}. Use it for batch or other work, take a smaller device, or switch"
            " it off by a schedule"
        )
    low, high = (money(each, currency) for each in (merge.saving_low, merge.saving_high))
    return (
        f"merge {counted(position.evidence.replicas, 'replica')} into {merge.replicas}: saves"
        f" {money(merge.saving_per_month, currency)} a month ({low} to {high}), then"
        f" {merge.times_floor:.2g} times the lowest cost; in the 99th percentile of minutes each"
        f" carries {percent(merge.peak_share)} of the highest load{_within(position) or ' measured'}"
        f"{_at_peak(merge)}"
    )


def basis_lines(position: LoadPosition) -> Iterator[str]:
    """Yield curve and requests that the figures are from."""
    evidence, week = position.evidence, position.week
    curve = evidence.curve
    software = {
        "unchanged": "software unchanged since",
        "changed": "software changed since",
        "unknown": "no run of the probe since",
    }[evidence.software]
    yield (
        f"load curve of {curve.probe} on {curve.device}, {local(curve.time_ns)},"
        f" {ago(position.age_s)} old, fingerprint {curve.fingerprint[:12] or '-'}: {software}"
    )
    mix, change = evidence.mix, evidence.mix_change
    lengths = ""
    if mix is not None and change is not None:
        lengths = (
            f"; prompts of {significant(mix.tokens_in)} tokens ({_signed(change[0])} to the curve's),"
            f" answers of {significant(mix.tokens_out)} ({_signed(change[1])})"
        )
    yield f"production: last 7 days, coverage {percent(week.coverage)}{lengths}"


def position_document(position: LoadPosition) -> dict[str, Any]:
    """Return a position as JSON; amounts that are summed are exact text."""
    evidence, cost = position.evidence, position.cost
    curve, mix, change = evidence.curve, evidence.mix, evidence.mix_change
    return {
        "service": position.service,
        "probe": curve.probe,
        "device": curve.device,
        "time_ns": curve.time_ns,
        "age_s": position.age_s,
        "fingerprint": curve.fingerprint,
        "software": evidence.software,
        "slo_ms": dict(curve.bounds_ms),
        "replicas": evidence.replicas,
        "unit": evidence.unit,
        "load_h": position.week.known_h,
        "coverage": position.week.coverage,
        "tokens_in": None if mix is None else mix.tokens_in,
        "tokens_out": None if mix is None else mix.tokens_out,
        "tokens_in_change_share": None if change is None else change[0],
        "tokens_out_change_share": None if change is None else change[1],
        "problem": position.problem or None,
        "cost": None if cost is None else _cost(cost, evidence.unit),
    }


def _cost(cost: LoadCost, unit: str) -> dict[str, Any]:
    merge = cost.merge
    return {
        "load_per_s": cost.load_per_s,
        "peak_per_s": cost.peak_per_s,
        "saturation_per_s": cost.saturation_per_s,
        "saturation_share": cost.saturation_share,
        "limit_per_s": cost.limit_per_s,
        "present": _unit_cost(cost.each, unit),
        "lowest": _unit_cost(cost.each_floor, unit),
        "cost_ratio": cost.times_floor,
        "cheapest": cost.floor.text,
        "cost_per_month": str(cost.cost_per_month),
        "unused_per_month": str(cost.unused_per_month),
        "unused_low_per_month": str(cost.unused_low),
        "unused_high_per_month": str(cost.unused_high),
        "kept_because": cost.kept_because or None,
        "merge": None
        if merge is None
        else {
            "replicas": merge.replicas,
            "saving_per_month": str(merge.saving_per_month),
            "saving_low_per_month": str(merge.saving_low),
            "saving_high_per_month": str(merge.saving_high),
            "peak_share": merge.peak_share,
            "at_peak_ms": dict(merge.at_peak_ms),
            "cost_ratio": merge.times_floor,
            "assumptions": list(merge.assumptions),
        },
    }


def _unit_cost(each: float, unit: str) -> dict[str, float | None]:
    """Return the cost of a unit under the names of the series."""
    is_token = unit == "tokens_out"
    return {
        "cost_per_million_tokens_out": each * _MILLION if is_token else None,
        "cost_per_request": None if is_token else each,
    }


def _within(position: LoadPosition) -> str:
    bounds_ms = position.evidence.curve.bounds_ms
    return f" within {slo_text(bounds_ms)}" if bounds_ms else ""


def _at_peak(merge: Merge) -> str:
    known = [
        f"{name} {significant(ms, 3)} ms" for name, ms in merge.at_peak_ms.items() if ms is not None
    ]
    return f": {', '.join(known)}" if known else ""


def _signed(share: float) -> str:
    return f"{share:+.0%}".replace("%", " %")
