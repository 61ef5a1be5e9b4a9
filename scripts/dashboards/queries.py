"""InfluxQL supported by InfluxDB 1.x, 2.x and 3.x, as targets of Grafana's InfluxDB source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef

SOURCE = DataSourceRef(type_val="influxdb", uid="${datasource}")
PER_PANEL = "$__interval"
NEWEST = 200


@dataclass(frozen=True)
class Query:
    """An InfluxQL query.

    Attributes:
        select: Selected expressions in InfluxQL.
        source: Measurement, or a subquery in brackets.
        over: Tags filtered by the dashboard variable of the same name.
        where: Further conditions.
        by: Tags to group by.
        every: Length of a time bucket; None for one value over the whole range.
        alias: Series name, with `$tag_NAME` for its tags.
    """

    select: str
    source: str
    over: tuple[str, ...] = ("host",)
    where: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    every: str | None = PER_PANEL
    alias: str = ""

    @property
    def text(self) -> str:
        """The query text with Grafana's variables."""
        groups = [f"time({self.every})"] if self.every else []
        groups += [f'"{tag}"' for tag in self.by]
        end = f" GROUP BY {', '.join(groups)}" if groups else ""
        return self._head() + end + (" fill(none)" if self.every else "")

    @property
    def rows(self) -> str:
        """The query text for the newest raw rows, newest first."""
        return f"{self._head()} ORDER BY time DESC LIMIT {NEWEST}"

    def of(self, outer: str, *by: str, every: str | None = None, where: str = "") -> str:
        """Return a query with this one as its subquery, such as a sum over series.

        Args:
            outer: Selected expressions.
            by: Tags to group by.
            every: Length of a time bucket; None for none.
            where: A condition on the fields of the subquery.
        """
        groups = [f"time({every})"] if every else []
        groups += [f'"{tag}"' for tag in by]
        end = f" GROUP BY {', '.join(groups)}" if groups else ""
        # InfluxDB 1.x takes the buckets from the outer time range and reads the inner one.
        fill = " fill(none)" if every else ""
        when = f"{where} AND $timeFilter" if where else "$timeFilter"
        return f"SELECT {outer} FROM ({self.text}) WHERE {when}{end}{fill}"  # noqa: S608 - constant text of this repository

    def _head(self) -> str:
        chosen = [f'"{tag}" =~ /^${tag}$/' for tag in self.over]
        conditions = " AND ".join([*chosen, *self.where, "$timeFilter"])
        return f'SELECT {self.select} FROM "{self.source}" WHERE {conditions}'  # noqa: S608 - as above


class InfluxTarget(Dataquery):
    """A panel's query in Grafana's format."""

    def __init__(self, text: str, ref_id: str, result: str, alias: str) -> None:
        self.text, self.ref_id, self.result, self.alias = text, ref_id, result, alias

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that Grafana's InfluxDB source reads."""
        content = {
            "refId": self.ref_id,
            "datasource": SOURCE,
            "query": self.text,
            "rawQuery": True,
            "resultFormat": self.result,
        }
        return content | ({"alias": self.alias} if self.alias else {})


class Target(Builder[InfluxTarget]):
    """Builds a target; `result` is "time_series" or "table"."""

    def __init__(self, text: str, ref_id: str, result: str, alias: str = "") -> None:
        self._built = InfluxTarget(text, ref_id, result, alias)

    def build(self) -> InfluxTarget:
        """Return the target."""
        return self._built
