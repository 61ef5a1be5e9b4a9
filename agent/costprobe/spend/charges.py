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
from costprobe.core.records import Point
from costprobe.core.schema import SCHEMA, UNATTRIBUTED
from costprobe.core.units import HOUR_S
from costprobe.spend.query import LATE_NS, spend_by_step

# Tags of rows that are not labels of the operator.
_OWN_TAGS: Final = frozenset({"host", *SCHEMA["device"].tags, *SCHEMA["allocation"].tags})
_MICROSECONDS: Final = 6
# A service's cost and the sum of its tenants' differ by less than this share through rounding.
_ROUNDING: Final = Fraction(1, 10**9)

Group = TypeVar("Group")
_ByTenant = dict[str, Fraction]


class _Holder(NamedTuple):
    """A device in a period.

    Attributes:
        step: Number of the period since 1970.
        host: Name of the host.
        device: Name of the device.
    """

    step: int
    host: str
    device: str


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
    holder: _Holder
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
    for point in _ended(reader, "allocation", span):
        key = _key(point, step_ns)
        costs[key] += _costs_of(point)
        if point.tags.get("part") == "idle":
            idle[key] += _costs_of(point)
    allocated = {key.holder for key in costs}
    described: dict[tuple[str, str], Mapping[str, str]] = {}
    for point in _ended(reader, "device", span):
        key = _key(point, step_ns)
        described[key.holder.host, key.holder.device] = point.tags
        if key.holder not in allocated:
            costs[key] += _costs_of(point)
    amounts = {key: total_of(found) for key, found in sorted(costs.items()) if found}
    hours = _shared(amounts, _hours(reader, span, step_ns, usual_s), lambda key: key.holder)
    tokens = _shared(amounts, _tokens(reader, span, step_ns), _consumer)
    return [
        PeriodCharge(
            _within(span, key.holder.step, step_ns),
            key.holder.host,
            key.holder.device,
            described.get(key.holder[1:], {}).get("kind", ""),
            described.get(key.holder[1:], {}).get("model", ""),
            key.service,
            key.currency,
            cost,
            total_of(idle[key]),
            hours.get(key, Decimal(0)),
            tokens.get(key),
            dict(key.labels),
        )
        for key, cost in amounts.items()
    ]


def _ended(reader: StoreReader, measurement: str, span: TimeSpan) -> Iterator[Point]:
    """Yield the rows that end in a span, its end included."""
    for point in reader.points(measurement, span.start_ns, span.end_ns + 1):
        if span.start_ns < _end_ns(point) <= span.end_ns:
            yield point


def _end_ns(point: Point) -> int:
    return point.newest_ns if isinstance(point, RolledPoint) else point.time_ns


def _step(point: Point, step_ns: int) -> int:
    return (_end_ns(point) - 1) // step_ns


def _key(point: Point, step_ns: int) -> _Key:
    tags = point.tags
    holder = _Holder(_step(point, step_ns), tags.get("host", ""), tags.get("device", ""))
    labels = tuple(sorted(item for item in tags.items() if item[0] not in _OWN_TAGS))
    return _Key(holder, tags.get("service", ""), tags.get("currency", ""), labels)


def _costs_of(point: Point) -> list[Decimal]:
    cost = point.fields.get("cost")
    # Without a currency an amount is no money.
    return [exact(cost)] if isinstance(cost, float) and point.tags.get("currency") else []


def _consumer(key: _Key) -> tuple[int, str, str]:
    return key.holder.step, key.holder.host, key.service


def _hours(
    reader: StoreReader, span: TimeSpan, step_ns: int, usual_s: float
) -> dict[_Holder, Decimal]:
    """Return the hours that the rows of each device cover, by period."""
    seconds: dict[_Holder, float] = defaultdict(float)
    by_device = defaultdict(list)
    around = (span.start_ns - LATE_NS, span.end_ns + LATE_NS)
    for series in reader.values("device", "cost", *around):
        by_device[series.tags.get("host", ""), series.tags.get("device", "")].append(series)
    for (host, device), found in by_device.items():
        for step, _, covered_s in spend_by_step(found, usual_s, span, step_ns):
            seconds[_Holder(step, host, device)] += covered_s
    return {
        holder: exact(round(covered_s / HOUR_S, _MICROSECONDS))
        for holder, covered_s in seconds.items()
    }


