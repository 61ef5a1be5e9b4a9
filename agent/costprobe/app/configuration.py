"""The root model of the configuration, with its sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from costprobe.adapters.catalogue.files import hosted_models
from costprobe.adapters.fleet.watch_settings import FleetSection
from costprobe.adapters.kubernetes.settings import KubernetesConfig
from costprobe.adapters.net.http_settings import HttpConfig
from costprobe.adapters.notifiers.registry import NOTIFIERS
from costprobe.adapters.probing.settings import AnyProbeConfig, ProbingConfig
from costprobe.adapters.sensors.protocol.messages import SensorSettings
from costprobe.adapters.sensors.settings import TelemetryConfig
from costprobe.adapters.serving.device_checks import service_problems
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.sinks.registry import SINKS
from costprobe.adapters.sinks.settings import SinkConfig
from costprobe.adapters.storage.settings import StoreConfig
from costprobe.app.configuration_checks import (
    budget_problems,
    currency_problems,
    label_problems,
    maintenance_problems,
    notifier_problems,
    plan_problems,
    workload_problems,
)
from costprobe.core.config.kinds import union_of_kinds
from costprobe.core.config.load import load_file, parse_text, validate_tables
from costprobe.core.config.root import RootSection
from costprobe.core.host import HostConfig
from costprobe.domain.advice.api_settings import ApiConfig, api_problems
from costprobe.domain.advice.settings import WorkloadConfig
from costprobe.domain.alerting.notifier_settings import NotifierConfig
from costprobe.domain.alerting.rules.fault import FLEET_LABELS
from costprobe.domain.alerting.rules.registry import RULES
from costprobe.domain.alerting.rules.rule import RuleConfig
from costprobe.domain.alerting.settings import AlertingConfig, MaintenanceConfig
from costprobe.domain.costing.budgets.settings import BudgetConfig
from costprobe.domain.costing.serving.price_file_settings import (
    PriceFileConfig,
    price_file_problems,
)
from costprobe.domain.detection.settings import DetectionConfig
from costprobe.domain.pricing.carbon import CarbonConfig
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.registry import PLANS
from costprobe.domain.pricing.tariff import ElectricityConfig

# The tables of several kinds, as the registries list them when this module is imported.
if TYPE_CHECKING:
    AnyNotifier = NotifierConfig
    AnyPlan = Plan
    AnyRule = RuleConfig
    AnySinkConfig = SinkConfig
else:
    AnyNotifier = union_of_kinds({name: kind.config for name, kind in NOTIFIERS.items()}, "kind")
    AnyPlan = union_of_kinds(PLANS, "plan")
    AnyRule = union_of_kinds({name: kind.config for name, kind in RULES.items()}, "kind")
    AnySinkConfig = union_of_kinds({api: kind.config for api, kind in SINKS.items()}, "api")


class Config(RootSection):
    """The whole configuration file."""

    host: HostConfig = HostConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    probing: ProbingConfig = ProbingConfig()
    probe: tuple[AnyProbeConfig, ...] = ()
    service: tuple[ServiceConfig, ...] = ()
    kubernetes: KubernetesConfig | None = None
    price: tuple[AnyPlan, ...] = ()
    electricity: ElectricityConfig | None = None
    carbon: CarbonConfig | None = None
    workload: tuple[WorkloadConfig, ...] = Field((), max_length=64)
    api: tuple[ApiConfig, ...] = Field((), max_length=32)
    price_file: tuple[PriceFileConfig, ...] = Field((), max_length=16)
    budget: tuple[BudgetConfig, ...] = Field((), max_length=64)
    store: StoreConfig = StoreConfig()
    sink: tuple[AnySinkConfig, ...] = ()
    detection: DetectionConfig = DetectionConfig()
    alerting: AlertingConfig = AlertingConfig()
    rule: tuple[AnyRule, ...] = ()
    maintenance: tuple[MaintenanceConfig, ...] = ()
    notifier: tuple[AnyNotifier, ...] = ()
    http: HttpConfig = HttpConfig()
    fleet: FleetSection | None = None

    @property
    def sensor_settings(self) -> SensorSettings:
        """What the sensor child reads; the time of processes only if a service names its own."""
        has_processes = any(service.processes for service in self.service)
        return self.telemetry.sensor_settings(processes=has_processes)

    @property
    def longest_window_s(self) -> float:
        """Length of the longest window over which cost is allocated, in s; 0 without any."""
        windows_s = [service.window_s for service in self.service]
        if self.kubernetes is not None:
            windows_s.append(self.kubernetes.window_s)
        return max(windows_s, default=0.0)

    def cross_field_problems(self) -> Iterator[str]:
        """Yield the errors across tables, one line each: `key.path: what is wrong and how to fix it`."""
        yield from super().cross_field_problems()
        yield from currency_problems(self.price, self.electricity)
        yield from plan_problems(self.price)
        yield from budget_problems(self.budget, self.rule, self.price, self.service)
        yield from workload_problems(self.workload, self.probe, self.service)
        if self.api:
            names = [service.name for service in self.service]
            yield from api_problems(self.api, names, hosted_models())
        yield from price_file_problems(self.price_file, len(self.service))
        yield from service_problems(self.service)
        yield from notifier_problems(self.rule, self.notifier)
        yield from maintenance_problems(self.maintenance)
        yield from label_problems(
            self.host,
            self.rule,
            self.notifier,
            self.maintenance,
            row_labels={
                *(label for part in (*self.probe, *self.service) for label in part.labels or ()),
                *(FLEET_LABELS if self.fleet is not None else ()),
            },
        )


def demo_config() -> Config:
    """Return the configuration of `costprobe run` on a host without a configuration file."""
    probe = {"name": "transformer", "every": "1m", "when_busy": "run"}
    return Config.model_validate({"probing": {"duty": 1}, "probe": [probe]})


def load(path: Path) -> Config:
    """Read and validate a configuration file.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has errors; each is listed.
    """
    return load_file(path, Config)


def parse(text: str, path: Path) -> Config:
    """Validate the text of a configuration file.

    Args:
        text: TOML.
        path: The file it is from, for errors.

    Raises:
        ConfigError: The text is not TOML, or has errors; each is listed.
    """
    return parse_text(text, path, Config)


def validated(raw: Mapping[str, Any], path: Path) -> Config:
    """Validate the tables of a parsed TOML file.

    Args:
        raw: The tables.
        path: The file they are from, for errors.

    Raises:
        ConfigError: The tables have errors; each is listed.
    """
    return validate_tables(raw, path, Config)
