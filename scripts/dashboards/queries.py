"""InfluxQL supported by InfluxDB 1.x, 2.x and 3.x, as targets of Grafana's InfluxDB source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef

SOURCE = DataSourceRef(type_val="influxdb", uid="${datasource}")
PER_PANEL = "$__interval"
NEWEST = 200
# Key of a target with the names of its columns and their PromQL.
PROMETHEUS = "prometheus"
Columns = Sequence[tuple[str, str]]
# A device without a row for this long is not there now.
NOW = "2m"


class Tag(NamedTuple):
    """A condition on a tag, in both languages: = or != a text, or =~ one of several, with | between."""

    name: str
    text: str
    sign: str = "="

    @property
    def influxql(self) -> str:
        """The condition in InfluxQL."""
        text = f"/^({self.text})$/" if self.sign == "=~" else f"'{self.text}'"
        return f'"{self.name}" {self.sign} {text}'


class Known(NamedTuple):
    """A condition that a row has a numeric field. In PromQL it is none: a counter that has it counts only these."""

    field: str

    @property
    def influxql(self) -> str:
        """The condition in InfluxQL, which compares nothing with NULL."""
        return f'("{self.field}" >= 0 OR "{self.field}" < 0)'


# The last on a field, in InfluxQL only.
Condition = Tag | Known | str


@dataclass(frozen=True)
class Query:
    """A query, of which both languages are written.

    Attributes:
        select: Selected expressions, with functions of InfluxQL.
        source: Measurement, or a subquery.
        over: Tags filtered by the dashboard variable of the same name.
        where: Further conditions.
        by: Tags to group by.
        every: Length of a time bucket; None for one value over the whole range.
        alias: Series name, with `$tag_NAME` for its tags.
        since: Age up to which rows count, whatever the dashboard's time range; empty for that range.
        is_rows: Whether it is of the newest raw rows, newest first.
        whole: The InfluxQL in place of all of these.
        prometheus: PromQL of each column by its name, where it cannot be translated; empty for none.
    """

    select: str
    source: str | Query
    over: tuple[str, ...] = ("host",)
    where: tuple[Condition, ...] = ()
    by: tuple[str, ...] = ()
    every: str | None = PER_PANEL
    alias: str = ""
    since: str = ""
    is_rows: bool = False
    whole: str = ""
    prometheus: Mapping[str, str] | None = None

    @classmethod
    def written(cls, whole: str, prometheus: Mapping[str, str], alias: str = "") -> Query:
        """Return a query of complete InfluxQL and PromQL."""
        return cls("", "", alias=alias, whole=whole, prometheus=prometheus)

    @property
    def text(self) -> str:
        """The InfluxQL, with Grafana's variables."""
        if self.whole:
            return self.whole
        # InfluxDB 1.x takes the buckets from the outer time range and reads the inner one.
        source = f"({self.source.text})" if isinstance(self.source, Query) else f'"{self.source}"'
        when = f"time > now() - {self.since}" if self.since else "$timeFilter"
        chosen = [f'"{tag}" =~ /^${tag}$/' for tag in self.over]
        where = [one if isinstance(one, str) else one.influxql for one in self.where]
        conditions = " AND ".join([*chosen, *where, when])
        head = f"SELECT {self.select} FROM {source} WHERE {conditions}"  # noqa: S608 - constant text of this repository
        if self.is_rows:
            return f"{head} ORDER BY time DESC LIMIT {NEWEST}"
        groups = [f"time({self.every})"] if self.every else []
        groups += [f'"{tag}"' for tag in self.by]
        end = f" GROUP BY {', '.join(groups)}" if groups else ""
        return head + end + (" fill(none)" if self.every else "")

    @property
    def rows(self) -> Query:
        """The query of the newest raw rows."""
        return replace(self, is_rows=True)

    def of(
        self, outer: str, *by: str, every: str | None = None, where: str = "", alias: str = ""
    ) -> Query:
        """Return a query with this one as its subquery, such as a sum over series.

        Args:
            outer: Selected expressions.
            by: Tags to group by.
            every: Length of a time bucket; None for none.
            where: A condition on the fields of the subquery.
            alias: Series name.
        """
        conditions = (where,) if where else ()
        return Query(outer, self, (), conditions, by, every, alias, self.since)


def assumed_prices() -> Query:
    """Return the query of the number of devices whose price is an assumed one."""
    rows = Query(
        'last("price_assumed") AS "newest"',
        "device",
        over=("host", "currency"),
        where=('"price_assumed" = true',),
        by=("host", "device"),
        every=None,
        since=NOW,
    )
    series = 'costprobe_device_price_assumed{host=~"$host",currency=~"$currency"}'
    promql = f"count(max by (host, device) (last_over_time({series}[{NOW}])))"
    return replace(rows.of('count("newest")'), prometheus={"": promql})


class InfluxTarget(Dataquery):
    """A panel's query in Grafana's format; `promql` is of the other edition, None if it has none."""

    def __init__(self, query: Query, ref_id: str, result: str, promql: Columns | None) -> None:
        self.query, self.ref_id, self.result, self.promql = query, ref_id, result, promql

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that Grafana's InfluxDB source reads, and what the other edition is made of."""
        content = {
            "refId": self.ref_id,
            "datasource": SOURCE,
            "query": self.query.text,
            "rawQuery": True,
            "resultFormat": self.result,
            PROMETHEUS: self.promql,
        }
        return content | ({"alias": self.query.alias} if self.query.alias else {})


class Target(Builder[InfluxTarget]):
    """Builds a target; `result` is "time_series" or "table"."""

    def __init__(self, query: Query, ref_id: str, result: str, promql: Columns | None) -> None:
        self._built = InfluxTarget(query, ref_id, result, promql)

    def build(self) -> InfluxTarget:
        """Return the target."""
        return self._built
