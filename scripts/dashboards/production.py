"""Production: cost of services including idle time, and its allocation."""

from __future__ import annotations

from dataclasses import replace

from costprobe.core.schema import SERVING_RATIOS
from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.parts import bounds, choice, figure, graph, page
from scripts.dashboards.queries import PER_PANEL, Condition, Known, Query, Tag
from scripts.dashboards.tables import listing

ABOUT = "Cost of services in production including idle time, and its allocation."
HERE = ("host", "service")
PRICED = (*HERE, "currency")
# A row of the whole service has no model, so that part of its name is empty.
NAME = "$tag_host $tag_service $tag_served_model"
EACH = (*HERE, "served_model")
SERVING = (Tag("basis", "serving"),)
# A service's own row: the rows of its models repeat what it contains.
ALONE = (Tag("served_model", ""),)
WHOLE = (*SERVING, *ALONE)
# Both pools of a disaggregated server count each request.
ONCE = (*ALONE, Tag("service_role", "prefill", "!="))
_ONCE_WORDS = "Of a disaggregated server those of its decode pool."

_BUSY, _IDLE = (
    f'sum by (host, service) (increase(costprobe_service_{state}_seconds_total{{host=~"$host",'
    'service=~"$service"}[$__rate_interval]))'
    for state in ("busy", "idle")
)
_BUSY_SHARE = f"{_BUSY} / (({_BUSY} + {_IDLE}) > 0)"


def build() -> dashboard.Dashboard:
    """Totals, then cost and energy over time, load, and incomplete windows."""
    variables = [choice("host"), choice("service"), choice("currency", several=False)]
    board = page("production", "production cost", ABOUT, variables)
    _figures(board)
    _cost(board)
    _energy(board)
    _load(board)
    return board


def _sum_of(field: str) -> str:
    return f'sum("{field}")'


def _ratio(
    field: str,
    name: str = NAME,
    scale: str = "",
    over: tuple[str, ...] = PRICED,
    where: tuple[Condition, ...] = SERVING,
) -> Query:
    """Return the query of a ratio of sums, without the intervals in which nothing was counted.

    A mean of the ratios of windows would weigh an idle window as much as a busy one.
    """
    ratio = SERVING_RATIOS[field]
    sums = Query(
        f'{ratio.written(_sum_of)}{scale} AS "ratio", {_sum_of(ratio.per)} AS "count"',
        "cost",
        over=over,
        where=where,
        by=EACH,
    )
    return sums.of('"ratio"', *EACH, where='"count" > 0', alias=name)


def _rolling(field: str, name: str) -> Query:
    """Return the query of a rolling ratio, which is one already."""
    return Query(f'last("{field}") * 1000', "cost", over=PRICED, where=SERVING, by=EACH, alias=name)


def _figures(board: dashboard.Dashboard) -> None:
    def paid(select: str, where: tuple[Condition, ...] = WHOLE) -> Query:
        return Query(select, "cost", over=PRICED, where=where, every=None)

    def served(select: str) -> Query:
        return Query(select, "serving", over=HERE, where=ONCE, every=None)

    board.with_panel(figure("Cost ($currency)", "short", paid(_sum_of("cost_total"))))
    board.with_panel(
        figure("Paid while services wait ($currency)", "short", paid(_sum_of("cost_idle")))
    )
    board.with_panel(figure("Requests", "short", served('sum("requests")'), about=_ONCE_WORDS))
    board.with_panel(
        figure(
            "Failed requests in this range",
            "percent",
            served('100 * sum("errors") / (sum("requests") + sum("errors"))'),
            steps=bounds(1, 5),
        )
    )
    share = SERVING_RATIOS["idle_share"]
    # Rows of older versions have an idle part alone.
    idle = paid(f"100 * {share.written(_sum_of)}", (*WHOLE, Known(share.per)))
    board.with_panel(
        figure(
            "Share paid while services wait",
            "percent",
            idle,
            about="Cost of idle time as a share of the cost.",
        )
    )
    board.with_panel(
        figure("Output tokens", "short", served('sum("tokens_out")'), about=_ONCE_WORDS)
    )


def _cost(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Cost"))
    board.with_panel(
        graph(
            "Cost per 1,000 requests ($currency)",
            "short",
            _ratio("cost_per_request", scale=" * 1000"),
            about="Total cost of the service's devices divided by answered requests.",
        )
    )
    board.with_panel(
        graph(
            "Cost per 1,000 inferences ($currency)",
            "short",
            _ratio("cost_per_inference", scale=" * 1000"),
        )
    )
    board.with_panel(
        graph(
            "Cost per million tokens ($currency)",
            "short",
            _ratio("cost_per_million_tokens_in", f"{NAME} in"),
            _ratio("cost_per_million_tokens_out", f"{NAME} out"),
        )
    )
    board.with_panel(
        graph(
            "Rolling cost per 1,000 inferences ($currency)",
            "short",
            _rolling("rolling_1h", f"{NAME} 1 h"),
            _rolling("rolling_24h", f"{NAME} 24 h"),
            _rolling("rolling_7d", f"{NAME} 7 d"),
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
    tenants = Query(
        'sum("cost")',
        "tenant",
        over=("host", "currency"),
        by=("service", "tenant"),
        every="1h",
        alias="$tag_service $tag_tenant",
    )
    board.with_panel(
        graph(
            "Cost by tenant per hour ($currency)",
            "short",
            tenants,
            style="bars",
            about=(
                "Cost of services with [service.tenants]; what no tenant's counters explain is"
                " unattributed."
            ),
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
        listing("Cost allocation in this range ($currency)", parts, hide=("Time",), span=12)
    )


def _energy(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Energy"))

    def drawn(field: str, name: str = NAME) -> Query:
        # Rows of older versions have energy alone.
        return _ratio(field, name, over=HERE, where=(*SERVING, Known(SERVING_RATIOS[field].per)))

    about = "Energy of the service's devices, idle time included; 5 % or more uncertain."
    board.with_panel(
        graph("Energy per request", "joule", drawn("energy_per_request_j"), about=about)
    )
    board.with_panel(
        graph(
            "Energy per million tokens",
            "joule",
            drawn("energy_per_million_tokens_in_j", f"{NAME} in"),
            drawn("energy_per_million_tokens_out_j", f"{NAME} out"),
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
    windows = Query(
        '"busy_share" * "window_s" AS "busy_s", "window_s"',
        "serving",
        over=HERE,
        where=(*ALONE, '"busy_share" >= 0'),
        by=HERE,
        every=None,
    )
    busy = windows.of('sum("busy_s") / sum("window_s")', *HERE, every=PER_PANEL)
    board.with_panel(
        graph(
            "Busy share of its devices",
            "percentunit",
            replace(busy, alias="$tag_host $tag_service", prometheus={"": _BUSY_SHARE}),
        )
    )
    windows = Query(
        '"host", "service", "complete", "problem", "missing", "restarts", "readings"',
        "serving",
        over=HERE,
        where=ALONE,
    )
    board.with_panel(
        listing(
            "Windows",
            windows.rows,
            about="An incomplete window has no cost; `problem` gives the reason.",
        )
    )
