"""One model: cost per inference, its drifts, and their causes."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.parts import bounds, choice, figure, graph, page
from scripts.dashboards.queries import Query, Tag
from scripts.dashboards.tables import listing

ABOUT = "One model: cost per inference, its drifts, and their causes."
CHOSEN = ("host", "device", "probe")
PRICED = (*CHOSEN, "currency")
EACH = ("host", "device")
NAME = "$tag_host $tag_device"

_DRIFTS = '{host=~"$host",device=~"$device",probe=~"$probe",kind="drift",metric="cost"}[$__range]'
_PCT = f"last_over_time(costprobe_event_level_pct{_DRIFTS})"
_LATEST_DRIFT = f"{_PCT} and topk(1, last_over_time(costprobe_event_time_s{_DRIFTS}) and {_PCT})"


def build() -> dashboard.Dashboard:
    """Cost with drift annotations, its components, then correlated signals."""
    variables = [
        choice("host"),
        choice("device"),
        choice("probe", several=False),
        choice("currency", several=False),
    ]
    board = page("model", "one model's cost", ABOUT, variables)
    _figures(board)
    _cost(board)
    _causes(board)
    _batches(board)
    return board


def _cost_of(field: str, *, share: str = "median", scale: str = " * 1000", alias: str) -> Query:
    return Query(f'{share}("{field}"){scale}', "cost", over=PRICED, by=EACH, alias=alias)


def _probe_of(field: str, alias: str = NAME, share: str = "median") -> Query:
    return Query(f'{share}("{field}")', "probe", over=CHOSEN, by=EACH, alias=alias)


def _figures(board: dashboard.Dashboard) -> None:
    def median_of(field: str, source: str, over: tuple[str, ...], scale: str = "") -> Query:
        newest = Query(f'last("{field}") AS "newest"', source, over=over, by=EACH, every=None)
        return newest.of(f'median("newest"){scale}')

    board.with_panel(
        figure(
            "Current cost per 1,000 inferences ($currency)",
            "short",
            median_of("cost_per_inference", "cost", PRICED, " * 1000"),
            about="The median of the selected devices, as the next three.",
        )
    )
    for title, field in (("24 h", "rolling_24h"), ("7 d", "rolling_7d")):
        text = median_of(field, "cost", PRICED, " * 1000")
        board.with_panel(figure(f"Median of {title} ($currency)", "short", text))
    board.with_panel(
        figure(
            "Coverage of 24 h",
            "percentunit",
            median_of("rolling_24h_coverage", "cost", PRICED),
            about="Below 0.5 the rolling cost is not representative.",
        )
    )
    drift = Query(
        'last("level_pct")',
        "event",
        over=CHOSEN,
        where=(Tag("kind", "drift"), Tag("metric", "cost")),
        every=None,
        prometheus={"": _LATEST_DRIFT},
    )
    about = "Of the cost, relative to the level before it; 0 after it has reverted."
    board.with_panel(figure("Latest drift", "percent", drift, about=about))
    noise = median_of("latency_rel_err", "probe", CHOSEN, " * 100")
    board.with_panel(
        figure("95 % interval of the latency within a run", "percent", noise, steps=bounds(2, 5))
    )


def _cost(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Cost with drift annotations"))
    board.with_panel(
        graph(
            "Cost per 1,000 inferences ($currency)",
            "short",
            _cost_of("cost_per_inference", alias=f"{NAME} cost"),
            _cost_of("cost_reference", alias=f"{NAME} at the first price"),
            about="If the two diverge, the price changed. If both change, the model, "
            "its software or its device changed.",
            span=24,
        )
    )
    board.with_panel(
        graph(
            "Components ($currency per 1,000)",
            "short",
            _cost_of("cost_hardware", alias=f"{NAME} hardware"),
            _cost_of("cost_energy", alias=f"{NAME} electricity"),
            style="areas",
        )
    )
    board.with_panel(
        graph(
            "Rolling medians ($currency per 1,000)",
            "short",
            _cost_of("rolling_1h", alias=f"{NAME} 1 h"),
            _cost_of("rolling_24h", alias=f"{NAME} 24 h"),
            _cost_of("rolling_7d", alias=f"{NAME} 7 d"),
        )
    )
    drifts = Query(
        '"host", "device", "kind", "metric", "change_pct", "title", "cause", "before", "after"',
        "event",
        over=CHOSEN,
        where=(Tag("kind", "drift|anomaly|software", "=~"),),
    )
    board.with_panel(
        listing("Drifts and their causes", drifts.rows, units={"change_pct": "percent"})
    )


def _causes(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Correlated signals"))
    board.with_panel(
        graph(
            "Latency per batch",
            "ms",
            _probe_of("latency_p50_ms", f"{NAME} p50"),
            _probe_of("latency_p90_ms", f"{NAME} p90"),
            _probe_of("latency_p99_ms", f"{NAME} p99"),
        )
    )
    board.with_panel(graph("Throughput", "reqps", _probe_of("throughput_per_s")))
    board.with_panel(
        graph(
            "Energy per inference",
            "joule",
            _probe_of("energy_per_inference_j", f"{NAME} gross"),
            _probe_of("energy_above_idle_j", f"{NAME} above idle"),
        )
    )
    board.with_panel(
        graph(
            "Throttled",
            "percent",
            _probe_of("throttled_power_pct", f"{NAME} power", "max"),
            _probe_of("throttled_thermal_pct", f"{NAME} temperature", "max"),
            steps=bounds(1, 10),
        )
    )
    board.with_panel(graph("SM clock while probing", "rotmhz", _probe_of("sm_clock_mhz")))
    board.with_panel(
        graph(
            "Maximum temperature while probing",
            "celsius",
            _probe_of("temp_max_c", share="max"),
            steps=bounds(80, 88),
        )
    )


def _batches(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Batches and runs"))
    sweep = Query(
        'last("latency_p50_ms") AS "latency", last("throughput_per_s") AS "throughput",'
        ' last("energy_per_inference_j") AS "energy",'
        ' last("cost_per_inference") * 1000 AS "cost per 1,000"',
        "sweep",
        over=CHOSEN,
        where=(Tag("loop", ""),),
        by=("host", "device", "batch"),
        every=None,
    )
    curve = Query(
        'last("tokens_out_per_s") AS "tokens/s", last("throughput_per_s") AS "requests/s",'
        ' last("ttft_p90_ms") AS "TTFT p90", last("tpot_p90_ms") AS "TPOT p90",'
        ' last("energy_per_million_tokens_out_j") AS "energy per million tokens",'
        ' last("cost_per_million_tokens_out") AS "cost per million tokens"',
        "sweep",
        over=CHOSEN,
        where=(Tag("loop", "", "!="),),
        by=("host", "device", "loop", "step", "concurrency"),
        every=None,
    )
    work = Query(
        'last("tokens_out_per_s")',
        "sweep",
        over=CHOSEN,
        where=(Tag("loop", "closed"),),
        by=("host", "device", "concurrency"),
        alias="$tag_host $tag_device $tag_concurrency in flight",
    )
    runs = Query(
        '"host", "device", "batch", "latency_p50_ms", "samples", "stop_reason", "contended",'
        ' "energy_method", "fingerprint"',
        "probe",
        over=CHOSEN,
    )
    board.with_panel(
        listing(
            "Batch sweep (costprobe probe --sweep)",
            sweep,
            units={"latency": "ms", "throughput": "reqps", "energy": "joule"},
            hide=("Time",),
            span=10,
        )
    )
    board.with_panel(
        listing(
            "Load curve (costprobe probe --load)",
            curve,
            about="The newest one of each load: requests in flight, or rising rates of an open loop.",
            units={
                "tokens/s": "short",
                "requests/s": "reqps",
                "TTFT p90": "ms",
                "TPOT p90": "ms",
                "energy per million tokens": "joule",
            },
            hide=("Time",),
            span=14,
        )
    )
    board.with_panel(
        graph("Generated tokens per second by requests in flight", "short", work, span=10)
    )
    board.with_panel(listing("Runs", runs.rows, units={"latency_p50_ms": "ms"}, span=14))
