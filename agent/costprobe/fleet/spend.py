"""What a fleet cost in a period: money, energy, carbon, idle share; its forecast and savings.

Spend is by any dimension of the fleet: sums over rows of `device` by group. The forecast of a
calendar period is from the cost of each hour. Savings are the devices that a group could do
without: how many the same work needs at a higher utilization.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from costprobe.adapters.databases.question import PAIRED, WEIGHTED, Question
from costprobe.core.periods import HOUR_NS, TimeSpan
from costprobe.core.records import NS_PER_S, natural
from costprobe.core.units import HOUR_S, MONTH_H
from costprobe.fleet.answers import FleetAnswers, started
from costprobe.spend.forecast import HourRate, PeriodSpend, remaining_hours, robust_forecast
from costprobe.spend.query import Group, cost_by, share_of
from costprobe.spend.settings import HISTORY_HOURS

# Largest rounding error of a sum, as a share of it, of a share, and of a number of devices.
_ROUNDING: Final = 1e-9

STEP_S: Final = 3600
# An hour in which so small a share of the devices around it has rows is no estimate of an hour.
_LEAST_SHARE: Final = 0.5
_AROUND_HOURS: Final = 12

_WHOLE: Final = {"basis": "serving", "served_model": ""}


class CurrencyCost(NamedTuple):
    """An amount in one currency.

    Attributes:
        currency: ISO 4217 code; empty without one.
        cost: Currency units.
        idle_share: Part of it that paid for idle time, 0 to 1; None if unknown.
    """

    currency: str
    cost: float
    idle_share: float | None


@dataclass(frozen=True, slots=True)
class FleetSpend:
    """What one group cost.

    Attributes:
        group: Values of the tags that the spend is divided by; empty for the total, and for the rest.
        costs: Amounts, the largest first.
        energy_j: Energy; None if unknown.
        carbon_g: Emissions in grams of CO2-equivalent; None if unknown.
        carbon_share: Share of the energy whose emissions are known; None if unknown.
        coverage: Share of the buckets of the period that have rows, over the series; None if unknown.
        series: Number of devices, of services on their hosts, or of tenants on theirs.
    """

    group: Group
    costs: tuple[CurrencyCost, ...]
    energy_j: float | None = None
    carbon_g: float | None = None
    carbon_share: float | None = None
    coverage: float | None = None
    series: int = 0


class DeviceSums(NamedTuple):
    """Sums over devices by group; those of money by group and currency."""

    cost: Mapping[Group, float]
    used: Mapping[Group, float]
    known: Mapping[Group, float]
    energy_j: Mapping[Group, float]
    carbon_g: Mapping[Group, float]
    carbon_energy_j: Mapping[Group, float]
    covered: Mapping[Group, float]
    devices: Mapping[Group, float]

    def spend(self, answers: FleetAnswers) -> list[FleetSpend]:
        """Return the spend of each group."""
        idle = _idle(self.used, self.known)
        return [
            FleetSpend(
                group=group,
                costs=costs,
                energy_j=self.energy_j.get(group),
                carbon_g=self.carbon_g.get(group),
                carbon_share=_share(self.carbon_energy_j.get(group), self.energy_j.get(group)),
                coverage=coverage_of(answers, self.covered.get(group), self.devices.get(group)),
                series=int(self.devices.get(group, 0)),
            )
            for group, costs in _by_currency(self.cost, idle).items()
        ]

    def over(self, *kept: int) -> DeviceSums:
        """Return the sums over all tags but those at some positions, and the currency.

        A device that is in several groups counts in each of them.
        """
        money = (_added(one, (*kept, -1)) for one in self[:3])
        return DeviceSums(*money, *(_added(one, kept) for one in self[3:]))


@dataclass(frozen=True, slots=True)
class FleetForecast(PeriodSpend):
    """The spend of a period, in one currency.

    Attributes:
        currency: ISO 4217 code.
        coverage: Share of the hours since the period began in which devices have rows, over the most devices of an
            hour; None before the first hour.
        left_out: Number of hours of the history in which too few devices had rows.
    """

    currency: str
    coverage: float | None
    left_out: int


@dataclass(frozen=True, slots=True)
class FleetSaving:
    """The devices of a group that are paid in one currency.

    Attributes:
        group: Values of the tags that the fleet is divided by.
        currency: ISO 4217 code.
        devices: Number of devices.
        utilization_share: Mean utilization, weighted by cost, 0 to 1.
        spare: Number of devices that the same work does not need at the target utilization.
        cost_per_month: Cost in the period, for a month of MONTH_H hours; gaps cost nothing.
        saving_per_month: Part of it for the spare devices.
    """

    group: Group
    currency: str
    devices: int
    utilization_share: float
    spare: int
    cost_per_month: float
    saving_per_month: float


class SpendByKey(NamedTuple):
    """The spend of a fleet.

    Attributes:
        total: What all devices cost.
        parts: The groups, the largest first.
        rest: What none of the groups cost; None where groups contain everything.
    """

    total: FleetSpend
    parts: tuple[FleetSpend, ...]
    rest: FleetSpend | None


def fleet_spend(answers: FleetAnswers, by: str) -> SpendByKey:
    """Return what a fleet cost.

    Args:
        answers: The database, and the period.
        by: `host`, `device`, `gpu_model`, `model`, `service`, `tenant`, or empty for the total only;
            else a label. A label of hosts divides the devices, one that only services have what these
            were allocated.

    Raises:
        DeliveryError: The database did not answer.
    """
    if by and by not in ("service", "tenant", "model"):
        tags = _device_tags(by)
        sums = device_sums(answers, tags)
        of_all = sums.over()
        if "host" not in tags:
            # A device belongs to one host, but it may have had two models, or two values of a label.
            covered, devices = answers.each(*presence(()))
            of_all = of_all._replace(covered=covered, devices=devices)
        total = only(of_all.spend(answers))
        parts = sums.spend(answers)
        if any(part.group != ("",) for part in parts):
            return SpendByKey(total, largest_first(parts), None)
    else:
        total = only(device_sums(answers, ()).spend(answers))
    return with_rest(total, spend_parts(answers, by)) if by else SpendByKey(total, (), None)


def spend_parts(answers: FleetAnswers, by: str) -> list[FleetSpend]:
    """Return what services, models or tenants cost.

    Args:
        answers: The database, and the period.
        by: `model`, `service`, `tenant`, or a label of services.

    Raises:
        DeliveryError: The database did not answer.
    """
    divided = started(cost_by, answers.each, by)
    facts: list[Mapping[Group, float]] = []
    if by == "tenant":
        rows = Question("tenant", "cost", "count", "count", by=(by,))
        facts += answers.each(replace(rows, field="energy_j", over_time="sum", across="sum"), rows)
    elif by != "model":
        rows = Question("cost", "cost_total", "count", "count", by=(by,), where=_WHOLE)
        energy = replace(rows, field="energy_j", over_time="sum", across="sum")
        facts += answers.each(energy, rows, replace(rows, over_time="covered", across="sum"))
    energies, series, covered = [*facts, {}, {}, {}][:3]
    parts = divided.result()
    amounts = {group: part.cost for group, part in parts.items()}
    idle = {
        group: min(1.0, max(0.0, part.idle / part.cost))
        for group, part in parts.items()
        if part.idle is not None and part.cost > 0
    }
    return [
        FleetSpend(
            group=group,
            costs=costs,
            energy_j=energies.get(group),
            coverage=coverage_of(answers, covered.get(group), series.get(group)),
            series=int(series.get(group, 0)),
        )
        for group, costs in _by_currency(amounts, idle).items()
    ]


def with_rest(total: FleetSpend, parts: list[FleetSpend]) -> SpendByKey:
    """Return parts of what the devices cost, and the rest of it."""
    return SpendByKey(total, largest_first(parts), _rest(total, parts))


def only(found: list[FleetSpend]) -> FleetSpend:
    """Return the spend of the only group; that of nothing without one."""
    return found[0] if found else FleetSpend((), ())


def largest_first(parts: Iterable[FleetSpend]) -> tuple[FleetSpend, ...]:
    """Order by the largest amount of any currency, then by name."""
    return tuple(
        sorted(parts, key=lambda part: (-max(one.cost for one in part.costs), natural(*part.group)))
    )


def _rest(total: FleetSpend, parts: list[FleetSpend]) -> FleetSpend:
    """Return what the devices cost beside the groups: probing, and time of no service."""
    spent: dict[str, float] = defaultdict(float)
    for part in parts:
        for one in part.costs:
            spent[one.currency] += one.cost
    costs = (
        CurrencyCost(one.currency, max(0.0, one.cost - spent[one.currency]), None)
        for one in total.costs
    )
    return FleetSpend((), tuple(costs))


def device_sums(answers: FleetAnswers, tags: Group) -> DeviceSums:
    """Ask for the sums of all devices by some tags; raises as `FleetAnswers.groups`."""
    money = (*tags, "currency")
    utilized, cost, *others = answers.each(
        _utilization(money),
        Question("device", "cost", "sum", by=money),
        Question("device", "energy_j", "sum", by=tags),
        Question("device", "carbon_g", "sum", by=tags),
        Question("device", "carbon_energy_j", "sum", by=tags),
        *presence(tags),
    )
    return DeviceSums(cost, *_parted(utilized), *others)


def assumed_currencies(answers: FleetAnswers) -> frozenset[str]:
    """Return the currencies in which a device's price is assumed; raises as `FleetAnswers.groups`."""
    question = Question("device", "price_assumed", "share", "max", by=("currency",))
    return frozenset(currency for (currency,) in answers.groups(question))


