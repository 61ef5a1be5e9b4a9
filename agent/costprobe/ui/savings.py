"""Savings as JSON and as text, the same in the command and in the report."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from costprobe.core.units import counted, percent, significant
from costprobe.savings.savings import Answer, Supply
from costprobe.savings.supply import HeldOut, Scaling
from costprobe.savings.workload import WorkloadHistory
from costprobe.ui.load_position import position_document


def load_words(workload: WorkloadHistory) -> str:
    """Return the load of a workload as text."""
    unit = workload.unit
    work = ""
    if unit is not None:
        work = (
            f"{significant(workload.units_per_h)} {unit.words} an hour,"
            f" {significant(workload.units_max_per_s, 3)} a second in the highest {workload.row_s:g} s; "
        )
    return work + (
        f"{workload.mean:.2g} busy devices of {len(workload.devices)}, {workload.peak:.2g} in the"
        f" highest minute, {workload.days:.1f} days, coverage {percent(workload.coverage)}, from"
        f" {workload.origin}"
    )


def held_out_words(held_out: HeldOut) -> str:
    """Return the test on held-out weeks as text."""
    words = (
        f"on the last {held_out.hours} hours, from which it was not decided: too small in"
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
        "timeout_s": scaling.timeout_s,
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
