"""A question to the database of a fleet and its answer, and the section [fleet].

A question is one number per group of series; the database aggregates the rows, and only the
groups come back. It is aggregated twice: over time, within each series, then across the series of
a group:

    # What each host cost, by currency.
    Question("device", "cost", "sum", by=("host", "currency"))
    # Median latency of each probe on each GPU.
    Question(
        "probe", "latency_p50_ms", "median", "median", by=("host", "device", "probe", "batch")
    )
    # Number of devices by GPU model.
    Question("device", "cost", "count", "count", by=("model",))
    # Cost of each service per day.
    Question("allocation", "cost", "sum", by=("service", "currency"), every_s=86_400)

[fleet] configures the database that holds the rows of all hosts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import CaFile, Password, WithHeaders, WithToken, one_form
from costprobe.core.config.fields import IS_BARE_URL, Duration, Label, Name, Section, key, matching
from costprobe.core.schema import SCHEMA

OverTime = Literal[
    "sum", "count", "mean", "median", "max", "share", "newest", "weighted", "covered"
]
WEIGHTED: Final = "weighted"
PAIRED: Final = "paired"
Across = Literal["sum", "count", "mean", "median", "max"]
# Tags that distinguish what is measured; the others describe it, and may change.
_IDENTITY: Final = ("device", "probe", "service", "served_model", "tenant", "part", "batch")
# Beyond every sum of measurements, far below where sums of floats overflow.
LARGEST: Final = 1e24
# Most remarks of a database in an answer, and their longest length.
_REMARKS_MAX: Final = 3
_REMARK_CHARS_MAX: Final = 200
_TENANT = matching(r"[A-Za-z0-9_.:|-]{1,150}", "a tenant id, such as 42, 42:7 or team-a")
# Stands for the name of a host in `host_url`.
HOST_MARK: Final = "{host}"
_HOST_URL = matching(
    r"https?://[A-Za-z0-9._-]*\{host\}[A-Za-z0-9._-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?",
    'an address with {host} as the name of the host, such as "http://{host}:9470/"',
)


@dataclass(frozen=True, slots=True)
class Question:
    """One number per group of series.

    Attributes:
        measurement: Series family, as in `core.schema`.
        field: Its numeric field; of `count` any field.
        over_time: Aggregation within a series. `sum`, `mean`, `median`, `max` of the values; `count`
            of the rows; `share`: the share of rows in which a field that is true or false is true;
            `newest`: UTC in s of the newest row; `covered`: number of buckets of
            `bucket_s` with a row; `weighted`: two numbers of the series that have `weight`, distinguished by
            a further tag: `weighted`, the sum times the mean of `weight`, and `paired`, the sum.
        across: Aggregation across the series of a group. A series is a host with the tags of what is
            measured: device, probe, service, model, tenant, part, batch.
        by: Tags and labels of the groups; an absent tag is the empty text.
        where: Tags and their values; the empty text for rows without the tag.
        present: Tags that rows must have.
        hosts: Only rows of these hosts; empty for all.
        weight: Field of the same rows, never negative, for `weighted`.
        bucket_s: Length of a bucket for `covered`, in s; spans must be multiples of it.
        part_of_s: Length of the period that the span is a part of, whose rows answer, in s; 0 for none.
        every_s: FleetAnswer for each interval of this length, in s; 0 for one of the whole span.
    """

    measurement: str
    field: str
    over_time: OverTime
    across: Across = "sum"
    by: tuple[str, ...] = ()
    where: Mapping[str, str] = dataclasses.field(default_factory=dict)
    present: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    weight: str = ""
    bucket_s: int = 3600
    part_of_s: int = 0
    every_s: int = 0

    @property
    def is_additive(self) -> bool:
        """Whether the answers of parts of a span add up to that of the span."""
        return self.across == "sum" and self.over_time in (
            "sum",
            "count",
            "weighted",
            "covered",
        )

    @property
    def is_divisible(self) -> bool:
        """Whether the answers of parts of a span give that of the span: by their sum, or their largest."""
        is_largest = self.across == "max" and self.over_time == "max"
        return self.is_additive or is_largest or self.over_time == "newest"

    @property
    def identity(self) -> tuple[str, ...]:
        """The tags of a series, the group's included."""
        tags = SCHEMA[self.measurement].tags
        own = ("host", *(tag for tag in _IDENTITY if tag in tags))
        return (*own, *(tag for tag in self.by if tag not in own))


class GroupValue(NamedTuple):
    """The answer for one group.

    Attributes:
        tags: Values of `Question.by`, in its order; of `weighted` with a further one.
        value: The number; never NaN.
        time_ns: End of the interval of `every_s`, UTC in ns; that of the span without intervals.
    """

    tags: tuple[str, ...]
    value: float
    time_ns: int


