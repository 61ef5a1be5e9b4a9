"""The fleet dashboard's queries as Grafana would send them, timed.

InfluxDB gets the panels' own text, with every host and currency chosen. VictoriaMetrics answers no
InfluxQL: it gets what asks the same in MetricsQL, for the panels that read most.
"""

import json
import statistics
import time
import urllib.error

from fakes.servers import get
from fleet_load import ROUND_S, START_S

from agent.grafana.boards import boards

INTERVAL = "1m"
TIMES = 3
METRICSQL = {
    "Power by host": "sum(avg_over_time(device_power_w[1m])) by (host)",
    "Utilization by host": "avg(avg_over_time(device_util_pct[1m])) by (host)",
    "Spent an hour": "sum(sum_over_time(device_cost[1h])) by (host)",
    "Device by device": "last_over_time(device_power_w[1h])",
}


def panels():
    """(title, InfluxQL) of each target of the fleet dashboard."""
    board = json.loads(boards()["fleet.json"])
    return [
        (panel["title"], target["query"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
        if target.get("query")
    ]


def filled(query, rounds):
    """A panel's query over what was sent."""
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
    """(title, median seconds) of the panel that takes longest; none where none ended in time.

    Args:
        server: The database, which holds so many rounds.
        rounds: What is asked for, in rounds of sending.
        seconds: Most time for all of it.
    """
    asked = asked_of(server, rounds)
    ends_s = time.monotonic() + seconds
    took = {}
    for title, ask in asked:
        if time.monotonic() < ends_s:
            took[title, ask] = timed(ask)
    (title, ask), first_s = max(took.items(), key=lambda entry: entry[1])
    again = [timed(ask) for _ in range(TIMES - 1) if time.monotonic() < ends_s]
    return title, statistics.median([first_s, *again])


def asked_of(server, rounds):
    """Each panel as something that can be called."""
    if server.short == "influxdb":
        texts = [(title, filled(query, rounds)) for title, query in panels()]
        return [(title, lambda text=text: server.query(text, db="fleet")) for title, text in texts]
    span = {"start": START_S, "end": START_S + rounds * ROUND_S, "step": INTERVAL}
    return [
        (title, lambda text=text: get(f"{server.url}/api/v1/query_range", query=text, **span))
        for title, text in METRICSQL.items()
    ]


def timed(ask):
    """Seconds that a query takes; what the server gives up on counts as long as it took."""
    began_s = time.perf_counter()
    try:
        ask()
    except urllib.error.HTTPError as error:
        print(f"  refused: {error.code}")
    return time.perf_counter() - began_s