def _device_tags(by: str) -> Group:
    """Return the tags of rows of devices for a key of the command line."""
    return {"device": ("host", "device"), "gpu_model": ("model",)}.get(by, (by,))


def _utilization(money: Group) -> Question:
    """Return the question for cost times utilization in percent, and for the cost of devices with a utilization."""
    return Question("device", "cost", "weighted", by=money, weight="util_pct")


def _parted(found: Mapping[Group, float]) -> Iterator[Mapping[Group, float]]:
    for part in (WEIGHTED, PAIRED):
        yield {group[:-1]: value for group, value in found.items() if group[-1] == part}


def presence(tags: Group) -> tuple[Question, Question]:
    """Return the questions for the covered intervals, and the number, of the devices of each group."""
    return (
        Question("device", "cost", "covered", by=tags),
        Question("device", "cost", "count", "count", by=tags),
    )


def coverage_of(answers: FleetAnswers, covered: float | None, series: float | None) -> float | None:
    """Return the covered share of the intervals of some series; None without series."""
    return None if covered is None else share_of(covered, (series or 0.0) * answers.period.buckets)


def _by_currency(
    cost: Mapping[Group, float], idle: Mapping[Group, float]
) -> dict[Group, tuple[CurrencyCost, ...]]:
    """Return the amounts of each group; the last value of the keys is the currency."""
    found: dict[Group, list[CurrencyCost]] = defaultdict(list)
    for key, amount in cost.items():
        found[key[:-1]].append(CurrencyCost(key[-1], amount, idle.get(key)))
    return {
        group: tuple(sorted(costs, key=lambda one: -one.cost)) for group, costs in found.items()
    }