def group_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags of an answer; half a character of UTF-16, which no file takes, is replaced.

    Raises:
        TypeError: One is no text.
    """
    if "".join(texts).isascii():
        return texts
    return tuple([text.encode(errors="replace").decode() for text in texts])


def remarks(texts: Iterable[object]) -> list[str]:
    """Return what a database says about its answer."""
    return [
        f"the database says: {outside_text(str(text), _REMARK_CHARS_MAX)}"
        for text in islice(texts, _REMARKS_MAX)
    ]


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The answer of a database.

    Attributes:
        rows: The groups; of unknown order.
        problems: Why the answer is partial, one sentence each, printable; empty if it is complete.
    """

    rows: tuple[GroupValue, ...]
    problems: tuple[str, ...] = ()


class _Database(Section):
    """The first keys of [fleet]: keys of base classes come before its own, the last base's first."""

    kind: Literal["influxql", "victoriametrics", "prometheus"] = Field(
        description=(
            '"influxql" for InfluxDB 1.x, 2.x and 3.x; "victoriametrics" for hosts that push to'
            ' VictoriaMetrics; "prometheus" for any database with PromQL that scrapes the hosts\''
            " `/metrics`."
        ),
        examples=["influxql"],
    )
    url: Annotated[str, IS_BARE_URL] = Field(
        description=(
            "Address of the server, without user and query; with the path before `/query` or"
            " `/api/v1/query`, if it has one."
        ),
        examples=["http://influx.example.com:8086"],
    )


class FleetConfig(WithHeaders, WithToken, _Database):
    """The database with the rows of all hosts."""

    removed: ClassVar = {
        **one_form("password"),
        "max_groups": "an answer has at most 16 MiB and 500,000 values",
    }

    database: Label | None = Field(
        None,
        description=(
            "InfluxQL: database of 1.x and 3.x; of 2.x that of the DBRP mapping. VictoriaMetrics:"
            ' value of the label `db`, which writes of `api = "v1"` have.'
        ),
        examples=["costprobe"],
    )
    hourly_database: Label | None = Field(
        None,
        description=(
            "Database with the hourly rows of `costprobe influx setup`, for periods of more than"
            " two days; of VictoriaMetrics the label `db` of such recording rules."
        ),
        examples=["costprobe_hourly"],
    )
    retention_policy: Label | None = Field(
        None,
        description="InfluxQL: retention policy of `database`; by default its own.",
        examples=["autogen"],
    )
    tenant: Annotated[str, _TENANT] | None = Field(
        None,
        description=(
            "VictoriaMetrics cluster: account of the path `/select/ACCOUNT/prometheus`."
            " Prometheus: `X-Scope-OrgID` of Mimir, Cortex and Thanos."
        ),
        examples=["42"],
    )
    replica_labels: tuple[Name, ...] = Field(
        (),
        max_length=8,
        description=(
            "Labels that distinguish copies of the same series, which are counted once: those of"
            " replicated Prometheus servers."
        ),
        examples=[["replica"]],
    )
    user: Label | None = Field(None, description="User.", examples=["reader"])
    password: Password | None = Field(
        None,
        description="Location of the user's password.",
        examples=["file:/etc/costprobe/fleet.password"],
    )
    ca_file: CaFile = None
    host_url: Annotated[str, _HOST_URL] | None = Field(
        None,
        description=(
            "Address of the dashboard of a host, with {host} for its name: `costprobe dashboard --fleet`"
            " links to it."
        ),
        examples=["http://{host}:9470/"],
    )
    timeout_s: Duration = key(
        "timeout", 30.0, le=600, description="Longest time of one request to the database."
    )
    silent_after_s: Duration = key(
        "silent_after", 300.0, ge=120, description="A host without a row for so long is silent."
    )

    @model_validator(mode="after")
    def _belongs_together(self) -> FleetConfig:
        if self.kind == "influxql" and self.database is None:
            raise ValueError('kind "influxql" needs a database; add database = "costprobe"')
        if self.kind == "prometheus" and (self.database or self.hourly_database):
            raise ValueError('kind "prometheus" has no databases; remove database')
        if self.kind != "influxql" and self.retention_policy:
            raise ValueError('retention_policy belongs to kind "influxql"; remove it')
        if self.kind == "influxql" and (self.tenant or self.replica_labels):
            raise ValueError("tenant and replica_labels belong to PromQL; remove them")
        if self.user and self.token:
            raise ValueError("give user or token, one of them")
        if self.password and self.user is None:
            raise ValueError("password needs a user; add user")
        return self
