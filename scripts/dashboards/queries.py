"""InfluxQL supported by InfluxDB 1.x, 2.x and 3.x, as targets of Grafana's InfluxDB source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef

SOURCE = DataSourceRef(type_val="influxdb", uid="${datasource}")
PER_PANEL = "$__interval"
NEWEST = 200
# Key of a target with the PromQL of its columns.
PROMETHEUS = "prometheus"
# A device without a row for this long is not there now.
NOW = "2m"
# Whole boards: the power of a part of a board is in the board's.
BOARDS = ("\"kind\" != 'mig'",)


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
        since: Age up to which rows count, whatever the dashboard's time range; empty for that range.
        whole: The InfluxQL in place of all of these.
        prometheus: PromQL of each column by its name, where it cannot be translated; empty for none.
    """

    select: str
    source: str
    over: tuple[str, ...] = ("host",)
    where: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    every: str | None = PER_PANEL
    alias: str = ""
    since: str = ""
    whole: str = ""
    prometheus: Mapping[str, str] | None = None

    @classmethod
    def written(cls, whole: str, prometheus: Mapping[str, str] | None, alias: str = "") -> Query:
        """Return a query of complete InfluxQL and PromQL."""
        return cls("", "", alias=alias, whole=whole, prometheus=prometheus)

    @property
    def when(self) -> str:
        """The condition on the time."""
        return f"time > now() - {self.since}" if self.since else "$timeFilter"

    @property
    def text(self) -> str:
        """The query text with Grafana's variables."""
        if self.whole:
            return self.whole
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
        when = f"{where} AND {self.when}" if where else self.when
        return f"SELECT {outer} FROM ({self.text}) WHERE {when}{end}{fill}"  # noqa: S608 - constant text of this repository

    def _head(self) -> str:
        chosen = [f'"{tag}" =~ /^${tag}$/' for tag in self.over]
        conditions = " AND ".join([*chosen, *self.where, self.when])
        return f'SELECT {self.select} FROM "{self.source}" WHERE {conditions}'  # noqa: S608 - as above


def newest(
    field: str,
    source: str,
    over: tuple[str, ...],
    by: tuple[str, ...],
    where: tuple[str, ...] = (),
) -> Query:
    """Return the query of a field's newest values, as the column `newest`, whatever the time range."""
    select = f'last("{field}") AS "newest"'
    return Query(select, source, over=over, where=where, by=by, every=None, since=NOW)


def assumed_prices() -> tuple[str, str, str]:
    """Return the queries of the number of devices whose price is an assumed one."""
    over = ("host", "currency")
    is_assumed = ('"price_assumed" = true',)
    rows = newest("price_assumed", "device", over, ("host", "device"), where=is_assumed)
    series = 'costprobe_device_price_assumed{host=~"$host",currency=~"$currency"}'
    promql = f"count(max by (host, device) (last_over_time({series}[{NOW}])))"
    return rows.of('count("newest")'), "", promql


class InfluxTarget(Dataquery):
    """A panel's query in Grafana's format."""

    def __init__(
        self,
        text: str,
        ref_id: str,
        result: str,
        alias: str,
        prometheus: Mapping[str, str] | None,
    ) -> None:
        self.text, self.ref_id, self.result, self.alias = text, ref_id, result, alias
        self.prometheus = prometheus

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that Grafana's InfluxDB source reads; PROMETHEUS is for the other edition."""
        content = {
            "refId": self.ref_id,
            "datasource": SOURCE,
            "query": self.text,
            "rawQuery": True,
            "resultFormat": self.result,
        }
        content |= {"alias": self.alias} if self.alias else {}
        return content | ({} if self.prometheus is None else {PROMETHEUS: self.prometheus})


class Target(Builder[InfluxTarget]):
    """Builds a target; `result` is "time_series" or "table"."""

    def __init__(
        self,
        text: str,
        ref_id: str,
        result: str,
        alias: str = "",
        prometheus: Mapping[str, str] | None = None,
    ) -> None:
        self._built = InfluxTarget(text, ref_id, result, alias, prometheus)

    def build(self) -> InfluxTarget:
        """Return the target."""
        return self._built
