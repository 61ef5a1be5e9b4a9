"""The database with the rows of all hosts: the keys of [fleet] that say how it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from costprobe.adapters.net.settings import (
    KEY_HEADER,
    CaFile,
    Headers,
    KeyCredential,
    KeyFile,
    KeyHeader,
    TokenCredential,
    TokenFile,
    check_headers,
)
from costprobe.core.config.fields import IS_BARE_URL, Duration, Label, Name, Section, key, matching

_TENANT = matching(r"[A-Za-z0-9_.:|-]{1,150}", "a tenant id, such as 42, 42:7 or team-a")
# Stands for the name of a host in `host_url`.
HOST_MARK: Final = "{host}"
_HOST_URL = matching(
    r"https?://[A-Za-z0-9._-]*\{host\}[A-Za-z0-9._-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?",
    'an address with {host} as the name of the host, such as "http://{host}:9470/"',
)


class FleetConfig(Section):
    """The database with the rows of all hosts."""

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
    headers: Headers = Field(default_factory=dict)
    key_file: KeyFile = None
    key_credential: KeyCredential = None
    key_header: KeyHeader = KEY_HEADER
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
    password_file: Path | None = Field(
        None,
        description="File with the user's password.",
        examples=["/etc/costprobe/fleet.password"],
    )
    token_file: TokenFile = None
    token_credential: TokenCredential = None
    ca_file: CaFile = None
    host_url: Annotated[str, _HOST_URL] | None = Field(
        None,
        description=(
            "Address of the dashboard of a host, with {host} for its name: `costprobe fleet dashboard`"
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
    max_groups: int = Field(
        100_000,
        ge=100,
        le=400_000,
        description="Most groups of an answer, such as devices; beyond it a command fails.",
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
        if sum(map(bool, (self.user, self.token_file, self.token_credential))) > 1:
            raise ValueError("give user, token_file or token_credential, one of them")
        if self.password_file and self.user is None:
            raise ValueError("password_file needs a user; add user")
        check_headers(self)
        return self
