"""Prices: what a device-hour costs, what of it pays off, and what other prices would mean."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.parts import amount, choice, figure, graph, listing, page
from scripts.dashboards.queries import Query

ABOUT = "What a device-hour costs, and what other prices would mean for an inference."
HERE = ("host", "device")
PRICED = (*HERE, "currency")
RUN = ("host", "device", "probe")
NAME = "$tag_host $tag_device"
JOULE_PER_KWH = "3600000"


def build() -> dashboard.Dashboard:
    """Prices as they are and were, then what-if."""
    variables = [
        choice("host"),
        choice("device"),
        choice("probe"),
        choice("currency", several=False),
        amount("price_a", "What if a device-hour cost A", "2.00"),
        amount("price_b", "or B", "1.20"),
        amount("tariff_per_kwh", "and a kWh", "0.12"),
    ]
    board = page("prices", "prices and what-if", ABOUT, variables)
    _prices(board)
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
        where=("\"kind\" = 'price'",),
    )
    plans = Query(
        'last("cost_per_inference") * 1000 AS "1,000 inferences",'
        ' last("cost_hardware") * 1000 AS "hardware", last("cost_energy") * 1000 AS "electricity"',
        "cost",
        over=PRICED,
        by=("host", "device", "probe", "service", "basis", "plan"),
        every=None,
    )
    about = "Without the electricity that a plan leaves out."
    board.with_panel(graph("Price of a device-hour ($currency)", "short", rate, about=about))
    board.with_panel(graph("Spent an hour ($currency)", "short", spent, style="bars"))
    board.with_panel(
        graph(
            "What services' devices cost an hour ($currency)",
            "short",
            split,
            style="bars",
        )
    )
    board.with_panel(listing("Price changes", changes.rows, span=12))
    board.with_panel(listing("By plan ($currency)", plans.text, hide=("Time",)))


def _what_if(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("What if: A $price_a, B $price_b an hour, $tariff_per_kwh a kWh"))
    for name, variable in (("A", "price_a"), ("B", "price_b")):
        pays_from = Query(
            f'100 * ${{{variable}:raw}} / mean("price_rate_per_h")',
            "device",
            over=PRICED,
            every=None,
        )
        board.with_panel(
            figure(
                f"{name}, if always paid, pays from",
                "percent",
                pays_from.text,
                span=8,
                steps=((100, "red"),),
                about="Of the hours in use, against what is paid for an hour now. Above 100 % "
                "it never pays. Compare with the share of hours in use beside it.",
            )
        )
    in_use = Query('mean("util_pct")', "device", over=HERE, every=None)
    board.with_panel(figure("Mean utilization", "percent", in_use.text, span=8))
    actual = Query(
        'median("cost_per_inference") * 1000',
        "cost",
        over=(*RUN, "currency"),
        where=("\"basis\" = 'probe'",),
        by=RUN,
        alias=f"{NAME} $tag_probe now",
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
            "1,000 inferences now, at A and at B, electricity apart",
            "short",
            actual,
            at("price_a", "A"),
            at("price_b", "B"),
            about="`infercost price what-if` does this with whole plans and electricity.",
        )
    )
    board.with_panel(graph("Electricity of 1,000 inferences at that tariff", "short", electricity))
