"""Production: cost of services including idle time, and its allocation."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.parts import bounds, choice, figure, graph, listing, page
from scripts.dashboards.queries import Query

ABOUT = "Cost of services in production including idle time, and its allocation."
HERE = ("host", "service")
PRICED = (*HERE, "currency")
# A row of the whole service has no model, so that part of its name is empty.
NAME = "$tag_host $tag_service $tag_served_model"
EACH = (*HERE, "served_model")
SERVING = ("\"basis\" = 'serving'",)
# The rows of its models repeat what the service's own row contains.
WHOLE = ("\"served_model\" = ''",)


def build() -> dashboard.Dashboard:
    """Totals, then cost and energy over time, load, and incomplete windows."""
    variables = [choice("host"), choice("service"), choice("currency", several=False)]
    board = page("production", "production cost", ABOUT, variables)
    _figures(board)
    _cost(board)
    _energy(board)
    _load(board)
    return board


def _cost_of(field: str, name: str = NAME, scale: str = "") -> Query:
    return Query(f'mean("{field}"){scale}', "cost", over=PRICED, where=SERVING, by=EACH, alias=name)


def _figures(board: dashboard.Dashboard) -> None:
    def allocated(*where: str) -> str:
        return Query('sum("cost")', "allocation", over=PRICED, where=where, every=None).text

    def served(select: str) -> str:
        return Query(select, "serving", over=HERE, where=WHOLE, every=None).text

    board.with_panel(figure("Cost ($currency)", "short", allocated()))
    board.with_panel(figure("Idle cost ($currency)", "short", allocated("\"part\" = 'idle'")))
    board.with_panel(figure("Requests", "short", served('sum("requests")')))
    board.with_panel(
        figure(
            "Failed requests in this range",
            "percent",
            served('100 * sum("errors") / (sum("requests") + sum("errors"))'),
            steps=bounds(1, 5),
        )
    )
    where = (*SERVING, *WHOLE)
    idle = Query('mean("idle_share") * 100', "cost", over=PRICED, where=where, every=None)
    board.with_panel(
        figure("Mean idle share", "percent", idle.text, about="Unweighted mean over windows.")
    )
    board.with_panel(figure("Output tokens", "short", served('sum("tokens_out")')))


def _cost(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Cost"))
    board.with_panel(
        graph(
            "Cost per 1,000 requests ($currency)",
            "short",
            _cost_of("cost_per_request", scale=" * 1000"),
            about="Total cost of the service's devices divided by answered requests.",
        )
    )
    board.with_panel(
        graph(
            "Cost per 1,000 inferences ($currency)",
            "short",
            _cost_of("cost_per_inference", scale=" * 1000"),
        )
    )
    board.with_panel(
        graph(
            "Cost per million tokens ($currency)",
            "short",
            _cost_of("cost_per_million_tokens_in", f"{NAME} in"),
            _cost_of("cost_per_million_tokens_out", f"{NAME} out"),
        )
    )
    board.with_panel(
        graph(
            "Rolling cost per 1,000 inferences ($currency)",
            "short",
            _cost_of("rolling_1h", f"{NAME} 1 h", " * 1000"),
            _cost_of("rolling_24h", f"{NAME} 24 h", " * 1000"),
            _cost_of("rolling_7d", f"{NAME} 7 d", " * 1000"),
        )
    )
    allocated = Query(
        'sum("cost")',
        "allocation",
        over=("host", "currency"),
        by=("service", "part"),
        every="1h",
        alias="$tag_service $tag_part",
    )
    board.with_panel(
        graph(
            "Cost allocation per hour ($currency)",
            "short",
            allocated,
            style="bars",
            about="The parts sum to the devices' cost; parts without a service are the remainder.",
        )
    )
    parts = Query(
        'sum("cost") AS "cost", sum("cost_hardware") AS "hardware",'
        ' sum("cost_energy") AS "electricity"',
        "allocation",
        over=("host", "currency"),
        by=("host", "device", "service", "part"),
        every=None,
    )
    board.with_panel(
        listing("Cost allocation in this range ($currency)", parts.text, hide=("Time",), span=12)
    )


def _energy(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Energy"))

    def drawn(energy: str, units: str, name: str = NAME, scale: str = "") -> Query:
        select = f'sum("{energy}") / sum("{units}"){scale}'
        return Query(select, "cost", over=HERE, where=SERVING, by=EACH, alias=name)

    about = "Energy of the service's devices, idle time included; 5 % or more uncertain."
    board.with_panel(
        graph("Energy per request", "joule", drawn("energy_j", "requests"), about=about)
    )
    board.with_panel(
        graph(
            "Energy per million tokens",
            "joule",
            drawn("energy_tokens_in_j", "tokens_in", f"{NAME} in", " * 1000000"),
            drawn("energy_tokens_out_j", "tokens_out", f"{NAME} out", " * 1000000"),
            about="Divided between tokens like the cost: `token_split` states how.",
        )
    )


def _load(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Load"))

    def served(select: str, name: str = NAME) -> Query:
        return Query(select, "serving", over=HERE, by=EACH, alias=name)

    board.with_panel(
        graph("Requests per second", "reqps", served('sum("requests") / sum("window_s")'))
    )
    board.with_panel(
        graph(
            "Tokens per second",
            "short",
            served('sum("tokens_in") / sum("window_s")', f"{NAME} in"),
            served('sum("tokens_out") / sum("window_s")', f"{NAME} out"),
        )
    )
    board.with_panel(
        graph(
            "Failed share of requests",
            "percent",
            served('100 * sum("errors") / (sum("requests") + sum("errors"))'),
        )
    )
    busy = Query(
        'mean("busy_share")',
        "serving",
        over=HERE,
        where=WHOLE,
        by=HERE,
        alias="$tag_host $tag_service",
    )
    board.with_panel(graph("Busy share of its devices", "percentunit", busy))
    windows = Query(
        '"host", "service", "complete", "problem", "missing", "restarts", "readings"',
        "serving",
        over=HERE,
        where=WHOLE,
    )
    board.with_panel(
        listing(
            "Windows",
            windows.rows,
            about="An incomplete window has no cost; `problem` gives the reason.",
        )
    )
