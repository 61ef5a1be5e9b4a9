"""The configuration: every key, its type, its default and its meaning, in one place."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from agent.config_alerting import AlertingConfig, DetectionConfig, MaintenanceConfig, RuleConfig
from agent.config_budget import BudgetConfig
from agent.config_carbon import CarbonConfig
from agent.config_fields import (
    IS_BARE_URL,
    Duration,
    Name,
    Section,
    Share,
    key,
    matching,
)
from agent.config_notifier import NotifierConfig
from agent.config_price import ElectricityConfig, PlanConfig
from agent.config_probe import AnyProbeConfig
from agent.config_service import ServiceConfig

MAX_PORT = 65535


class HostConfig(Section):
    """Who this host is in the series.

    Attributes:
        name: The tag `host`; by default the host's own name.
        labels: Further tags on every row, such as rack or team.
    """

    name: str | None = None
    labels: dict[Name, str] = Field(default_factory=dict)


class TelemetryConfig(Section):
    """How the devices' sensors are read.

    Attributes:
        every_s: Time between two samples of a sensor.
        aggregate_s: Time that a row of `device` stands for.
        deadline_s: How long a driver's call may take before its process is started anew.
        gpus: Whether GPUs are read.
        cpu: Whether the processors are a device; "auto": where there is no GPU.
        cpu_idle_w: Power of all processors at rest in W, where it has to be modelled.
        cpu_max_w: Power of all processors at full load in W, likewise.
    """

    every_s: Duration = key("every", 1.0)
    aggregate_s: Duration = key("aggregate", 10.0)
    deadline_s: Duration = key("deadline", 5.0)
    gpus: bool = True
    cpu: bool | Literal["auto"] = "auto"
    cpu_idle_w: float | None = Field(None, ge=0)
    cpu_max_w: float | None = Field(None, gt=0)


class ProbingConfig(Section):
    """What all probes share.

    Attributes:
        duty: The most of a device's time that goes into probing, over an hour.
    """

    duty: Share = 0.01


class StoreConfig(Section):
    """Where the series are kept and for how long.

    Rows are kept as they were measured for `retention`, then as one a minute, then as one an hour.
    Rows of `probe`, `cost`, `serving` and `allocation` are rarer: they stay as they are as long as
    rows of a minute do.
    Events, alerts and sweeps stay as long as rows of an hour do. What a sink has yet to be given
    outlives all these until `outbox_retention`, if that is longer.

    Attributes:
        path: The store's file; by default /var/lib/infercost/infercost.db.
        retention_s: How long rows stay as they were measured.
        rollup_1m_retention_s: Age up to which there is a row for each minute.
        rollup_1h_retention_s: Age up to which there is a row for each hour.
        outbox_retention_s: How long a row waits for a sink at most.
    """

    path: Path | None = None
    retention_s: Duration = key("retention", 7 * 86400.0)
    rollup_1m_retention_s: Duration = key("rollup_1m_retention", 30 * 86400.0)
    rollup_1h_retention_s: Duration = key("rollup_1h_retention", 1095 * 86400.0)
    outbox_retention_s: Duration = key("outbox_retention", 180 * 86400.0)


class SinkConfig(Section):
    """One database that the series are pushed to.

    Attributes:
        name: Commands and faults call it so.
        api: "v2" for InfluxDB 2.x, 3.x and VictoriaMetrics, "v1" for InfluxDB 1.x.
        url: Address of the server, without user and query.
        org: Organization (v2).
        bucket: Bucket, or database of 3.x (v2).
        database: Database (v1).
        retention_policy: Retention policy (v1); the database's default if absent.
        user: User (v1).
        token_file: File with a token that may write (v2).
        token_credential: Name of the systemd credential with that token.
        password_file: File with the user's password (v1).
        password_credential: Name of the systemd credential with that password.
        ca_file: Certificates of an authority of your own, for https.
        from_beginning: Whether a new sink gets what is stored already.
        proxy: URL of an HTTP proxy to go through; the environment's are not used.
        batch_points: Most points of a request; fewer after a failure, until the server keeps up.
        backlog: What leaves first after an outage: the oldest, or the newest of what is neither a
            device's nor the agent's rows.
        drain_points_per_s: How fast a backlog leaves beside live points, at most.
        max_backlog_points: The most points that wait; beyond it the oldest device rows are thinned
            to one a minute, then the oldest dropped, and counted.
        flush_every_s: Time between two requests while there is no backlog.
        timeout_s: Of each step of a request.
    """

    name: Name = "influxdb"
    api: Literal["v1", "v2"]
    # Without a query: a key in it would be in every text that names the sink.
    url: Annotated[str, IS_BARE_URL]
    org: str = ""
    bucket: str | None = None
    database: str | None = None
    retention_policy: str | None = None
    user: str | None = None
    token_file: Path | None = None
    token_credential: Name | None = None
    password_file: Path | None = None
    password_credential: Name | None = None
    ca_file: Path | None = None
    from_beginning: bool = True
    proxy: Annotated[str, matching(r"^https?://[^/@\s]+/?$")] | None = None
    batch_points: int = Field(5000, ge=1, le=50_000)
    backlog: Literal["in_order", "important_first"] = "in_order"
    drain_points_per_s: int = Field(100_000, ge=10, le=10_000_000)
    max_backlog_points: int = Field(20_000_000, ge=1000)
    flush_every_s: Duration = key("flush_every", 10.0)
    timeout_s: Duration = key("timeout", 10.0)

    @model_validator(mode="after")
    def _needs_of_the_api(self) -> SinkConfig:
        needed, foreign = (
            ("bucket", ("database", "retention_policy", "user"))
            if self.api == "v2"
            else ("database", ("bucket", "token_file", "token_credential"))
        )
        if getattr(self, needed) is None:
            raise ValueError(f'api = "{self.api}" needs {needed}')
        for name in foreign:
            if getattr(self, name) is not None:
                raise ValueError(f'{name} is not for api = "{self.api}"; remove it')
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        if self.password_file and self.password_credential:
            raise ValueError("give password_file or password_credential, not both")
        if (self.password_file or self.password_credential) and self.user is None:
            raise ValueError("a password needs its user; add user")
        return self


class HttpConfig(Section):
    """Who may ask the daemon itself over HTTP, for `/healthz` and `/metrics`; nobody by default.

    Attributes:
        listen: IP address and port, such as "127.0.0.1:9101"; port 0 takes any that is free.
        allow_remote: Whether an address may be listened on that other hosts reach: what is shown
            there is shown to whoever asks.
        window_s: How far back `/metrics` looks for the newest value of each series.
        max_series: How many it shows; what is more is counted.
    """

    listen: str | None = Field(None, max_length=80)
    allow_remote: bool = False
    window_s: Duration = key("window", 900.0, le=86400)
    max_series: int = Field(5000, ge=100, le=50_000)

    @model_validator(mode="after")
    def _listens_where_it_may(self) -> HttpConfig:
        address = self.address
        if address is not None and not (self.allow_remote or ip_address(address[0]).is_loopback):
            raise ValueError(
                f"listen = {self.listen!r} is open to other hosts; write a loopback address, or"
                " allow_remote = true"
            )
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """IP address and port to listen on; None for not at all.

        Raises:
            ValueError: `listen` is no such thing.
        """
        if self.listen is None:
            return None
        host, _, port = self.listen.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        try:
            is_good = ip_address(bare).version == (4 if bare == host else 6)
        except ValueError:
            is_good = False
        if not (is_good and "%" not in bare and port.isascii() and port.isdigit()) or (
            int(port) > MAX_PORT
        ):
            raise ValueError(
                'listen is an IP address and a port, such as "127.0.0.1:9101" or "[::1]:9101"'
            )
        return bare, int(port)


class Config(Section):
    """Everything an operator can say, frozen."""

    host: HostConfig = HostConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    probing: ProbingConfig = ProbingConfig()
    probe: tuple[AnyProbeConfig, ...] = ()
    service: tuple[ServiceConfig, ...] = ()
    price: tuple[PlanConfig, ...] = ()
    electricity: ElectricityConfig | None = None
    carbon: CarbonConfig | None = None
    budget: tuple[BudgetConfig, ...] = Field((), max_length=64)
    store: StoreConfig = StoreConfig()
    sink: tuple[SinkConfig, ...] = ()
    detection: DetectionConfig = DetectionConfig()
    alerting: AlertingConfig = AlertingConfig()
    rule: tuple[RuleConfig, ...] = ()
    maintenance: tuple[MaintenanceConfig, ...] = ()
    notifier: tuple[NotifierConfig, ...] = ()
    http: HttpConfig = HttpConfig()


# What `infercost run` does on a host where nobody has configured anything yet.
TRY_OUT = Config.model_validate(
    {"probing": {"duty": 1}, "probe": [{"name": "transformer", "every": "1m", "when_busy": "run"}]}
)
