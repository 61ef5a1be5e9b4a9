"""Duration of the fleet dashboard's queries, sent as by Grafana.

InfluxDB receives the panels' queries with all hosts and currencies selected. VictoriaMetrics does
not support InfluxQL: it receives equivalent MetricsQL for the panels that read most.
"""

import json
import statistics
import time
import urllib.error
from collections.abc import Callable
from functools import partial

from costprobe.ui.grafana.provisioning import boards
from fakes.servers import get
from fleet_load import ROUND_S, START_S
from fleet_servers import Influx, Victoria

INTERVAL = "1m"
TIMES = 3
METRICSQL = {
    "Power by host": "sum(avg_over_time(device_power_w[1m])) by (host)",
    "Utilization by host": "avg(avg_over_time(device_util_pct[1m])) by (host)",
    "Spend per hour ($currency)": "sum(sum_over_time(device_cost[1h])) by (host)",
    "Devices, current state": "last_over_time(device_power_w[1h])",
}


def panels() -> list[tuple[str, str]]:
    """Return (title, InfluxQL) of each target of the fleet dashboard."""
    board = json.loads(boards()["fleet.json"])
    return [
        (panel["title"], target["query"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
        if target.get("query")
    ]


def filled(query: str, rounds: int) -> str:
    """Return a panel's query over the range of the sent rows."""
    until_s = START_S + rounds * ROUND_S
    spans = f"time >= {START_S}s AND time < {until_s}s"
    for name, text in (
        ("$timeFilter", spans),
        ("$__interval", INTERVAL),
        ("$host", ".*"),
        ("$currency", ".*"),
    ):
        query = query.replace(name, text)
    return query


def slowest_panel(server: Influx | Victoria, rounds: int, seconds: float) -> tuple[str, float]:
    """Return (title, median seconds) of the slowest panel.

    Args:
        server: The database.
        rounds: Queried range, in rounds of sending.
        seconds: Maximum total duration, in s.
    """
    queries = queries_of(server, rounds)
    ends_s = time.monotonic() + seconds
    durations_s = {}
    for title, run_query in queries:
        if time.monotonic() < ends_s:
            durations_s[title, run_query] = duration_s(run_query)
    (title, run_query), first_s = max(durations_s.items(), key=lambda entry: entry[1])
    more_s = [duration_s(run_query) for _ in range(TIMES - 1) if time.monotonic() < ends_s]
    return title, statistics.median([first_s, *more_s])


def queries_of(server: Influx | Victoria, rounds: int) -> list[tuple[str, Callable[[], object]]]:
    """Return (title, function that runs the query) of each panel."""
    if server.short == "influxdb":
        return [
            (title, partial(server.query, filled(query, rounds), db="fleet"))
            for title, query in panels()
        ]
    span = {"start": START_S, "end": START_S + rounds * ROUND_S, "step": INTERVAL}
    return [
        (title, partial(get, f"{server.url}/api/v1/query_range", query=text, **span))
        for title, text in METRICSQL.items()
    ]


def duration_s(run_query: Callable[[], object]) -> float:
    """Return the duration of a query in s; one that the server aborts counts until the abort."""
    began_s = time.perf_counter()
    try:
        run_query()
    except urllib.error.HTTPError as error:
        print(f"  rejected: {error.code}")
    return time.perf_counter() - began_s
