"""Duration of the fleet dashboard's queries, sent as by Grafana.

InfluxDB receives the panels' queries with all hosts and currencies selected. VictoriaMetrics does
not support InfluxQL: it receives equivalent MetricsQL for the panels that read most.
"""

import json
import statistics
import time
import urllib.error

from costprobe.ui.grafana.boards import boards
from fakes.servers import get
from fleet_load import ROUND_S, START_S

INTERVAL = "1m"
TIMES = 3
METRICSQL = {
    "Power by host": "sum(avg_over_time(device_power_w[1m])) by (host)",
    "Utilization by host": "avg(avg_over_time(device_util_pct[1m])) by (host)",
    "Spend per hour ($currency)": "sum(sum_over_time(device_cost[1h])) by (host)",
    "Devices, current state": "last_over_time(device_power_w[1h])",
}


def panels():
    """Return (title, InfluxQL) of each target of the fleet dashboard."""
    board = json.loads(boards()["fleet.json"])
    return [
        (panel["title"], target["query"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
        if target.get("query")
    ]


def filled(query, rounds):
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


def heaviest(server, rounds, seconds):
    """Return (title, median seconds) of the slowest panel.

    Args:
        server: The database.
        rounds: Queried range, in rounds of sending.
        seconds: Maximum total duration, in s.
    """
    queries = queries_of(server, rounds)
    ends_s = time.monotonic() + seconds
    took = {}
    for title, ask in queries:
        if time.monotonic() < ends_s:
            took[title, ask] = timed(ask)
    (title, ask), first_s = max(took.items(), key=lambda entry: entry[1])
    again = [timed(ask) for _ in range(TIMES - 1) if time.monotonic() < ends_s]
    return title, statistics.median([first_s, *again])


def queries_of(server, rounds):
    """Return (title, function that runs the query) of each panel."""
    if server.short == "influxdb":
        texts = [(title, filled(query, rounds)) for title, query in panels()]
        return [(title, lambda text=text: server.query(text, db="fleet")) for title, text in texts]
    span = {"start": START_S, "end": START_S + rounds * ROUND_S, "step": INTERVAL}
    return [
        (title, lambda text=text: get(f"{server.url}/api/v1/query_range", query=text, **span))
        for title, text in METRICSQL.items()
    ]


def timed(ask):
    """Return the duration of a query in s; one that the server aborts counts until the abort."""
    began_s = time.perf_counter()
    try:
        ask()
    except urllib.error.HTTPError as error:
        print(f"  rejected: {error.code}")
    return time.perf_counter() - began_s
