"""Prices: cost of a device-hour, break-even utilization, and what-if prices."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.budgets import budget_over_time, budget_table
from scripts.dashboards.parts import amount, bounds, choice, figure, graph, page
from scripts.dashboards.queries import Query, Tag
from scripts.dashboards.tables import listing

ABOUT = "Price of a device-hour, and the cost per inference at other prices."
HERE = ("host", "device")
PRICED = (*HERE, "currency")
RUN = ("host", "device", "probe")
NAME = "$tag_host $tag_device"
JOULE_PER_KWH = "3600000"


def build() -> dashboard.Dashboard:
    """Current and past prices, budgets, then what-if."""
    variables = [
        choice("host"),
        choice("device"),
        choice("probe"),
        choice("currency", several=False),
        amount("price_a", "What-if price A per device-hour", "2.00"),
        amount("price_b", "Price B per device-hour", "1.20"),
        amount("tariff_per_kwh", "Price per kWh", "0.12"),
    ]
    board = page("prices", "prices and what-if", ABOUT, variables)
    _prices(board)
    _budgets(board)
    _what_if(board)
    return board


def _prices(board: dashboard.Dashboard) -> None:
    rate = Query('mean("price_rate_per_h")', "device", over=PRICED, by=HERE, alias=NAME)
    spent = Query('sum("cost")', "device", over=PRICED, by=HERE, every="1h", alias=NAME)
    split = Query(
        'sum("cost_hardware") AS "hardware", sum("cost_energy") AS "electricity"',
        "allocation",
        over=PRICED,
        every="1h",
        alias="$col",
    )
    changes = Query(
        '"host", "device", "title", "before", "after", "detail"',
        "event",
        where=(Tag("kind", "price"),),
    )
    plans = Query(
        'last("cost_per_inference") * 1000 AS "cost per 1,000",'
        ' last("cost_hardware") * 1000 AS "hardware", last("cost_energy") * 1000 AS "electricity"',
        "cost",
        over=PRICED,
        by=("host", "device", "probe", "service", "served_model", "basis", "plan"),
        every=None,
    )
    about = "Without electricity that is billed separately."
    board.with_panel(graph("Price of a device-hour ($currency)", "short", rate, about=about))
    board.with_panel(graph("Spend per hour ($currency)", "short", spent, style="bars"))
    board.with_panel(
        graph(
            "Cost of services' devices per hour ($currency)",
            "short",
            split,
            style="bars",
        )
    )
    board.with_panel(listing("Price changes", changes.rows, span=12))
    board.with_panel(listing("Cost by plan ($currency)", plans, hide=("Time",), span=12))


def _budgets(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Budgets"))
    board.with_panel(budget_table())
    board.with_panel(
        graph(
            "Spent and forecast of each budget ($currency)",
            "short",
            *(budget_over_time(field) for field in ("spent", "forecast", "amount")),
            about="The forecast is of the whole period; `amount` is the plan.",
        )
    )
    board.with_panel(
        graph(
            "Spent share of each budget",
            "percentunit",
            budget_over_time("spent", per="amount"),
            steps=bounds(0.8, 1),
        )
    )


def _what_if(board: dashboard.Dashboard) -> None:
    board.with_row(
        dashboard.Row("What if: A $price_a, B $price_b per hour, $tariff_per_kwh per kWh")
    )
    for name, variable in (("A", "price_a"), ("B", "price_b")):
        break_even = Query(
            f'100 * ${{{variable}:raw}} / mean("price_rate_per_h")',
            "device",
            over=PRICED,
            every=None,
        )
        board.with_panel(
            figure(
                f"Break-even utilization at price {name}",
                "percent",
                break_even,
                span=8,
                steps=((100, "red"),),
                about="Share of hours in use from which an hourly price paid around the clock costs "
                "less than the current one. Above 100 % it never does. Compare with the mean utilization.",
            )
        )
    utilization = Query('mean("util_pct")', "device", over=HERE, every=None)
    board.with_panel(figure("Mean utilization", "percent", utilization, span=8))
    actual = Query(
        'median("cost_per_inference") * 1000',
        "cost",
        over=(*RUN, "currency"),
        where=(Tag("basis", "probe"),),
        by=RUN,
        alias=f"{NAME} $tag_probe current",
    )

    def at(variable: str, name: str) -> Query:
        hardware = f'1000 * ${{{variable}:raw}} / 3600 / median("throughput_per_s")'
        return Query(hardware, "probe", over=RUN, by=RUN, alias=f"{NAME} $tag_probe at {name}")

    electricity = Query(
        f'1000 * ${{tariff_per_kwh:raw}} * median("energy_per_inference_j") / {JOULE_PER_KWH}',
        "probe",
        over=RUN,
        by=RUN,
        alias=f"{NAME} $tag_probe",
    )
    board.with_panel(
        graph(
            "Cost per 1,000 inferences: current, at A and at B, without electricity",
            "short",
            actual,
            at("price_a", "A"),
            at("price_b", "B"),
            about="`costprobe savings` calculates this with complete plans, electricity and the measured load.",
        )
    )
    board.with_panel(
        graph("Electricity cost per 1,000 inferences at that tariff", "short", electricity)
    )
