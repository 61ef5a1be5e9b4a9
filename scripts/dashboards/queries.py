"""InfluxQL that InfluxDB 1.x, 2.x and 3.x all answer, as targets of Grafana's InfluxDB source."""

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
    """One statement.

    Attributes:
        select: What is selected, in InfluxQL.
        source: Measurement, or a statement in brackets.
        over: Tags that a variable of the same name chooses from.
        where: Further conditions.
        by: Tags that make a series each.
        every: Length of a time bucket; None for one value over the whole range.
        alias: Name of a series, with `$tag_NAME` for its tags.
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
        """The statement, with Grafana's variables in it."""
        groups = [f"time({self.every})"] if self.every else []
        groups += [f'"{tag}"' for tag in self.by]
        end = f" GROUP BY {', '.join(groups)}" if groups else ""
        return self._head() + end + (" fill(none)" if self.every else "")

    @property
    def rows(self) -> str:
        """The newest rows as they are, newest first."""
        return f"{self._head()} ORDER BY time DESC LIMIT {NEWEST}"

    def of(self, outer: str, *by: str, every: str | None = None) -> str:
        """The statement with this one as its source: a sum over series, say."""
        groups = [f"time({every})"] if every else []
        groups += [f'"{tag}"' for tag in by]
        end = f" GROUP BY {', '.join(groups)}" if groups else ""
        # The outer time range is what bounds the buckets of 1.x; the inner one what is read.
        fill = " fill(none)" if every else ""
        return f"SELECT {outer} FROM ({self.text}) WHERE $timeFilter{end}{fill}"  # noqa: S608 - our own words, checked in as they are

    def _head(self) -> str:
        chosen = [f'"{tag}" =~ /^${tag}$/' for tag in self.over]
        wanted = " AND ".join([*chosen, *self.where, "$timeFilter"])
        return f'SELECT {self.select} FROM "{self.source}" WHERE {wanted}'  # noqa: S608 - as above


class InfluxTarget(Dataquery):
    """A statement of a panel, as Grafana keeps it."""

    def __init__(self, text: str, ref_id: str, result: str, alias: str) -> None:
        self.text, self.ref_id, self.result, self.alias = text, ref_id, result, alias

    def to_json(self) -> dict[str, Any]:
        """As Grafana's InfluxDB source reads it."""
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
        """The target."""
        return self._built
