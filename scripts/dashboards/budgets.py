"""Panels of budgets."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table

from scripts.dashboards.parts import bounds
from scripts.dashboards.queries import PER_PANEL, Query
from scripts.dashboards.tables import listing

_OVER = ("host", "currency")
_EACH = ("host", "budget", "period")
# A row every ten minutes, and time for its delivery.
_NEWEST = "30m"


def budget_table(span: int = 24) -> table.Panel:
    """Return the table of the current periods' budgets."""
    current = Query(
        'last("spent") AS "spent", last("amount") AS "planned",'
        ' last("spent") / last("amount") AS "spent share",'
        ' last("forecast") AS "forecast", last("forecast") / last("amount") AS "forecast share",'
        ' last("coverage") AS "coverage"',
        "budget",
        over=_OVER,
        by=_EACH,
        every=None,
        since=_NEWEST,
    )
    return listing(
        "Budgets now ($currency)",
        current,
        units=dict.fromkeys(("spent share", "forecast share", "coverage"), "percentunit"),
        steps={"spent share": bounds(0.8, 1), "forecast share": bounds(0.9, 1)},
        hide=("Time",),
        span=span,
        about="As `costprobe budget`: the forecast is of the whole period; coverage is the share of the"
        " period so far that rows cover.",
    )


def month(field: str, per: str = "") -> Query:
    """Return the query of a field of the hosts' monthly budgets, or of its percentage of another.

    As `ui/host_overview.py` has them: budgets of whole hosts.
    """
    where = "\"device\" = '' AND \"service\" = '' AND \"period\" = 'month'"
    labels = '{host=~"$host",currency=~"$currency",device="",service="",period="month"}'
    fields = (field, per) if per else (field,)
    last = ", ".join(f'last("{name}") AS "{name}"' for name in fields)
    inner = (
        f'SELECT {last} FROM "budget" WHERE "host" =~ /^$host$/ AND "currency" =~ /^$currency$/'  # noqa: S608 - constant text of this repository
        f' AND {where} AND time > now() - {_NEWEST} GROUP BY "host", "budget"'
    )
    ratio = f'100 * sum("{field}") / sum("{per}")' if per else f'sum("{field}")'
    sums = [
        f"sum(max by (host, budget) (last_over_time(costprobe_budget_{name}{labels}[{_NEWEST}])))"
        for name in fields
    ]
    promql = " / ".join(["100 * " * bool(per) + sums[0], *sums[1:]])
    return Query.written(f"SELECT {ratio} FROM ({inner})", {"": promql})  # noqa: S608 - as above


def budget_over_time(field: str, per: str = "") -> Query:
    """Return the query of a field of each budget, or of its ratio to another."""
    ratio = f' / last("{per}")' if per else ""
    name = "$tag_host $tag_budget $tag_period"
    return Query(
        f'last("{field}"){ratio}',
        "budget",
        over=_OVER,
        by=_EACH,
        every=PER_PANEL,
        alias=name if per else f"{name} {field}",
    )
