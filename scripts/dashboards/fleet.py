"""The fleet: cost and load of all hosts, with their alerts and events."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards import groups
from scripts.dashboards.parts import assumed, bounds, choice, figure, graph, page
from scripts.dashboards.queries import BOARDS, PER_PANEL, Query, Tag, newest
from scripts.dashboards.tables import listing, sorted_by

ABOUT = "Cost and load of all hosts, with their alerts and events."
PRICED = ("host", "currency")


def build() -> dashboard.Dashboard:
    """Current totals, cost and load over time, then tables."""
    board = page("fleet", "fleet", ABOUT, [choice("host"), choice("currency", several=False)])
    _figures(board)
    _graphs(board)
    _lists(board)
    return board


def _figures(board: dashboard.Dashboard) -> None:
    each = ("host", "device")
    rate = newest("price_rate_per_h", "device", PRICED, each)
    seen = newest("util_pct", "device", ("host",), each)
    power = newest("power_w", "device", ("host",), each, where=BOARDS)
    spent = Query('sum("cost")', "device", over=PRICED, every=None)
    used = Query('mean("util_pct")', "device", every=None)
    idle = Query(
        'sum("cost")',
        "allocation",
        over=PRICED,
        where=(Tag("part", "idle"),),
        every=None,
    )
    board.with_panel(figure("Spend in this range ($currency)", "short", spent))
    board.with_panel(
        figure("Current price per hour ($currency)", "short", rate.of('sum("newest")'))
    )
    board.with_panel(assumed(span=3))
    board.with_panel(
        figure(
            "Paid while services wait ($currency)",
            "short",
            idle,
            about="Cost of the services' devices during time without requests.",
        )
    )
    board.with_panel(figure("Devices reporting", "none", seen.of('count("newest")'), span=3))
    board.with_panel(figure("Current power", "watt", power.of('sum("newest")'), span=3))
    board.with_panel(
        figure(
            "Mean utilization",
            "percent",
            used,
            about="Below 20 %, run `costprobe savings` for cheaper supplies.",
            span=3,
        )
    )


def _graphs(board: dashboard.Dashboard) -> None:
    cost = Query(
        'median("cost_per_inference") * 1000',
        "cost",
        over=PRICED,
        where=(Tag("basis", "probe"),),
        by=("probe",),
        alias="$tag_probe",
    )
    power = Query('mean("power_w") AS "power"', "device", by=("host", "device"))
    used = Query('mean("util_pct")', "device", by=("host",), alias="$tag_host")
    spent = Query('sum("cost")', "device", over=PRICED, by=("host",), every="1h", alias="$tag_host")
    board.with_panel(
        graph(
            "Cost per 1,000 inferences of each model ($currency)",
            "short",
            cost,
            about="The median of its devices; probe basis: cost while the device does no other work.",
        )
    )
    board.with_panel(graph("Spend per hour ($currency)", "short", spent, style="bars"))
    board.with_panel(
        graph(
            "Power by host",
            "watt",
            power.of('sum("power")', "host", every=PER_PANEL, alias="$tag_host"),
            style="areas",
        )
    )
    board.with_panel(graph("Utilization by host", "percent", used))
    for panel in (groups.prices, groups.roles, groups.hosts):
        board.with_panel(panel(span=8))


def _lists(board: dashboard.Dashboard) -> None:
    probes = Query(
        'last("cost_per_inference") * 1000 AS "now", last("rolling_24h") * 1000 AS "24 h",'
        ' last("rolling_24h_coverage") AS "coverage", last("rolling_7d") * 1000 AS "7 d"',
        "cost",
        over=PRICED,
        where=(Tag("basis", "probe"),),
        by=("host", "device", "probe", "plan"),
        every=None,
    )
    hosts = Query(
        'last("power_w") AS "power", last("util_pct") AS "utilization", last("temp_c") AS "temperature",'
        ' last("price_rate_per_h") AS "price per hour", sum("cost") AS "spend"',
        "device",
        # Grouping by currency keeps currencies apart and lists devices without a price.
        by=("host", "device", "model", "currency"),
        every=None,
    )
    alerts = Query('"host", "rule", "state", "severity", "summary", "cause"', "alert")
    events = Query('"host", "kind", "severity", "device", "title", "cause"', "event")
    board.with_panel(
        sorted_by(
            listing(
                "Probes: cost per 1,000 inferences ($currency)",
                probes,
                units={"now": "short", "24 h": "short", "7 d": "short", "coverage": "percentunit"},
                hide=("Time",),
                span=12,
            ),
            "now",
        )
    )
    board.with_panel(
        sorted_by(
            listing(
                "Devices: newest state, and spend in this range",
                hosts,
                units={"power": "watt", "utilization": "percent", "temperature": "celsius"},
                steps={"temperature": bounds(80, 88)},
                hide=("Time",),
                span=12,
            ),
            "spend",
        )
    )
    board.with_panel(listing("Alerts", alerts.rows, span=12))
    board.with_panel(listing("Events", events.rows, span=12))
