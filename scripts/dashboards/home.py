"""Home: the dashboard page's first screen for all hosts, with the same definitions (`ui/host_overview.py`).

Every panel shows the present, whatever the time range, except the curves.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards import agents, changes, unit_costs
from scripts.dashboards.budgets import budget_table, month
from scripts.dashboards.parts import assumed, bounds, choice, figure, page
from scripts.dashboards.queries import BOARDS, Query, Tag, newest

ABOUT = "Cost now, its change and cause, and what is firing, of all hosts."
PRICED = ("host", "currency")
_HOUR = '"host" =~ /^$host$/ AND "currency" =~ /^$currency$/ AND time > now() - 1h'
_COST = (
    "sum by (host, device) (increase(costprobe_cost_total"
    '{host=~"$host",currency=~"$currency"}[1h]))'
)
_UTIL = 'max by (host, device) (avg_over_time(costprobe_device_util_pct{host=~"$host"}[1h]))'
_PAID = f"sum({_COST} and on (host, device) {_UTIL})"
_USED = f"sum({_COST} * on (host, device) {_UTIL})"
_ROWS = (
    'FROM (SELECT "cost" * (100 - "util_pct") / 100 AS "unused", "cost" AS "paid"'  # noqa: S608 - constant text of this repository
    f' FROM "device" WHERE "util_pct" >= 0 AND {_HOUR})'
)
_UNUSED = Query.written(f'SELECT sum("unused") {_ROWS}', {"": f"{_PAID} - {_USED} / 100"})
_UNUSED_SHARE = Query.written(
    f'SELECT 100 * sum("unused") / sum("paid") {_ROWS}',
    {"": f"100 - {_USED} / ({_PAID} > 0)"},
)


def build() -> dashboard.Dashboard:
    """The figures, the largest change, what is firing, then each model and service, and budgets."""
    board = page("home", "home", ABOUT, [choice("host"), choice("currency", several=False)])
    board.time("now-7d", "now")
    _figures(board)
    board.with_panel(changes.lasting(span=14))
    board.with_panel(changes.firing(span=10))
    board.with_panel(unit_costs.models(span=12))
    board.with_panel(unit_costs.services(span=12))
    board.with_panel(unit_costs.model_trends(span=12))
    board.with_panel(unit_costs.service_trends(span=12))
    board.with_panel(budget_table())
    return board


def _figures(board: dashboard.Dashboard) -> None:
    spent = Query('sum("cost")', "device", over=PRICED, every=None, since="1h")
    power = newest("power_w", "device", ("host",), ("host", "device"), where=BOARDS)
    waiting = Query(
        'sum("cost")',
        "allocation",
        over=PRICED,
        where=(Tag("part", "idle"),),
        every=None,
        since="1h",
    )
    for panel in (
        figure(
            "Spend per hour ($currency)",
            "short",
            spent,
            about="Cost of the last hour's rows, as `per_hour` of the page.",
            span=5,
        ),
        assumed(span=3),
        figure(
            "Spent this month ($currency)",
            "short",
            month("spent"),
            about="Of the hosts with a monthly budget of the whole host.",
            span=5,
        ),
        figure(
            "Spent of the month's budget",
            "percent",
            month("spent", per="amount"),
            steps=bounds(80, 100),
            about="Of the hosts with a monthly budget of the whole host.",
            span=4,
        ),
        figure(
            "Forecast of the month's budget",
            "percent",
            month("forecast", per="amount"),
            steps=bounds(95, 100),
            about="Expected at the end of the month, as a share of the plan.",
            span=4,
        ),
        figure("Power now", "watt", power.of('sum("newest")'), span=3),
        figure(
            "Unused per hour ($currency)",
            "short",
            _UNUSED,
            about="Cost of the last hour in which devices did nothing: 1 minus utilization, weighted by cost.",
            span=5,
        ),
        figure(
            "Unused now",
            "percent",
            _UNUSED_SHARE,
            about="The same as a share of the cost of the devices whose utilization is known.",
            span=4,
        ),
        figure(
            "Paid while services wait, per hour ($currency)",
            "short",
            waiting,
            about="Cost of the services' devices in the last hour during time without requests.",
            span=7,
        ),
        figure("Alerts firing", "none", changes.firing_count(), steps=((1, "red"),), span=4),
        figure("Agents silent", "none", agents.silent_agents(), steps=((1, "red"),), span=4),
    ):
        board.with_panel(panel)
