"""Answers about a fleet as JSON and as cells, the same in every command, on the page and in the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from costprobe.core.money import cents, money
from costprobe.core.units import KWH_J, percent

if TYPE_CHECKING:  # their imports take longer than most commands that begin with `head_of`
    from costprobe.fleet.answers import FleetAnswers
    from costprobe.fleet.groups import FleetGroup
    from costprobe.fleet.peers import Excess, ExcessCost, FleetOutliers, Outlier
    from costprobe.fleet.spend import CurrencyCost, FleetForecast, FleetSpend, SpendByKey
    from costprobe.fleet.unit_costs import FleetUnitCost


def head_of(answers: FleetAnswers) -> Mapping[str, Any]:
    """Return the keys that all JSON documents begin with."""
    return {
        "since_ns": answers.period.start_ns,
        "until_ns": answers.period.end_ns,
        "is_partial": bool(answers.problems),
        "problems": list(answers.problems),
    }


def spend_document(spend: SpendByKey, by: str) -> dict[str, Any]:
    """Return the spend as JSON."""
    return {
        "by": by or None,
        "total": part_document(spend.total),
        "parts": [part_document(part) for part in spend.parts],
        "rest": None if spend.rest is None else part_document(spend.rest)["costs"],
    }


def part_document(part: FleetSpend) -> dict[str, Any]:
    """Return the spend of a group as JSON."""
    return {
        "group": list(part.group),
        "costs": [_cost_document(one) for one in part.costs],
        "energy_j": part.energy_j,
        "carbon_g": part.carbon_g,
        "carbon_share": part.carbon_share,
        "coverage": part.coverage,
        "series": part.series,
    }


def _cost_document(one: CurrencyCost) -> dict[str, Any]:
    return {"currency": one.currency or None, "cost": one.cost, "idle_share": one.idle_share}


def compare_document(found: Sequence[FleetUnitCost]) -> list[dict[str, Any]]:
    """Return the unit costs as JSON."""
    return [{**asdict(one), "group": one.group or None} for one in found]


def group_document(one: FleetGroup) -> dict[str, Any]:
    """Return the unit costs of a group as JSON; amounts that add up are exact text."""
    found = asdict(one)
    roles = [{**role, "cost": _text(role["cost"])} for role in found["roles"]]
    costs = {name: _text(found[name]) for name in ("cost", "cost_tokens_in", "cost_tokens_out")}
    listed = {"roles": roles, "slo": found["slo"], "problems": list(one.problems)}
    return {**found, **costs, **listed, "currency": one.currency or None}


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def forecast_document(one: FleetForecast, amount: float | None) -> dict[str, Any]:
    """Return a forecast as JSON."""
    return {
        "currency": one.currency or None,
        "amount": amount,
        "spent": one.spent,
        "coverage": one.coverage,
        "forecast": one.expected,
        "forecast_low": one.low,
        "forecast_high": one.high,
        "history_h": 0 if one.remaining is None else one.remaining.hours,
        "left_out_h": one.left_out,
        "verdict": "" if amount is None else one.verdict(amount),
    }


def outliers_document(found: FleetOutliers, within: Sequence[str]) -> dict[str, Any]:
    """Return the outliers as JSON."""
    from costprobe.fleet.peers import FALSE_SHARE, LEAST_EFFECT  # noqa: PLC0415 - as above

    return {
        "within": list(within),
        "tested": found.tested,
        "untested": found.untested,
        "updated": found.updated,
        "false_share": FALSE_SHARE,
        "least_excess_pct": LEAST_EFFECT * 100,
        "outliers": [outlier_document(one) for one in found.outliers],
        "levels": [
            {
                "peers": list(peers),
                "label": within[level.label],
                "value": level.value,
                "time_excess_pct": math.expm1(level.log_excess) * 100,
                "hosts": level.hosts,
            }
            for peers, level in found.levels
        ],
    }


def outlier_document(one: Outlier) -> dict[str, Any]:
    """Return an outlier as JSON."""
    return {
        "host": one.host,
        "device": one.device or None,
        "peers": list(one.peers),
        "peer_count": one.peer_count,
        "probe_runs": one.runs,
        **_ends("time", one.time),
        **_ends("energy", one.energy),
        "cause": one.explanation.name,
        "causes": [
            {
                "name": cause.name,
                "text": cause.text,
                "cause_share": None if cause.share is None else cause.share.mean,
            }
            for cause in one.explanation.causes
        ],
        **monthly_document(one.cost),
    }


def monthly_document(cost: ExcessCost | None) -> dict[str, float | str | None]:
    """Return what an excess or a change costs a month as JSON."""
    return {
        "cost_per_month": None if cost is None else cost.mean,
        "cost_low_per_month": None if cost is None else cost.low,
        "cost_high_per_month": None if cost is None else cost.high,
        "currency": None if cost is None else cost.currency,
    }


def _ends(metric: str, excess: Excess | None) -> dict[str, float | None]:
    return {
        f"{metric}_excess_pct": None if excess is None else excess.mean * 100,
        f"{metric}_excess_low_pct": None if excess is None else excess.low * 100,
        f"{metric}_excess_high_pct": None if excess is None else excess.high * 100,
    }


def spend_cells(
    name: str, part: FleetSpend, totals: Mapping[str, float]
) -> Iterator[tuple[str, ...]]:
    """Yield name, cost, share, idle share, energy, emissions and coverage of a group by currency."""
    for number, one in enumerate(part.costs):
        total = totals.get(one.currency, 0.0)
        # Energy is that of the group, whatever its currencies.
        is_first = number == 0
        yield (
            name,
            cents(one.cost, one.currency),
            percent(one.cost / total, 1) if total > 0 else "-",
            "-" if one.idle_share is None else percent(one.idle_share),
            _amount(part.energy_j, KWH_J) if is_first else "",
            _amount(part.carbon_g, 1000) if is_first else "",
            "-" if part.coverage is None else percent(part.coverage) if is_first else "",
        )


def _amount(value: float | None, unit: float) -> str:
    return (
        "-"
        if value is None
        else f"{value / unit:,.4g}"
        if value < 1e4 * unit
        else f"{value / unit:,.0f}"
    )


def price_cell(price: float | None, currency: str, units: int = 1) -> str:
    """Return the price of so many units; a dash if it is unknown."""
    return "-" if price is None else money(price * units, currency)