def _idle(used: Mapping[Group, float], known: Mapping[Group, float]) -> dict[Group, float]:
    return {
        group: min(1.0, max(0.0, 1 - used[group] / 100 / paid))
        for group, paid in known.items()
        if paid > 0 and group in used
    }


def _share(part: float | None, whole: float | None) -> float | None:
    if not whole:
        return None
    share = (part or 0.0) / whole
    return share if share < 1 - _ROUNDING else 1.0


def _added(sums: Mapping[Group, float], kept: tuple[int, ...]) -> dict[Group, float]:
    """Add up over all tags but those at some positions."""
    found: dict[Group, list[float]] = defaultdict(list)
    for group, value in sums.items():
        found[tuple([group[position] for position in kept])].append(value)
    return {group: math.fsum(values) for group, values in found.items()}


def fleet_forecast(answers: FleetAnswers, period: TimeSpan, timezone: str) -> list[FleetForecast]:
    """Return spend and forecast of a period by currency, the largest first.

    Args:
        answers: The database, and the history: whole hours that end now, and begin before the period.
        period: The calendar period that contains the end of the history.
        timezone: IANA name, for the hours of the week.

    Raises:
        DeliveryError: The database did not answer.
    """
    asked = answers.period
    paid, present = answers.rows_of_each(
        Question("device", "cost", "sum", by=("currency",), every_s=STEP_S),
        Question("device", "cost", "count", "count", by=("currency",), every_s=STEP_S),
    )
    devices = {(row.tags, row.time_ns): row.value for row in present}
    costs: dict[str, dict[int, float]] = defaultdict(dict)
    for (currency,), amount, end_ns in paid:
        costs[currency][end_ns] = amount
    since_ns = asked.end_ns - HISTORY_HOURS * HOUR_NS
    found = []
    for currency, by_hour in costs.items():
        counted = {end_ns: devices.get(((currency,), end_ns), 0.0) for end_ns in by_hour}
        recent = sorted(end_ns for end_ns in by_hour if end_ns > since_ns)
        history = [
            HourRate(end_ns - HOUR_NS, by_hour[end_ns])
            for end_ns in recent
            if counted[end_ns] >= _LEAST_SHARE * _usual(counted, end_ns)
        ]
        elapsed = [end_ns for end_ns in by_hour if end_ns > period.start_ns]
        hours = (asked.end_ns - period.start_ns) // HOUR_NS
        most = max((counted[end_ns] for end_ns in elapsed), default=0.0) * hours
        rows = math.fsum(counted[end_ns] for end_ns in elapsed)
        found.append(
            FleetForecast(
                currency,
                spent=math.fsum(by_hour[end_ns] for end_ns in elapsed),
                coverage=share_of(rows, most),
                remaining=robust_forecast(
                    history, remaining_hours(asked.end_ns, period.end_ns), timezone
                ),
                left_out=len(recent) - len(history),
            )
        )
    return sorted(found, key=lambda one: -one.spent)


