"""Annotations of all panels of a dashboard, from rows of `event` and `alert`."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from scripts.dashboards.promql import columns_of
from scripts.dashboards.queries import PROMETHEUS, SOURCE, Query, Tag


class _EventTarget(model.AnnotationTarget):
    """A query whose rows become annotations; the SDK has only the type of Grafana's own source."""

    def __init__(self, query: Query, columns: dict[str, str]) -> None:
        super().__init__()
        self._query, self._columns = query, columns

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the editor of Grafana's InfluxDB source writes."""
        return {
            "refId": "Anno",
            "query": self._query.text,
            PROMETHEUS: columns_of(self._query),
            "rawQuery": True,
            "textEditor": True,
            "fromAnnotations": True,
            **self._columns,
        }


class _Built(Builder[model.AnnotationTarget]):
    def __init__(self, target: model.AnnotationTarget) -> None:
        self._target = target

    def build(self) -> model.AnnotationTarget:
        return self._target


def marks(
    name: str, color: str, query: Query, *, title: str, words: str, tags: str
) -> dashboard.AnnotationQuery:
    """Return an annotation query for all panels.

    Args:
        name: Name of its switch in the dashboard.
        color: Color of the annotations.
        query: Query of the rows.
        title: Column with the title.
        words: Column with the text.
        tags: Columns whose values become tags, separated by commas.
    """
    columns = {"titleColumn": title, "textColumn": words, "tagsColumn": tags}
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(color)
        .target(_Built(_EventTarget(query, columns)))
    )


def all_marks() -> list[dashboard.AnnotationQuery]:
    """Drifts, prices, software, faults and annotations from `event`, and incidents from `alert`."""
    kinds = (
        ("Drift", "orange", Tag("kind", "drift|anomaly", "=~"), "cause"),
        ("Prices", "blue", Tag("kind", "price"), "cause"),
        ("Software", "purple", Tag("kind", "software"), "cause"),
        ("Faults", "red", Tag("kind", "fault"), "cause"),
        ("Annotations", "green", Tag("kind", "annotation"), "detail"),
    )
    tags = '"kind", "host", "device", "probe", "service"'
    found = [
        marks(
            name,
            color,
            Query(f'"title", "{words}", {tags}', "event", where=(condition,)).rows,
            title="title",
            words=words,
            tags="kind,host,device,probe,service",
        )
        for name, color, condition, words in kinds
    ]
    fires = Query(
        '"summary", "cause", "severity", "rule", "host"',
        "alert",
        where=(Tag("state", "firing|resolved", "=~"),),
    )
    alerts = marks(
        "Alerts", "dark-red", fires.rows, title="rule", words="summary", tags="severity,rule,host"
    )
    return [*found, alerts]
