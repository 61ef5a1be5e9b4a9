"""The Prometheus edition of a dashboard: the same panels, with the queries in PromQL.

Panels of texts and single rows, which `/metrics` does not have, are left out: tables, annotations, and
the graphs that `promql` cannot translate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scripts.dashboards.promql import Promql, UntranslatableError, promql

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "costprobe-prometheus"
_COLUMNS = 24
# A metric whose series have the label of a variable.
_LABEL_SOURCES = {
    "host": "costprobe_energy_joules_total",
    "device": "costprobe_energy_joules_total",
    "probe": "costprobe_probe_latency_p50_ms",
    "service": "costprobe_service_window_seconds_total",
    "currency": "costprobe_cost_total",
}


def prometheus_edition(board: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edition of a dashboard for a Prometheus data source.

    Args:
        board: The dashboard in Grafana's format, for InfluxDB.
    """
    name = str(board["uid"]).removeprefix("costprobe-")
    panels = _placed([panel for panel in map(_panel, board["panels"]) if panel is not None])
    used = " ".join(str(panel) for panel in panels)
    variables = [_variable(variable) for variable in board["templating"]["list"]]
    return {
        **board,
        "uid": f"{TAG}-{name}",
        "title": f"{board['title']} (Prometheus)",
        "tags": [TAG],
        "links": [{**link, "tags": [TAG]} for link in board["links"]],
        "annotations": {"list": []},
        "panels": panels,
        "templating": {
            "list": [v for v in variables if re.search(rf"\$\{{?{v['name']}\b", used)],
        },
    }


def _panel(panel: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a panel; None if its queries cannot be translated."""
    if panel["type"] == "row":
        return dict(panel)
    if panel["type"] == "table":
        return None
    try:
        queries = [
            (query, target) for target in panel["targets"] for query in promql(target["query"])
        ]
    except UntranslatableError:
        return None
    is_figure = panel["type"] == "stat"
    targets = [
        _target(query, target, number, is_figure=is_figure)
        for number, (query, target) in enumerate(queries)
    ]
    return {**panel, "datasource": SOURCE, "targets": targets}


def _target(
    query: Promql, target: Mapping[str, Any], number: int, *, is_figure: bool
) -> dict[str, Any]:
    legend = re.sub(r"\$tag_(\w+)", r"{{\1}}", target.get("alias", "")).replace("$col", query.name)
    if "served_model" not in query.text:
        legend = legend.replace(" {{served_model}}", "")
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query.text,
        "legendFormat": legend or "__auto",
        "instant": is_figure,
        "range": not is_figure,
    }


def _variable(variable: Mapping[str, Any]) -> dict[str, Any]:
    if variable["type"] == "datasource":
        return {**variable, "query": "prometheus"}
    if variable["type"] != "query":
        return dict(variable)
    name = variable["name"]
    over = re.findall(r'"(\w+)" =~', str(variable["query"]))
    matchers = ",".join(f'{tag}=~"${tag}"' for tag in over)
    series = f"{_LABEL_SOURCES[name]}{{{matchers}}}" if matchers else _LABEL_SOURCES[name]
    return {**variable, "datasource": SOURCE, "query": f"label_values({series}, {name})"}


def _placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the panels side by side again, without rows that became empty."""
    filled = [
        panel
        for panel, after in zip(panels, [*panels[1:], None], strict=True)
        if panel["type"] != "row" or (after is not None and after["type"] != "row")
    ]
    return list(_flow(filled))


def _flow(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    x = y = height = 0
    for panel in panels:
        place = panel["gridPos"]
        if panel["type"] == "row" or x + place["w"] > _COLUMNS:
            x, y, height = 0, y + height, 0
        yield {**panel, "gridPos": {**place, "x": x, "y": y}}
        x, height = x + place["w"], max(height, place["h"])
