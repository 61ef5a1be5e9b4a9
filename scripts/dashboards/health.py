"""Health of the agents: liveness, delivery and resource use."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards.parts import Steps, bounds, choice, figure, graph, listing, page
from scripts.dashboards.queries import Query

ABOUT = "Health of the agents: liveness, delivery and resource use."
MIB = 1 << 20


def build() -> dashboard.Dashboard:
    """Worst values of the fleet, then each host over time, then faults."""
    board = page("health", "agent health", ABOUT, [choice("host")])
    _figures(board)
    _graphs(board)
    _lists(board)
    return board


def _figures(board: dashboard.Dashboard) -> None:
    def worst(field: str, outer: str = "max") -> str:
        last = Query(f'last("{field}") AS "last"', "agent", by=("host",), every=None)
        return last.of(f'{outer}("last")')

    late = Query('spread("late_jobs") AS "grown"', "agent", by=("host",), every=None)
    board.with_panel(figure("Agents reporting", "none", worst("rss_bytes", "count")))
    board.with_panel(
        figure("Largest delivery lag", "s", worst("outbox_lag_s"), steps=bounds(60, 900))
    )
    board.with_panel(
        figure(
            "Queued points",
            "short",
            worst("outbox_points", "sum"),
            steps=((1e6, "orange"),),
        )
    )
    board.with_panel(
        figure(
            "Dropped points",
            "short",
            worst("dropped_points", "sum"),
            steps=((1, "red"),),
            about="Since each agent's store was created.",
        )
    )
    board.with_panel(
        figure(
            "Sensor restarts, maximum of a host",
            "none",
            worst("child_restarts"),
            steps=bounds(1, 10),
        )
    )
    board.with_panel(
        figure("Late jobs, maximum of a host", "none", late.of('max("grown")'), steps=bounds(1, 60))
    )


def _graphs(board: dashboard.Dashboard) -> None:
    def of(select: str, title: str, unit: str, steps: Steps = ()) -> None:
        query = Query(select, "agent", by=("host",), alias="$tag_host")
        board.with_panel(graph(title, unit, query, steps=steps))

    of('max("rss_bytes")', "Memory of the agent", "bytes", ((64 * MIB, "red"),))
    of(
        '100 * non_negative_derivative(max("cpu_s"), 1s)',
        "CPU, percent of one core",
        "percent",
        ((0.5, "orange"),),
    )
    of('max("outbox_points")', "Queued points over time", "short")
    of('max("outbox_lag_s")', "Age of the oldest queued point", "s", bounds(60, 900))
    of('non_negative_derivative(max("sent_points"), 1s)', "Points sent per second", "wps")
    of('max("late_jobs")', "Late jobs", "none")


def _lists(board: dashboard.Dashboard) -> None:
    agents = Query(
        'last("rss_bytes") AS "memory", last("outbox_points") AS "queued",'
        ' last("dropped_points") AS "dropped", last("child_restarts") AS "restarts"',
        "agent",
        by=("host", "version"),
        every=None,
    )
    faults = Query(
        '"host", "severity", "device", "title", "detail"',
        "event",
        where=("\"kind\" = 'fault'",),
    )
    board.with_panel(
        listing(
            "Agents and their versions",
            agents.text,
            units={"memory": "bytes"},
            steps={"dropped": ((1, "red"),)},
            hide=("Time",),
            span=10,
        )
    )
    board.with_panel(listing("Faults", faults.rows, span=14))
