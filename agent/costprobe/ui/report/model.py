"""The content of a report: figures of one host in one period, independent of the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costprobe.savings.hosted_apis import HostingChoice
from costprobe.savings.savings import Answer
from costprobe.spend.budget import BudgetStatus
from costprobe.spend.query import KeyAllocation
from costprobe.spend.server import ServerOthers
from costprobe.ui.host_overview import Overview
from costprobe.unit_costs.compare import Group, LeftOut


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of money and its device.

    Attributes:
        name: Name of the device.
        amount: Currency units, exact.
    """

    name: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Use:
    """A share of the allocated cost: a service, or idle time.

    Attributes:
        service: Name of the service; empty for cost without a service.
        part: busy, idle, held, probing or unallocated.
        cost: Currency units, exact.
    """

    service: str
    part: str
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Bucket:
    """One step of a series over time.

    Attributes:
        time_ns: UTC ns of its start.
        value: In the unit of the series.
    """

    time_ns: int
    value: float


@dataclass(frozen=True, slots=True)
class Spend:
    """Cost of the devices, in one currency.

    Attributes:
        currency: ISO 4217 code; "?" if there is no price.
        total: Cost of all rows in the period.
        coverage: Share of the period that rows cover, over the devices with a row in it.
        before: Total of the preceding period of equal length; None if it has no row.
        coverage_before: Share of the preceding period that rows cover.
        per_hour: Cost per covered hour of the devices that are known in both periods; None if none is.
        per_hour_before: The same in the preceding period.
        by_device: Cost per device, the largest first; they add up to the total.
        by_day: Cost per day, in UTC.
        by_use: Allocated cost, the largest first; empty if no service is configured.
        by_label: Cost per value of the report's label, the largest first, with the empty name for
            cost without it; they add up to the total. Empty for a report without a label.
    """

    currency: str
    total: Decimal
    coverage: float
    before: Decimal | None
    coverage_before: float | None
    per_hour: float | None
    per_hour_before: float | None
    by_device: Sequence[Amount]
    by_day: Sequence[Bucket]
    by_use: Sequence[Use]
    by_label: Sequence[Amount] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Energy and emissions of the devices; None if unknown.

    Attributes:
        energy_j: Joules at the devices.
        energy_coverage: Share of the period that its rows cover, over the devices with energy.
        carbon_g: Grams of carbon dioxide equivalent, of the rows whose intensity was known.
        carbon_coverage: Share of the time with known energy that these rows cover.
    """

    energy_j: float | None
    energy_coverage: float | None
    carbon_g: float | None
    carbon_coverage: float | None


@dataclass(frozen=True, slots=True)
class Trend:
    """Cost per inference of a model over time.

    Attributes:
        name: Display name: probe or service with its model.
        basis: probe or serving.
        device: Name of its device.
        subject: Name of its probe or service.
        currency: ISO 4217 code.
        buckets: Currency for 1,000 inferences, in the order of time.
        before: Median of the preceding period of equal length; None if unknown.
        now: Median of the period.
    """

    name: str
    basis: str
    device: str
    subject: str
    currency: str
    buckets: Sequence[Bucket]
    before: float | None
    now: float


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """An event, and its cause.

    Attributes:
        time_ns: UTC ns at which it was detected.
        since_ns: UTC ns at which it began.
        kind: drift, anomaly, price, annotation, software or fault.
        severity: info, warning or critical.
        subject: The probe, service or device.
        devices: Devices with the same change.
        title: One line.
        detail: Description, including the causes.
        cause: Name of the first cause; empty if unknown.
        before: Value before; empty if there is none.
        after: Value after.
        change_pct: Change in percent; None if it is not a quantity.
        occurrences: Number of equal events in the period.
        named: Name of the probe or service; empty for devices or the host.
    """

    time_ns: int
    since_ns: int
    kind: str
    severity: str
    subject: str
    devices: tuple[str, ...]
    title: str
    detail: str
    cause: str
    before: str
    after: str
    change_pct: float | None
    occurrences: int
    named: str


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a device, and its source.

    Attributes:
        device: Name of the device.
        model: The vendor's name of it.
        plan: Kind of the plan; empty if it has no price.
        currency: ISO 4217 code.
        price_rate_per_h: Currency for one hour of the device.
        source: Source of the price, as text.
        assumed: Whether it is an unconfirmed list price.
        stale: Whether its feed has stopped updating.
        electricity_included: Whether the price includes electricity.
        electricity_per_kwh: Additional price per kilowatt-hour, PUE included; None if it is part
            of the price, or there is no tariff.
    """

    device: str
    model: str
    plan: str
    currency: str
    price_rate_per_h: Decimal
    source: str
    assumed: bool
    stale: bool
    electricity_included: bool
    electricity_per_kwh: Decimal | None


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a host.

    Attributes:
        host: Name of the host.
        since_ns: UTC ns at which the period begins.
        until_ns: UTC ns at which it ends.
        made_ns: UTC ns at which it was generated.
        spend: One entry per currency; currencies are never added.
        drawn: Energy and emissions.
        models: Comparable models, the cheapest first.
        left_out: Models that cannot be compared, with reasons.
        trends: Cost over time of each model on each device.
        overview: Costs, change and alerts at the end of the period.
        hardware: Product name of each device.
        changes: Changes, the newest first.
        more_changes: Changes that are not listed.
        savings: The supplies of each workload, the largest saving first.
        budgets: Present status of the budgets, with their forecasts.
        prices: Prices in force.
        label: Label that spend is divided by; empty for none.
        hosting: Services beside the configured hosted models.
        tenants: The cost of tenants, one entry per currency; empty if services have none.
        server: What the server used beside its devices; None if that is never known.
    """

    host: str
    since_ns: int
    until_ns: int
    made_ns: int
    spend: Sequence[Spend]
    drawn: Drawn
    models: Sequence[Group]
    left_out: Sequence[LeftOut]
    trends: Sequence[Trend]
    overview: Overview
    hardware: Mapping[str, str]
    changes: Sequence[ReportedChange]
    more_changes: int
    savings: Sequence[Answer]
    budgets: Sequence[BudgetStatus]
    prices: Sequence[Price]
    label: str = ""
    hosting: Sequence[HostingChoice] = ()
    tenants: Sequence[KeyAllocation] = ()
    server: ServerOthers | None = None
