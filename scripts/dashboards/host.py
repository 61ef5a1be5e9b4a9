"""One host: its devices, their limits, and probe results."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.parts import bounds, choice, figure, graph, page
from scripts.dashboards.queries import Query
from scripts.dashboards.tables import listing

ABOUT = "One host: its devices, their limits, and probe results."
HERE = ("host", "device")
PRICED = (*HERE, "currency")


def build() -> dashboard.Dashboard:
    """Totals, then the devices, their limits, and the probes."""
    variables = [
        choice("host", several=False),
        choice("device"),
        choice("currency", several=False),
    ]
    board = page("host", "one host", ABOUT, variables)
    _figures(board)
    _devices(board)
    _limits(board)
    _probes(board)
    return board


def _of(select: str, over: tuple[str, ...] = HERE) -> Query:
    return Query(select, "device", over=over, by=("device",), alias="$tag_device")


def _once(select: str, over: tuple[str, ...] = HERE) -> Query:
    return Query(select, "device", over=over, every=None)


def _figures(board: dashboard.Dashboard) -> None:
    board.with_panel(
        figure("Spend in this range ($currency)", "short", _once('sum("cost")', PRICED))
    )
    board.with_panel(figure("Energy in this range", "joule", _once('sum("energy_j")')))
    board.with_panel(figure("Mean device power", "watt", _once('mean("power_w")')))
    board.with_panel(
        figure("Highest temperature", "celsius", _once('max("temp_c")'), steps=bounds(80, 88))
    )
    board.with_panel(
        figure(
            "Throttled time in this range",
            "s",
            _once('sum("throttle_power_s") + sum("throttle_thermal_s")'),
            steps=bounds(60, 600),
            about="Seconds, summed over devices, in which a power or thermal limit reduced the clock.",
        )
    )
    board.with_panel(
        figure(
            "Uncorrected memory errors",
            "none",
            _once('max("ecc_uncorrected")'),
            steps=((1, "red"),),
        )
    )


def _devices(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Devices"))
    board.with_panel(graph("Power", "watt", _of('mean("power_w")')))
    board.with_panel(graph("Utilization", "percent", _of('mean("util_pct")')))
    board.with_panel(graph("Memory in use", "bytes", _of('max("mem_used_bytes")')))
    board.with_panel(graph("Processes", "none", _of('max("processes")')))
    board.with_panel(
        graph("Price per hour ($currency)", "short", _of('mean("price_rate_per_h")', PRICED))
    )
    spent = Query(
        'sum("cost")', "device", over=PRICED, by=("device",), every="1h", alias="$tag_device"
    )
    board.with_panel(graph("Spend per hour ($currency)", "short", spent, style="bars"))


def _limits(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Limits"))
    board.with_panel(graph("Temperature", "celsius", _of('max("temp_c")'), steps=bounds(80, 88)))
    board.with_panel(graph("SM clock", "rotmhz", _of('mean("sm_clock_mhz")')))
    board.with_panel(graph("Throttled by power", "s", _of('sum("throttle_power_s")'), style="bars"))
    board.with_panel(
        graph("Throttled by temperature", "s", _of('sum("throttle_thermal_s")'), style="bars")
    )


def _probes(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Probes"))
    latency = Query(
        'median("latency_p50_ms")',
        "probe",
        over=HERE,
        by=("device", "probe"),
        alias="$tag_device $tag_probe",
    )
    throttled = Query(
        'max("throttled_pct")',
        "probe",
        over=HERE,
        by=("device", "probe"),
        alias="$tag_device $tag_probe",
    )
    board.with_panel(graph("Latency, median", "ms", latency))
    board.with_panel(graph("Throttled while probing", "percent", throttled, steps=bounds(1, 10)))
    events = Query('"kind", "severity", "device", "probe", "title", "detail", "cause"', "event")
    board.with_panel(listing("Events", events.rows))
