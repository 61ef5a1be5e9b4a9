"""The Prometheus edition of the dashboards: every query, on a real Prometheus."""

import json
import math
import re
from functools import cache

import pytest
from costprobe.ui.grafana.boards import boards
from grafana_foundation_sdk.models.dashboard import Dashboard
from history import END_NS, END_S, points, sum_of

BOARDS = {
    name.removesuffix(".json"): json.loads(text) for name, text in boards("prometheus").items()
}
PANELS = {
    f"{name}: {panel['title']} {target['refId']}": (panel, target)
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
}
HOUR_S = 3600
# Panels with the same titles that only InfluxDB can answer: they need texts or single rows.
INFLUXDB_ONLY = {
    "model: Latest drift",
    "production: Energy per request",
    "production: Energy per million tokens",
    "production: Busy share of its devices",
}


def filled(text):
    """A query with its variables replaced as Grafana does: everything, over the last hour."""
    text = text.replace("$__range", "1h").replace("$__rate_interval", "20m")
    text = re.sub(r"\$\{(price_a|price_b|tariff_per_kwh):raw\}", "3.6", text)
    text = text.replace("$currency", "USD")
    text = re.sub(r'=~"\$\w+"', '=~".*"', text)
    assert "$" not in text, text
    return text


@pytest.fixture(scope="module")
def answers(prometheus):
    return cache(
        lambda title: [
            value for _, value in prometheus.query(filled(PANELS[title][1]["expr"]), END_S)
        ]
    )


def test_every_query_returns_finite_values(answers):
    empty = [
        title
        for title in PANELS
        if not answers(title) or not all(math.isfinite(value) for value in answers(title))
    ]
    assert not empty
    assert len(PANELS) > 90


def ratio(over, per, scale):
    """A ratio of the sums of whole services over the last 20 minutes, of each host."""
    found = []
    for host in ("gpu-01", "gpu-02.example.com"):
        rows = [
            point.fields
            for point in points()
            if point.measurement == "cost"
            and point.tags.get("basis") == "serving"
            and "served_model" not in point.tags
            and point.tags["host"] == host
            and point.time_ns > END_NS - 1200 * 10**9
        ]
        found.append(sum(r[over] for r in rows) / sum(r[per] for r in rows) * scale)
    return found


def known():
    """What panels show: one value, or one for each host."""
    return {
        "fleet: Spend in this range ($currency) A": [sum_of("device", "cost", HOUR_S)],
        "fleet: Devices A": [4],
        "fleet: Current price per hour ($currency) A": [4 * 2.176],
        "fleet: Idle cost of services ($currency) A": [
            sum_of("allocation", "cost", HOUR_S, part="idle")
        ],
        "energy: Energy A": [sum_of("device", "energy_j", HOUR_S) / 3.6e6],
        "energy: CO2-equivalent A": [sum_of("device", "carbon_g", HOUR_S)],
        "energy: CO2-equivalent per kWh A": [380.0],
        "host: Throttled time in this range A": [
            sum_of("device", "throttle_power_s", HOUR_S)
            + sum_of("device", "throttle_thermal_s", HOUR_S)
        ],
        "production: Cost per 1,000 requests ($currency) A": ratio("cost_total", "requests", 1000),
        "prices: Break-even utilization at price A A": [100 * 3.6 / 2.176],
    }


def test_panels_show_the_aggregates_of_the_rows(answers):
    wanted = {title: pytest.approx(sorted(values), rel=0.01) for title, values in known().items()}
    # Prometheus extrapolates the increase of a counter to the ends of its range.
    assert {title: sorted(answers(title)) for title in wanted} == wanted


def test_edition_has_the_panels_of_the_description_that_metrics_can_answer():
    missing = set()
    for name, text in boards().items():
        board = name.removesuffix(".json")
        own = {panel["title"] for panel in BOARDS[board]["panels"]}
        for panel in json.loads(text)["panels"]:
            if panel["type"] not in {"table", "row"} and panel["title"] not in own:
                missing.add(f"{board}: {panel['title']}")
    assert missing == INFLUXDB_ONLY


@pytest.mark.parametrize("name", BOARDS)
def test_edition_is_a_dashboard_of_its_own_for_prometheus(name):
    board = BOARDS[name]
    assert Dashboard.from_json(board).uid == f"costprobe-prometheus-{name}"
    assert "influxdb" not in json.dumps(board)
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    there = {variable["name"] for variable in board["templating"]["list"]} - {"datasource"}
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    named = set(re.findall(r"\$\{?([a-z]\w*)", " ".join(queries)))
    assert named <= there
