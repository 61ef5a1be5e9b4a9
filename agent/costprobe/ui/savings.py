"""Savings as JSON and as text, the same in the command and in the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from costprobe.core.money import MODELLED, money, price_scale, unit_price
from costprobe.core.units import MONTH_H, counted, percent, significant
from costprobe.probing.load_curve import slo_text
from costprobe.savings.load import LoadCost, LoadPosition, Merge
from costprobe.savings.savings import Answer, Supply
from costprobe.savings.supply import HeldOut, Scaling
from costprobe.savings.workload import WorkloadHistory
from costprobe.spend.now import Spending
from costprobe.ui.text import ago, local


def load_words(workload: WorkloadHistory) -> str:
    """Return the load of a workload as text."""
    unit = workload.unit
    work = ""
    if unit is not None:
        work = (
            f"{significant(workload.units_per_h)} {unit.words} an hour,"
            f" {significant(workload.units_max_per_s, 3)} a second in the highest {ago(workload.row_s)}; "
        )
    return work + (
        f"{workload.mean:.2g} busy devices of {len(workload.devices)}, {workload.peak:.2g} in the"
        f" highest minute, {workload.days:.1f} days, coverage {percent(workload.coverage)}, from"
        f" {workload.origin}"
    )


def bound_words(found: Iterable[Spending]) -> str:
    """Return what is said where no saving is known: what is paid for nothing is a first bound."""
    bounds = [
        money(one.per_hour * one.idle_share * MONTH_H, one.currency, MODELLED)
        for one in found
        if one.per_hour and one.idle_share
    ]
    words = (
        f"; up to {' and '.join(bounds)} a month is paid while devices do nothing" if bounds else ""
    )
    return f"Not known yet{words}"


def held_out_words(held_out: HeldOut) -> str:
    """Return the test on held-out weeks as text."""
    words = (
        f"tested on the last {held_out.hours} hours, which the choice did not use: too small in"
        f" {counted(held_out.hours_short, 'hour')}"
    )
    if held_out.refused_per_week_max:
        words += (
            f", {significant(held_out.refused_per_week)} requests refused a week, at most"
            f" {significant(held_out.refused_per_week_max)}"
        )
    if held_out.scaled is not None:
        words += f", {percent(held_out.scaled.waiting_share, 2)} of the requests waited for a start"
    return words


def scaling_words(scaling: Scaling) -> str:
    """Return the starts of a supply, and what waits for them, as text."""
    month = scaling.per_month
    mean = "" if month.wait_mean_s is None else f", {month.wait_mean_s:.3g} s on average"
    return (
        f"{counted(month.starts, 'start')} a month, {percent(month.waiting_share, 2)} of the requests wait"
        f" for one{mean}, at most {scaling.cold_start.seconds:.3g} s"
    )


def document(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON; amounts that are summed are exact text."""
    workload = answer.workload
    unit = workload.unit if workload.hours else None
    return {
        "workload": workload.name,
        "devices": list(workload.devices),
        "services": list(workload.services),
        "probe": workload.probe or None,
        "load_origin": workload.origin,
        "busy_devices": workload.mean if workload.hours else None,
        "busy_devices_max": workload.peak if workload.hours else None,
        "load_unit": None if unit is None else unit.name,
        "units_per_h": None if unit is None else workload.units_per_h,
        "units_max_per_s": None if unit is None else workload.units_max_per_s,
        "units_per_device_s": None if unit is None else unit.per_device_s,
        "row_s": workload.row_s or None,
        "load_h": len(workload.hours),
        "coverage": workload.coverage if workload.span_hours else None,
        "latency_bound_ms": answer.bound_ms,
        "currency": answer.currency or None,
        "now": None if answer.now is None else _supply(answer.now),
        "supplies": [_supply(supply) for supply in answer.supplies],
        "rejected": [{"action": action, "reason": reason} for action, reason in answer.rejected],
        "devices_min": answer.devices_min,
        "load_curve": None if answer.load is None else position_document(answer.load),
        "needs": list(answer.needs),
    }


def _supply(supply: Supply) -> dict[str, Any]:
    choice, held_out = supply.choice, supply.held_out
    return {
        "action": supply.action,
        "device": choice.placement.device,
        "devices_max": choice.count,
        "plan": choice.price.words,
        "base_plan": None if choice.base_price is None else choice.base_price.words,
        "base_devices": choice.base,
        "schedule": choice.schedule or None,
        "cost_per_month": str(supply.cost_per_month),
        "electricity_per_month": _text(supply.electricity_per_month),
        "energy_kwh_per_month": supply.energy_kwh_per_month,
        "carbon_kg_per_month": supply.carbon_kg_per_month,
        "saving_per_month": str(supply.saving_per_month),
        "saving_low_per_month": supply.saving_low,
        "saving_high_per_month": supply.saving_high,
        "capacity_share": supply.capacity_share,
        "latency_p50_ms": choice.placement.latency_p50_ms,
        "purchase_price": str(choice.cash),
        "break_even_share": _number(supply.break_even_share),
        "break_even_low_share": _number(supply.break_even_low_share),
        "break_even_high_share": _number(supply.break_even_high_share),
        "break_even_months": supply.months_to_break_even,
        "held_out": None
        if held_out is None
        else {
            "held_out_h": held_out.hours,
            "short_h": held_out.hours_short,
            "refused_requests_per_week": held_out.refused_per_week,
            "refused_requests_per_week_max": held_out.refused_per_week_max,
            "waiting_share": None if held_out.scaled is None else held_out.scaled.waiting_share,
        },
        "scaling": None if choice.scaling is None else _scaling(choice.scaling),
        "assumptions": list(supply.assumptions),
    }


def _scaling(scaling: Scaling) -> dict[str, Any]:
    month = scaling.per_month
    return {
        "devices_min": scaling.least,
        "timeout_s": scaling.cold_start.seconds,
        "cold_start_s": scaling.cold_start.seconds,
        "starts_per_month": month.starts,
        "waiting_requests_per_month": month.waiting,
        "waiting_share": month.waiting_share,
        "wait_mean_s": month.wait_mean_s,
        "wait_max_s": scaling.cold_start.seconds if month.starts else 0.0,
    }


def break_even_words(supply: Supply) -> str:
    """Return the break-even utilization, with its range if the present price is assumed."""
    if supply.break_even_share is None:
        return "-"
    words = percent(supply.break_even_share)
    low, high = supply.break_even_low_share, supply.break_even_high_share
    return words if low is None or high is None else f"{words} ({percent(low)} to {percent(high)})"


def _number(share: Decimal | None) -> float | None:
    return None if share is None else float(share)


def _text(amount: object) -> str | None:
    return None if amount is None else str(amount)


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
    evidence = position.evidence
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
    yield f"production: last 7 days, coverage {percent(position.coverage)}{lengths}"


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
        "load_h": position.load_h,
        "coverage": position.coverage,
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
