"""Charges of a period, by host, device, service and tenant, as FOCUS has them.

The cost is that of the ledger of allocations; of a device without one in a
period, that of its own rows. A row counts in the period in which it ends: one that ends at midnight
is the day's before. Tenants
divide a charge by the rows of `tenant`: its cost, idle cost and hours by the tenants' cost of the
service in the period, its tokens by the tenants' tokens. What no row of a tenant explains is
unattributed. Sums are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple, TypeVar

from costprobe.adapters.store.read import RolledPoint, StoreReader
from costprobe.core.money import divided, exact, total_of
from costprobe.core.periods import TimeSpan
from costprobe.core.schema import GROUP_TAGS, SCHEMA, UNATTRIBUTED
from costprobe.core.units import HOUR_S
from costprobe.spend.query import LATE_NS, spend_by_step

# Tags of rows that are not labels of the operator.
_OWN_TAGS: Final = frozenset(
    {"host", *SCHEMA["device"].tags, *SCHEMA["allocation"].tags} - {*GROUP_TAGS}
)
_MICROSECONDS: Final = 6
_TOKENS: Final = ("tokens_in", "tokens_out")
# A service's cost and the sum of its tenants' differ by less than this share through rounding.
_ROUNDING: Final = Fraction(1, 10**9)

Group = TypeVar("Group")
_ByTenant = Mapping[str, Fraction]
# Number of a period since 1970, name of a host, and of a device or service on it.
_Place = tuple[int, str, str]
# The same of a service, and a currency.
_Served = tuple[int, str, str, str]


@dataclass(frozen=True, slots=True)
class PeriodCharge:
    """Cost of a device in a period for one service, or the remainder without a service.

    Attributes:
        span: The period, within the exported time.
        host: Name of the host.
        device: Name of the device.
        kind: Kind of the device: gpu, mig or cpu.
        model: Product name of the device.
        service: Name of the service; empty for cost without one.
        currency: ISO 4217 code.
        cost: Currency.
        idle_cost: Currency, the part for idle time; 0 for a device without an allocation.
        device_hours: Hours of the device, divided among its charges by cost.
        tokens: Input and output tokens of the service, divided among its charges by cost; None
            where it counts none.
        labels: Labels of the operator.
        tenant: Name of the service's tenant; empty for a charge that is not divided.
    """

    span: TimeSpan
    host: str
    device: str
    kind: str
    model: str
    service: str
    currency: str
    cost: Decimal
    idle_cost: Decimal
    device_hours: Decimal
    tokens: Decimal | None
    labels: Mapping[str, str]
    tenant: str = ""


class _Key(NamedTuple):
    """What a charge is for; `holder` is the device in a period."""

    holder: _Place
    service: str
    currency: str
    labels: tuple[tuple[str, str], ...]


def period_charges(
    reader: StoreReader, span: TimeSpan, step_ns: int, usual_s: float
) -> list[PeriodCharge]:
    """Return the charges of a span, by period, host, device and service.

    Args:
        reader: The store.
        span: The span.
        step_ns: Length of a period, which starts at a multiple of it.
        usual_s: Length of a row of `device` in s if there are too few to derive it.
    """
    costs: dict[_Key, list[Decimal]] = defaultdict(list)
    idle: dict[_Key, list[Decimal]] = defaultdict(list)
    for step, tags, cost in _ended(reader, "allocation", ("cost",), span, step_ns):
        key = _key(step, tags)
        costs[key].append(cost)
        if tags.get("part") == "idle":
            idle[key].append(cost)
    allocated = {key.holder for key in costs}
    described: dict[tuple[str, str], Mapping[str, str]] = {}
    for step, tags, cost in _ended(reader, "device", ("cost",), span, step_ns):
        key = _key(step, tags)
        described[key.holder[1:]] = tags
        if key.holder not in allocated:
            costs[key].append(cost)
    # Without a currency an amount is no money.
    amounts = {key: total_of(found) for key, found in sorted(costs.items()) if key.currency}
    hours = _shared(amounts, _hours(reader, span, step_ns, usual_s), lambda key: key.holder)
    tokens = _shared(
        amounts, _tokens(reader, span, step_ns), lambda key: (*key.holder[:2], key.service)
    )
    charges = []
    for key, cost in amounts.items():
        step, host, device = key.holder
        within = TimeSpan(
            max(span.start_ns, step * step_ns), min(span.end_ns, (step + 1) * step_ns)
        )
        tags = described.get((host, device), {})
        charges.append(
            PeriodCharge(
                within,
                host,
                device,
                tags.get("kind", ""),
                tags.get("model", ""),
                key.service,
                key.currency,
                cost,
                total_of(idle[key]),
                hours.get(key, Decimal(0)),
                tokens.get(key),
                dict(key.labels),
            )
        )
    return charges


def _ended(
    reader: StoreReader, measurement: str, fields: Sequence[str], span: TimeSpan, step_ns: int
) -> Iterator[tuple[int, Mapping[str, str], Decimal]]:
    """Yield period, tags and the value of each of some fields of the rows that end in a span, its end included."""
    for point in reader.points(measurement, span.start_ns, span.end_ns + 1):
        end_ns = point.newest_ns if isinstance(point, RolledPoint) else point.time_ns
        for value in map(point.fields.get, fields):
            if span.start_ns < end_ns <= span.end_ns and isinstance(value, float):
                yield (end_ns - 1) // step_ns, point.tags, exact(value)


def _key(step: int, tags: Mapping[str, str]) -> _Key:
    holder = (step, tags.get("host", ""), tags.get("device", ""))
    labels = tuple(sorted(item for item in tags.items() if item[0] not in _OWN_TAGS))
    return _Key(holder, tags.get("service", ""), tags.get("currency", ""), labels)


def _hours(
    reader: StoreReader, span: TimeSpan, step_ns: int, usual_s: float
) -> dict[_Place, Decimal]:
    """Return the hours that the rows of each device cover, by period."""
    seconds: dict[_Place, float] = defaultdict(float)
    by_device = defaultdict(list)
    for series in reader.values("device", "cost", span.start_ns - LATE_NS, span.end_ns + LATE_NS):
        by_device[series.tags.get("host", ""), series.tags.get("device", "")].append(series)
    for device, found in by_device.items():
        for step, _, covered_s in spend_by_step(found, usual_s, span, step_ns):
            seconds[step, *device] += covered_s
    return {
        place: exact(round(covered_s / HOUR_S, _MICROSECONDS))
        for place, covered_s in seconds.items()
    }


def _tokens(reader: StoreReader, span: TimeSpan, step_ns: int) -> dict[_Place, Decimal]:
    """Return the tokens of each service, by period."""
    counts: dict[_Place, list[Decimal]] = defaultdict(list)
    for step, tags, count in _ended(reader, "serving", _TOKENS, span, step_ns):
        if "served_model" not in tags:
            counts[step, tags.get("host", ""), tags["service"]].append(count)
    return {key: total_of(found) for key, found in counts.items()}


def _shared(
    amounts: Mapping[_Key, Decimal],
    totals: Mapping[Group, Decimal],
    group_of: Callable[[_Key], Group],
) -> dict[_Key, Decimal]:
    """Divide quantities among the charges of a group by cost; evenly where nothing has a cost."""
    members: dict[Group, list[_Key]] = defaultdict(list)
    for key in amounts:
        members[group_of(key)].append(key)
    shared: dict[_Key, Decimal] = {}
    for group, keys in members.items():
        if group in totals:
            weights = [abs(Fraction(amounts[key])) for key in keys]
            even = weights if any(weights) else [Fraction(1)] * len(keys)
            shared |= dict(zip(keys, divided(totals[group], even), strict=True))
    return shared


def tenant_charges(
    charges: Sequence[PeriodCharge], reader: StoreReader, span: TimeSpan, step_ns: int
) -> Iterator[PeriodCharge]:
    """Iterate over charges, one for each tenant of a service that has tenants.

    Args:
        charges: The charges, by period, host, device and service.
        reader: The store.
        span: The exported time.
        step_ns: Length of a period, which starts at a multiple of it.
    """

    def of_tenants(
        fields: Sequence[str], whole_of: Callable[[PeriodCharge], Decimal]
    ) -> Callable[[PeriodCharge], _ByTenant]:
        """Return what the tenants of a charge's service have, with what they lack of the whole."""
        parts: dict[_Served, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for step, tags, amount in _ended(reader, "tenant", fields, span, step_ns):
            served = (step, tags["host"], tags["service"], tags.get("currency", ""))
            parts[served][tags["tenant"]] += Fraction(amount)
        whole: dict[_Served, Fraction] = defaultdict(Fraction)
        for charge in charges:
            whole[_served(charge, step_ns)] += Fraction(whole_of(charge))
        return lambda charge: _with_rest(
            parts.get(_served(charge, step_ns), {}), whole[_served(charge, step_ns)]
        )

    costs = of_tenants(("cost",), lambda charge: charge.cost)
    tokens = of_tenants(_TOKENS, lambda charge: charge.tokens or Decimal(0))
    for charge in charges:
        yield from _parts(charge, costs(charge), tokens(charge))


def _served(charge: PeriodCharge, step_ns: int) -> _Served:
    return charge.span.start_ns // step_ns, charge.host, charge.service, charge.currency


def _with_rest(parts: _ByTenant, whole: Fraction) -> _ByTenant:
    """Return the parts with what they lack of the whole as unattributed; none where none is known."""
    rest = whole - sum(parts.values(), Fraction(0))
    if not parts or not whole or rest / whole <= _ROUNDING:
        return parts
    return {**parts, UNATTRIBUTED: parts.get(UNATTRIBUTED, Fraction(0)) + rest}


def _parts(
    charge: PeriodCharge, by_cost: _ByTenant, by_tokens: _ByTenant
) -> Iterator[PeriodCharge]:
    """Divide a charge; one without tenants is returned as it is."""
    if charge.cost < 0:
        by_cost = {name: -cost for name, cost in by_cost.items()}
    names = sorted(
        (name for name in by_cost if by_cost[name] > 0 or by_tokens.get(name)),
        key=lambda name: (name == UNATTRIBUTED, name),
    )
    shares = [by_cost[name] for name in names]
    if not any(shares):
        yield charge
        return
    counted = [by_tokens.get(name, Fraction(0)) for name in names]
    amounts = [charge.cost, charge.idle_cost, charge.device_hours]
    parts: list[Sequence[Decimal | None]] = [divided(amount, shares) for amount in amounts]
    if charge.tokens is None:
        parts.append([None] * len(names))
    else:
        parts.append(divided(charge.tokens, counted if any(counted) else shares))
    for tenant, cost, idle_cost, hours, tokens in zip(names, *parts, strict=True):
        yield replace(
            charge,
            tenant=tenant,
            cost=cost,
            idle_cost=idle_cost,
            device_hours=hours,
            tokens=tokens,
        )