def _tokens(
    reader: StoreReader, span: TimeSpan, step_ns: int
) -> dict[tuple[int, str, str], Decimal]:
    """Return the tokens of each service, by period."""
    counts: dict[tuple[int, str, str], list[Decimal]] = defaultdict(list)
    for point in _ended(reader, "serving", span):
        if "served_model" in point.tags:
            continue
        key = (_step(point, step_ns), point.tags.get("host", ""), point.tags["service"])
        for name in ("tokens_in", "tokens_out"):
            count = point.fields.get(name)
            if isinstance(count, float):
                counts[key].append(exact(count))
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


def _within(span: TimeSpan, step: int, step_ns: int) -> TimeSpan:
    return TimeSpan(max(span.start_ns, step * step_ns), min(span.end_ns, (step + 1) * step_ns))


class _Served(NamedTuple):
    """A service in a period, in one currency."""

    step: int
    host: str
    service: str
    currency: str


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
    costs: dict[_Served, _ByTenant] = defaultdict(lambda: defaultdict(Fraction))
    tokens: dict[_Served, _ByTenant] = defaultdict(lambda: defaultdict(Fraction))
    for point in _ended(reader, "tenant", span):
        tags = point.tags
        served = _Served(
            _step(point, step_ns), tags["host"], tags["service"], tags.get("currency", "")
        )
        costs[served][tags["tenant"]] += _number(point.fields.get("cost"))
        for name in ("tokens_in", "tokens_out"):
            tokens[served][tags["tenant"]] += _number(point.fields.get(name))
    whole_cost: dict[_Served, Fraction] = defaultdict(Fraction)
    whole_tokens: dict[_Served, Fraction] = defaultdict(Fraction)
    for charge in charges:
        whole_cost[_served(charge, step_ns)] += Fraction(charge.cost)
        whole_tokens[_served(charge, step_ns)] += Fraction(charge.tokens or 0)
    for charge in charges:
        served = _served(charge, step_ns)
        by_cost = _with_rest(costs.get(served, {}), whole_cost[served])
        by_tokens = _with_rest(tokens.get(served, {}), whole_tokens[served])
        yield from _parts(charge, by_cost, by_tokens)


def _served(charge: PeriodCharge, step_ns: int) -> _Served:
    return _Served(charge.span.start_ns // step_ns, charge.host, charge.service, charge.currency)


def _number(value: object) -> Fraction:
    return Fraction(exact(value)) if isinstance(value, float) else Fraction(0)


def _with_rest(parts: Mapping[str, Fraction], whole: Fraction) -> Mapping[str, Fraction]:
    """Return the parts with what they lack of the whole as unattributed; none where none is known."""
    rest = whole - sum(parts.values(), Fraction(0))
    if not parts or not whole or rest / whole <= _ROUNDING:
        return parts
    return {**parts, UNATTRIBUTED: parts.get(UNATTRIBUTED, Fraction(0)) + rest}


def _parts(
    charge: PeriodCharge, by_cost: Mapping[str, Fraction], by_tokens: Mapping[str, Fraction]
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
    tokens: Sequence[Decimal | None] = [None] * len(names)
    if charge.tokens is not None:
        tokens = divided(charge.tokens, counted if any(counted) else shares)
    parts = zip(
        names,
        divided(charge.cost, shares),
        divided(charge.idle_cost, shares),
        divided(charge.device_hours, shares),
        tokens,
        strict=True,
    )
    for name, cost, idle_cost, hours, token_count in parts:
        yield replace(
            charge,
            tenant=name,
            cost=cost,
            idle_cost=idle_cost,
            device_hours=hours,
            tokens=token_count,
        )