def _usual(counted: dict[int, float], end_ns: int) -> float:
    """Return the most devices of the hours around one."""
    around = range(-_AROUND_HOURS, _AROUND_HOURS + 1)
    return max(counted.get(end_ns + hours * HOUR_NS, 0.0) for hours in around)


def fleet_savings(answers: FleetAnswers, by: str, target: float) -> list[FleetSaving]:
    """Return what each group of devices could save, the largest saving first.

    Groups without a known utilization are left out.

    Args:
        answers: The database, and the period.
        by: `gpu_model`, `host`, or a label of hosts.
        target: Utilization that devices may reach, above 0 up to 1.

    Raises:
        DeliveryError: The database did not answer.
    """
    money = (*_device_tags(by), "currency")
    cost, devices, utilized = answers.each(
        Question("device", "cost", "sum", by=money),
        Question("device", "cost", "count", "count", by=money),
        _utilization(money),
    )
    idle = _idle(*_parted(utilized))
    period = answers.period
    months = MONTH_H * HOUR_S * NS_PER_S / (period.end_ns - period.start_ns)
    found = []
    for key, share in idle.items():
        counted = int(devices.get(key, 0))
        if counted and key in cost:
            per_month = cost[key] * months
            spare = _spare_devices(counted, 1 - share, target)
            found.append(
                FleetSaving(
                    group=key[:-1],
                    currency=key[-1],
                    devices=counted,
                    utilization_share=1 - share,
                    spare=spare,
                    cost_per_month=per_month,
                    saving_per_month=per_month * spare / counted,
                )
            )
    return sorted(found, key=lambda one: (-one.saving_per_month, natural(*one.group)))


def _spare_devices(devices: int, utilization: float, target: float) -> int:
    """Return how many devices the same work does not need; it needs n u / t, rounded up, at least one.

    It assumes that work may move between the devices, and scales with utilization; a mean hides peaks,
    for which the target leaves room.

    Args:
        devices: Number of devices, n; at least one.
        utilization: Their mean utilization, u, from 0 to 1.
        target: Utilization that they may reach, t, above 0 up to 1.
    """
    needed = max(1, math.ceil(devices * utilization / target - _ROUNDING))
    return max(0, devices - needed)
