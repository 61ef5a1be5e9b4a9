"""Health of the agents: liveness, delivery and resource use."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from scripts.dashboards import agents
from scripts.dashboards.parts import Steps, bounds, choice, figure, graph, page
from scripts.dashboards.queries import Query, Tag
from scripts.dashboards.tables import listing, sorted_by, with_time

ABOUT = "Health of the agents: liveness, delivery and resource use."
MIB = 1 << 20


def build() -> dashboard.Dashboard:
    """Worst values of the fleet, each agent's state, then each host over time, then faults."""
    board = page("health", "agent health", ABOUT, [choice("host")])
    _figures(board)
    _graphs(board)
    _lists(board)
    return board


def _figures(board: dashboard.Dashboard) -> None:
    late = Query('spread("late_jobs") AS "grown"', "agent", by=("host",), every=None)
    for panel in (
        figure(
            "Agents reporting",
            "none",
            agents.reporting(),
            about="With a row in the last two minutes, whatever the time range.",
            span=3,
        ),
        figure(
            "Agents silent",
            "none",
            agents.silent_agents(),
            steps=((1, "red"),),
            about="With a row in the last 7 days but none in the last two minutes, whatever the time range."
            " Below, each is listed with its last row.",
            span=3,
        ),
        figure(
            "Oldest last row of an agent",
            "dateTimeFromNow",
            agents.longest_silence(),
            shown="Time",
            about="Of the agent that is silent the longest.",
            span=3,
        ),
        figure(
            "Largest delivery lag",
            "s",
            agents.worst("outbox_lag_s"),
            steps=bounds(60, 900),
            about="Of the agents reporting; the delay of a silent one is the age of its last row.",
            span=3,
        ),
        figure(
            "Queued points",
            "short",
            agents.worst("outbox_points", "sum"),
            steps=((1e6, "orange"),),
            span=3,
        ),
        figure(
            "Dropped points",
            "short",
            agents.worst("dropped_points", "sum"),
            steps=((1, "red"),),
            about="Since each agent's store was created.",
            span=3,
        ),
        figure(
            "Most sensor restarts",
            "none",
            agents.worst("child_restarts"),
            steps=bounds(1, 10),
            span=3,
        ),
        figure(
            "Most late jobs",
            "none",
            late.of('max("grown")'),
            steps=bounds(1, 60),
            span=3,
        ),
    ):
        board.with_panel(panel)
    last_rows = listing(
        "Agents",
        agents.states(),
        units={"memory": "bytes", "last seen": "dateTimeFromNow", "delivery lag": "s"},
        steps={"dropped": ((1, "red"),), "delivery lag": bounds(60, 900)},
        about="The last row of every agent of the last 7 days, the oldest first, whatever the time range.",
        span=18,
    )
    silent = listing(
        "Silent now",
        agents.silent_hosts(),
        words={"silent": {"1": ("no row for two minutes", "red")}},
        hide=("Time",),
        span=6,
    )
    board.with_panel(silent)
    board.with_panel(sorted_by(with_time(last_rows, "last seen"), "last seen", is_descending=False))


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
    faults = Query(
        '"host", "severity", "device", "title", "detail"',
        "event",
        where=(Tag("kind", "fault"),),
    )
    board.with_panel(listing("Faults", faults.rows))
