"""The root model of the configuration file with all sections, and checks across its tables.

Each check yields lines `key.path: what is wrong; the fix`. For a file with other errors the
tables contain only the valid keys: a required key may be None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from costprobe.adapters.http.settings import HttpConfig
from costprobe.adapters.kubernetes.api_server import KubernetesConfig
from costprobe.adapters.redfish.power import ServerPowerConfig
from costprobe.adapters.sensors.messages import SensorSettings
from costprobe.adapters.store.settings import StoreConfig
from costprobe.alerts.rules.budgets import BudgetRuleConfig
from costprobe.alerts.rules.faults import FLEET_LABELS, FaultRuleConfig
from costprobe.alerts.rules.kinds import RULES
from costprobe.alerts.rules.rule import SERIES_TAGS, RuleConfig
from costprobe.alerts.settings import SEVERITIES, AlertingConfig, MaintenanceConfig, matches
from costprobe.core.config.fields import HostConfig, union_of_kinds
from costprobe.core.config.load import load_file, parse_text, validate_tables
from costprobe.core.config.model import RootSection
from costprobe.core.outside import nearest
from costprobe.core.periods import minutes_of
from costprobe.core.schema import GROUP_TAGS, SCHEMA
from costprobe.delivery.apprise import CHATS, AppriseConfig, as_apprise
from costprobe.delivery.contract import NotifierConfig, SinkConfig
from costprobe.delivery.kinds import NOTIFIERS, SINKS
from costprobe.devices.settings import TelemetryConfig
from costprobe.drift.settings import DetectionConfig
from costprobe.fleet.settings import FleetSection
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.pricing.electricity import CarbonConfig, ElectricityConfig
from costprobe.pricing.plans import PLANS, Plan
from costprobe.probing.settings import AnyProbeConfig, CommonProbeConfig, ProbingConfig
from costprobe.savings.settings import ApiConfig, WorkloadConfig, api_problems
from costprobe.serving.settings import ServiceConfig, service_problems
from costprobe.spend.settings import BudgetConfig
from costprobe.unit_costs.settings import PriceFileConfig, price_file_problems

# The tables of several kinds, as `kinds` and `PLANS` list them when this module is imported.
if TYPE_CHECKING:
    AnyNotifier = NotifierConfig
    AnyPlan = Plan
    AnyRule = RuleConfig
    AnySinkConfig = SinkConfig
else:
    _notifiers = {name: kind.config for name, kind in NOTIFIERS.items()}
    AnyNotifier = Annotated[
        union_of_kinds(_notifiers | dict.fromkeys(CHATS, AppriseConfig), "kind"),
        BeforeValidator(as_apprise),
    ]
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
    server_power: ServerPowerConfig | None = None
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
        # Those of pods are found by the API server's ids.
        has_pods = self.kubernetes is not None and self.kubernetes.api_url is not None
        has_processes = has_pods or any(service.processes for service in self.service)
        return self.telemetry.sensor_settings(processes=has_processes)

    @property
    def longest_window_s(self) -> float:
        """Length of the longest window over which cost is allocated, in s; 0 without any."""
        windows_s = [service.window_s for service in self.service]
        if self.kubernetes is not None:
            windows_s.append(self.kubernetes.window_s)
        return max(windows_s, default=0.0)

    def named(self, names: Mapping[str, str]) -> Config:
        """Return the configuration with its devices by the names under which they stand now.

        Args:
            names: Names of devices by UUID.
        """

        def placed(devices: str | list[str] | tuple[str, ...]) -> Iterable[str]:
            if devices == "all":
                return devices
            return type(devices)(names.get(name, name) for name in devices)

        sections: dict[str, Sequence[CommonProbeConfig | ServiceConfig]] = {
            "probe": self.probe,
            "service": self.service,
        }
        return self.model_copy(
            update={
                key: tuple(
                    section.model_copy(update={"devices": placed(section.devices)})
                    for section in found
                )
                for key, found in sections.items()
            }
        )

    def cross_field_problems(self) -> Iterator[str]:
        """Yield the errors across tables, one line each: `key.path: what is wrong and how to fix it`."""
        yield from super().cross_field_problems()
        yield from _currency_problems(self.price)
        yield from _plan_problems(self.price)
        yield from _budget_problems(self.budget, self.rule, self.price, self.service)
        yield from _workload_problems(self.workload, self.probe, self.service)
        if self.api:
            names = [service.name for service in self.service if service.role in (None, "all")]
            yield from api_problems(self.api, names, hosted_models())
        yield from price_file_problems(
            self.price_file, sum(not one.is_part for one in self.service)
        )
        yield from service_problems(self.service)
        yield from _notifier_problems(self.rule, self.notifier)
        yield from _maintenance_problems(self.maintenance)
        yield from _label_problems(
            self.host,
            self.rule,
            self.notifier,
            self.maintenance,
            row_labels={
                *(label for part in (*self.probe, *self.service) for label in part.labels or ()),
                *(GROUP_TAGS if any(service.group for service in self.service) else ()),
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


def _currency_problems(plans: Sequence[Plan]) -> Iterator[str]:
    """Check that prices have the same currency, because they are added."""
    currencies = {plan.currency for plan in plans}
    if len(currencies) > 1:
        yield f"price: {' and '.join(sorted(currencies))} cannot be added; use one currency"


def _plan_problems(plans: Sequence[Plan]) -> Iterator[str]:
    """Check that no two plans apply to the same device from the same day."""
    first_index: dict[tuple[object, ...], int] = {}
    for index, plan in enumerate(plans):
        identity = (plan.device, plan.valid_from, plan.unit)
        if identity in first_index:
            yield (
                f"price[{index}].valid_from: price[{first_index[identity]}] applies from the same"
                " day to the same device; give each plan another day"
            )
        first_index[identity] = index


def _workload_problems(
    workloads: Sequence[WorkloadConfig],
    probes: Sequence[CommonProbeConfig],
    services: Sequence[ServiceConfig],
) -> Iterator[str]:
    """Check that workloads name probes and services that exist, and each of them once."""
    known = {"probe": [p.name for p in probes], "service": [s.name for s in services]}
    # A service with errors may lack its devices.
    served = {device: service.name for service in services for device in service.devices or ()}
    subjects: set[tuple[str, str]] = set()
    for index, workload in enumerate(workloads):
        for kind, name in (("probe", workload.probe), ("service", workload.service)):
            if name is not None and name not in known[kind]:
                similar = nearest(name, known[kind])
                fix = f'write "{similar}"' if similar else f"add a [[{kind}]] of that name"
                yield f'workload[{index}].{kind}: no [[{kind}]] is named "{name}"; {fix}'
        if workload.as_device in served:
            name = served[workload.as_device]
            yield f'workload[{index}].as_device: write service = "{name}", which uses this device'
        if workload.subject in subjects:
            kind = workload.subject[0]
            yield f"workload[{index}]: another [[workload]] has the same {kind}; remove one"
        subjects.add(workload.subject)


def _budget_problems(
    budgets: Sequence[BudgetConfig],
    rules: Sequence[RuleConfig],
    plans: Sequence[Plan],
    services: Sequence[ServiceConfig],
) -> Iterator[str]:
    """Check the currency and the service of budgets, which would otherwise always be zero."""
    priced = {plan.currency for plan in plans}
    limits: list[tuple[str, BudgetConfig | BudgetRuleConfig]] = [
        (f"rule[{index}]", rule)
        for index, rule in enumerate(rules)
        if isinstance(rule, BudgetRuleConfig)
    ]
    limits += [(f"budget[{index}]", budget) for index, budget in enumerate(budgets)]
    for key, limit in limits:
        if priced and limit.currency not in priced:
            yield (
                f"{key}.currency: prices are in {', '.join(sorted(priced))}, and {limit.currency}"
                " is never added to them; use the same currency"
            )
    names = sorted(service.name for service in services if service.name)
    fix = f"write one of {', '.join(names)}" if names else "add it as [[service]]"
    for index, budget in enumerate(budgets):
        if budget.service is not None and budget.service not in names:
            yield f"budget[{index}].service: unknown service {budget.service!r}; {fix}"


def _notifier_problems(
    rules: Sequence[RuleConfig], notifiers: Sequence[NotifierConfig]
) -> Iterator[str]:
    """Check that the notifiers of rules exist."""
    names = sorted(notifier.name for notifier in notifiers if notifier.name)
    fix = f"write one of {', '.join(names)}" if names else "add a [[notifier]]"
    for index, rule in enumerate(rules):
        for name in rule.notify or ():
            if name not in names:
                yield f"rule[{index}].notify: unknown notifier {name!r}; {fix}"


def _maintenance_problems(windows: Sequence[MaintenanceConfig]) -> Iterator[str]:
    """Check that each maintenance window has a minute in which no other silences its incidents."""
    effective = {
        index: minutes_of(window.days, window.start, window.end)
        for index, window in enumerate(windows)
        if window.days and window.start and window.end
    }
    covers: dict[int, list[int]] = {}
    # Of equal windows the last one is without effect.
    for index in reversed(effective):
        window = windows[index]
        wider = [
            other
            for other in effective
            if other not in {index, *covers}
            and windows[other].timezone == window.timezone
            and (windows[other].match or {}).items() <= (window.match or {}).items()
        ]
        if effective[index] <= set().union(*(effective[other] for other in wider)):
            covers[index] = [other for other in wider if effective[other] & effective[index]]
    for index in sorted(covers):
        others = " and ".join(f"maintenance[{other}]" for other in covers[index])
        yield (
            f"maintenance[{index}]: has no effect, because its incidents are silenced in all of its"
            f" hours by {others}; remove it, or change its hours or its match"
        )


def _label_problems(
    host: HostConfig | None,
    rules: Sequence[RuleConfig],
    notifiers: Sequence[NotifierConfig],
    maintenance: Sequence[MaintenanceConfig],
    row_labels: Collection[str] = (),
) -> Iterator[str]:
    """A pattern for a label that no series or incident has would never match."""
    label_names = {"host", *((host.labels if host else None) or ())}
    of_series = {*label_names, *row_labels, *SERIES_TAGS}
    of_incidents = of_series | {"rule", "severity"}
    for rule in rules:
        of_incidents |= set(rule.labels or ())
    for index, rule in enumerate(rules):
        known = {*label_names, *row_labels, *_tags_of(rule)}
        grouped = {*of_series, *(FLEET_LABELS if isinstance(rule, FaultRuleConfig) else ())}
        yield from _unknown(f"rule[{index}].match", rule.match, known)
        yield from _unknown(f"rule[{index}].group_by", rule.group_by, grouped)
    tables = [(f"notifier[{index}]", table.match) for index, table in enumerate(notifiers)]
    tables += [(f"maintenance[{index}]", table.match) for index, table in enumerate(maintenance)]
    for key, match in tables:
        yield from _unknown(f"{key}.match", match, of_incidents)
        severity = (match or {}).get("severity", "*")
        if not any(matches({"severity": severity}, {"severity": known}) for known in SEVERITIES):
            yield (
                f"{key}.match.severity: {severity!r} matches none; write one of"
                f" {', '.join(SEVERITIES)}"
            )


def _tags_of(rule: RuleConfig) -> set[str]:
    """Return the tags of the rows or events that a rule receives."""
    measurement = _measurement_of(rule)
    return set(SCHEMA[measurement].tags) if measurement in SCHEMA else {*SERIES_TAGS, "metric"}


def _measurement_of(rule: RuleConfig) -> str:
    kind = RULES.get(str(rule.kind))
    of_section = getattr(rule, "measurement", None)
    return str(of_section or getattr(kind and kind.rule, "measurement", ""))


def _unknown(key: str, names: Iterable[str] | None, known: Collection[str]) -> Iterator[str]:
    for name in names or ():
        if name not in known:
            suggestion = nearest(name, known)
            hint = (
                f'did you mean "{suggestion}"?'
                if suggestion
                else f"known here: {', '.join(sorted(known))}"
            )
            yield f"{key}.{name}: unknown label; {hint}"
