"""The Prometheus edition of a dashboard: the same panels, with the queries in PromQL.

A table shows the newest row of each set of tags. Columns and panels of texts that are no labels at
`/metrics` are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from scripts.dashboards.promql import TIME, Promql
from scripts.dashboards.queries import PROMETHEUS

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
    text = json.dumps(board["panels"]).replace("/d/costprobe-", f"/d/{TAG}-")
    panels = _placed([panel for panel in map(_panel, json.loads(text)) if panel is not None])
    marks = [_marks(annotation) for annotation in board["annotations"]["list"]]
    used = " ".join(str(part) for part in [*panels, *marks])
    variables = [_variable(variable) for variable in board["templating"]["list"]]
    return {
        **board,
        "uid": f"{TAG}-{name}",
        "title": f"{board['title']} (Prometheus)",
        "tags": [TAG],
        "links": [{**link, "tags": [TAG]} for link in board["links"]],
        "annotations": {"list": marks},
        "panels": panels,
        "templating": {
            "list": [v for v in variables if re.search(rf"\$\{{?{v['name']}\b", used)],
        },
    }


def _panel(panel: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a panel; None if its queries cannot be translated."""
    if panel["type"] == "row":
        return dict(panel)
    if any(target[PROMETHEUS] is None for target in panel["targets"]):
        return None
    queries = [
        (Promql(*column), target) for target in panel["targets"] for column in target[PROMETHEUS]
    ]
    targets = [
        _target(query, target, number, panel) for number, (query, target) in enumerate(queries)
    ]
    edition = {**panel, "datasource": SOURCE, "targets": targets}
    # What InfluxDB has as the time of a row is a value.
    edition.get("options", {}).get("reduceOptions", {}).pop("fields", None)
    return (
        _table(edition, [query.name for query, _ in queries])
        if panel["type"] == "table"
        else edition
    )


def _target(
    query: Promql, target: Mapping[str, Any], number: int, panel: Mapping[str, Any]
) -> dict[str, Any]:
    legend = re.sub(r"\$tag_(\w+)", r"{{\1}}", target.get("alias", "")).replace("$col", query.name)
    kind = panel["type"]
    is_graph = kind == "timeseries" or panel["options"].get("graphMode") == "area"
    content = {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query.text,
        "legendFormat": legend or "__auto",
        "instant": not is_graph,
        "range": is_graph,
    }
    return content | ({"format": "table"} if kind == "table" else {})


def _table(panel: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    """Return a table whose queries become columns: Grafana names these after their queries."""
    values = [f"Value #{chr(ord('A') + number)}" for number in range(len(columns))]
    renamed = dict(zip(values if len(values) > 1 else ["Value"], columns, strict=True))
    options = {"excludeByName": {"Time": True}, "renameByName": renamed, "indexByName": {}}
    overrides = list(panel["fieldConfig"]["overrides"])
    if TIME in columns:
        overrides.append(
            {
                "matcher": {"id": "byName", "options": TIME},
                "properties": [{"id": "unit", "value": "dateTimeAsIso"}],
            }
        )
    return {
        **panel,
        "fieldConfig": {**panel["fieldConfig"], "overrides": overrides},
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": options},
        ],
    }


def _marks(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """Return annotations from the time of each row, which is a value."""
    target = annotation["target"]
    (time,) = [text for name, text in target[PROMETHEUS] if name == TIME]
    time = time.replace("$__range", "$__rate_interval")
    return {
        **{key: value for key, value in annotation.items() if key != "target"},
        "datasource": SOURCE,
        "expr": time,
        "target": {"refId": "Anno", "expr": time},
        "titleFormat": f"{{{{{target['titleColumn']}}}}}",
        "textFormat": "{{cause}}" if "cause" in target["query"] else "",
        "tagKeys": target["tagsColumn"],
        "useValueForTime": True,
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
