"""What a report says: figures of one host in one period, before they get a form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from agent.advising.hint import Hint, Unsaid
from agent.costing.compare import Group, LeftOut


@dataclass(frozen=True, slots=True)
class Amount:
    """Money of one thing.

    Attributes:
        name: What it was paid for.
        amount: Currency units, exact.
    """

    name: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Use:
    """What a service's work cost, or the time in which nothing worked.

    Attributes:
        service: Name of the service; empty for what is nobody's.
        part: busy, idle, held, probing or unallocated.
        amount: Currency units, exact.
    """

    service: str
    part: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Bucket:
    """One step of a series over time.

    Attributes:
        time_ns: UTC ns of its beginning.
        value: What was in it, in the unit of the series.
    """

    time_ns: int
    value: float


@dataclass(frozen=True, slots=True)
class Spend:
    """What the devices cost, in one currency.

    Attributes:
        currency: ISO 4217 code; "?" where no price tells it.
        total: All that is known to have been spent.
        before: The same of the period of the same length before; None where too little is known.
        by_device: Each device's part, the largest first; they add up to the total.
        by_day: What each day took, in UTC.
        by_use: What it was spent on, where services are watched; the largest first.
        covered_share: Part of the period's hours of which something is known.
    """

    currency: str
    total: Decimal
    before: Decimal | None
    by_device: Sequence[Amount]
    by_day: Sequence[Bucket]
    by_use: Sequence[Use]
    covered_share: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the devices drew and emitted; None where nothing is known.

    Attributes:
        energy_kwh: Kilowatt-hours at the devices.
        carbon_kg: Kilograms of carbon dioxide equivalent.
    """

    energy_kwh: float | None
    carbon_kg: float | None


@dataclass(frozen=True, slots=True)
class Trend:
    """How the cost of a model's inferences moved.

    Attributes:
        name: What people call the model as it is run.
        basis: probe or serving.
        device: Name of its device.
        subject: Name of its probe or service.
        currency: ISO 4217 code.
        buckets: Currency for 1,000 inferences, in the order of time.
        before: The same over the period of the same length before; None where not known.
        now: The same over the period.
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
class Change:
    """Something that happened, and why.

    Attributes:
        time_ns: UTC ns at which it was noticed.
        since_ns: UTC ns at which it began.
        kind: drift, anomaly, price, software or fault.
        severity: info, warning or critical.
        subject: What it is about.
        title: One line.
        detail: What is known of it, its causes among it.
        cause: The first cause in a word; empty where none is known.
        before: Value before; empty where there is none.
        after: Value after.
        change_pct: By how much it changed, in percent; None where it is no quantity.
        times: How often the same was said in the period.
    """

    time_ns: int
    since_ns: int
    kind: str
    severity: str
    subject: str
    title: str
    detail: str
    cause: str
    before: str
    after: str
    change_pct: float | None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where a budget stands and where it is heading.

    Attributes:
        name: Name of the budget.
        currency: ISO 4217 code.
        period: What it is for, in words.
        planned: Currency units of one period.
        spent: What this period has spent up to now.
        expected: What it will have spent at its end; None where too little is known.
        low: Lower end of the 80 % interval; None where nothing is expected.
        high: Upper end.
        method: How it was found and how much it knows, in words.
    """

    name: str
    currency: str
    period: str
    planned: Decimal
    spent: Decimal
    expected: Decimal | None
    low: Decimal | None
    high: Decimal | None
    method: str

    @property
    def is_over(self) -> bool:
        """Whether it is past what was planned, or heading there."""
        return max(self.spent, self.expected or self.spent) > self.planned


@dataclass(frozen=True, slots=True)
class Price:
    """What a device costs, and where that is from.

    Attributes:
        device: Name of the device.
        model: The vendor's name of it.
        plan: Kind of the plan; empty where nothing prices it.
        currency: ISO 4217 code.
        per_hour: Currency for one hour of the device.
        source: Where the price is from, in words.
        is_assumed: Whether it is a list price that nobody confirmed.
        is_stale: Whether its source has gone silent.
        electricity_included: Whether the price holds the electricity.
        electricity_per_kwh: What a kilowatt-hour costs besides, PUE included; None where it is in the
            price, or no tariff is known.
    """

    device: str
    model: str
    plan: str
    currency: str
    per_hour: Decimal
    source: str
    is_assumed: bool
    is_stale: bool
    electricity_included: bool
    electricity_per_kwh: Decimal | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that is reported of a host.

    Attributes:
        host: Name of the host.
        since_ns: UTC ns at which the period begins.
        until_ns: UTC ns at which it ends.
        made_ns: UTC ns at which it was asked for.
        spend: One for each currency, which are never added.
        drawn: Energy and emissions.
        models: Models whose costs compare, the cheapest first.
        left_out: Models that compare with none, and why.
        trends: How the cost of each moved.
        changes: What changed, the newest first.
        more_changes: Changes that are not listed.
        hints: What would cost less.
        unsaid: What could not be said, and what it would need.
        outlooks: Each budget's.
        prices: What was assumed.
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
    changes: Sequence[Change]
    more_changes: int
    hints: Sequence[Hint]
    unsaid: Sequence[Unsaid]
    outlooks: Sequence[Outlook]
    prices: Sequence[Price]
