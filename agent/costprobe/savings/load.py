"""Where a service's load lies on the load curve of its server, and what fewer replicas save.

It states what the position costs and what would cost less, and how many replicas carry the load
within the service level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import Final

from costprobe.adapters.engines.tables import KV_FULL
from costprobe.core.hours import MINUTE_NS, MINUTES
from costprobe.core.money import exact
from costprobe.core.periods import HOUR_NS, HOURS_A_WEEK, WEEK_NS
from costprobe.core.records import NS_PER_S, TOGETHER
from costprobe.core.statistics import quantile
from costprobe.core.units import HOUR_S, MONTH_H, counted, percent, significant
from costprobe.probing.load_curve import LoadCurve, LoadPoint
from costprobe.savings.evidence import History, LoadEvidence
from costprobe.savings.history import WHOLE_MINUTE_S, ServiceHistory
from costprobe.savings.supply import DevicePrice
from costprobe.savings.workload import WorkloadHistory

# Replicas must carry this quantile of the minutes of the week; the range begins at the lower one.
PEAK: Final = 0.99
_PEAK_LOW: Final = 0.95
# Share of the week that must be known.
COVERAGE_MIN: Final = 0.7
# From so many requests that wait for each of them servers are saturated.
WAITING: Final = 1.0
_ROUNDING: Final = 1e-9
_CENT: Final = Decimal("0.01")
_MINUTE_S: Final = 60.0
# Warm-ups and waits between the windows of a curve take at most as long as the windows, as a rule.
_CURVE_LASTS_WINDOWS: Final = 2

# Requests that are longer or shorter by more are another workload than the curve's.
MIX_TOLERANCE: Final = 0.25
# Less of a service's work gives no mean.
LEAST_H: Final = 24.0


@dataclass(frozen=True, slots=True)
class Merge:
    """Fewer replicas that carry the load.

    Attributes:
        replicas: Their number.
        saving_per_month: Currency for 730 h.
        saving_low, saving_high: Its range: from replicas for the highest minute and a server that does
            less than the curve's, by its uncertainty and by the difference of lengths, to replicas for
            the 95th percentile and a server that does more.
        peak_share: Load of a replica in the 99th percentile of minutes, as a share of the highest load
            that meets the service level.
        at_peak_ms: Times of the service level at that load by their names, between measured points;
            None below the lowest of them.
        times_floor: Cost relative to the lowest one then.
        assumptions: What the saving rests on and was not measured.
    """

    replicas: int
    saving_per_month: Decimal
    saving_low: Decimal
    saving_high: Decimal
    peak_share: float
    at_peak_ms: Mapping[str, float | None]
    times_floor: float
    assumptions: Sequence[str]


@dataclass(frozen=True, slots=True)
class LoadCost:
    """What the load costs against the curve, at the prices in force.

    Attributes:
        load_per_s: Mean units per second of a replica.
        peak_per_s: That of the 99th percentile of minutes.
        saturation_per_s: Highest throughput of the curve.
        limit_per_s: Highest measured load that meets the service level; None without one.
        each: Currency for a unit in production.
        each_floor: Currency for a unit at the cheapest point that meets the service level.
        floor: That point.
        cost_per_month: Currency for 730 h of all replicas.
        unused_per_month: The part of it that the same work would not cost at the cheapest point.
        unused_low, unused_high: Its range by the uncertainty of the point and the difference of lengths.
        merge: Fewer replicas; None if none are released.
        kept_because: Why none are released; empty if some are.
    """

    load_per_s: float
    peak_per_s: float
    saturation_per_s: float
    limit_per_s: float | None
    each: float
    each_floor: float
    floor: LoadPoint
    cost_per_month: Decimal
    unused_per_month: Decimal
    unused_low: Decimal
    unused_high: Decimal
    merge: Merge | None
    kept_because: str

    @property
    def saturation_share(self) -> float:
        """Mean load as a share of the highest throughput."""
        return self.load_per_s / self.saturation_per_s

    @property
    def times_floor(self) -> float:
        """Cost of a unit relative to the cheapest point."""
        return self.each / self.each_floor


@dataclass(frozen=True, slots=True)
class LoadPosition:
    """Where a service's load lies on the curve of its server.

    Attributes:
        service: Its name.
        evidence: Curve and requests.
        load_h: Hours of its known minutes in the last seven days.
        age_s: Age of the curve in s.
        problem: Why the cost is not stated; empty if it is.
        cost: The cost; None with a problem.
    """

    service: str
    evidence: LoadEvidence
    load_h: float
    age_s: float
    problem: str
    cost: LoadCost | None

    @property
    def coverage(self) -> float:
        """Share of the seven days that is known."""
        return self.load_h / HOURS_A_WEEK


class _UnknownError(Exception):
    """The cost cannot be stated, for the reason of the message."""


def load_position(history: History, workload: WorkloadHistory) -> LoadPosition | None:
    """Return where the load of a workload lies on its curve.

    None without a curve of its service, and for a workload of several services: a curve is of one.
    """
    name = workload.services[0] if len(workload.services) == 1 else ""
    evidence = history.load_curves.get(name)
    if evidence is None or not workload.devices:
        return None
    now_ns = max(history.devices[device].now_ns for device in workload.devices)
    week = _week_per_s(history.services[name], evidence, now_ns)
    cost, problem = None, ""
    try:
        _check(history, name, evidence, week)
        cost = _load_cost(history, name, evidence, week)
    except _UnknownError as unknown:
        problem = str(unknown)
    age_s = max(0, now_ns - evidence.curve.time_ns) / 1e9
    return LoadPosition(name, evidence, _hours(week), age_s, problem, cost)


def _week_per_s(service: ServiceHistory, evidence: LoadEvidence, now_ns: int) -> list[float]:
    """Return the units per second in the known minutes of the last seven days, ascending.

    The minutes of the load curve are left out.
    """
    curve = evidence.curve
    windows_s = math.fsum(point["window_s"] or 0.0 for point in curve.points)
    began_ns = curve.time_ns - int(_CURVE_LASTS_WINDOWS * windows_s * NS_PER_S)
    row_ns = int(service.row_s * NS_PER_S)
    return sorted(
        hour.counts[evidence.unit][minute] / _MINUTE_S
        for number, hour in service.hours.items()
        for minute in range(MINUTES)
        if (start_ns := number * HOUR_NS + minute * MINUTE_NS) >= now_ns - WEEK_NS
        and hour.covered_s[minute] >= WHOLE_MINUTE_S
        and not began_ns - row_ns < start_ns < curve.time_ns + row_ns
    )


def _hours(week: Sequence[float]) -> float:
    return len(week) * _MINUTE_S / HOUR_S


def _check(history: History, name: str, evidence: LoadEvidence, week: Sequence[float]) -> None:
    """Check that the curve describes the service's servers and requests.

    Raises:
        _UnknownError: It does not.
    """
    again = f"run: costprobe probe {evidence.curve.probe} --load"
    if evidence.software == "changed":
        raise _UnknownError(f"the curve is stale: server, model or prompt changed since; {again}")
    if evidence.models > 1:
        raise _UnknownError(f"{name} serves {evidence.models} models, and the curve is of one")
    if evidence.unit in history.services[name].missing:
        words = "generated tokens" if evidence.unit == "tokens_out" else "requests"
        raise _UnknownError(f"the server does not count {words}")
    if _hours(week) < LEAST_H:
        raise _UnknownError(
            f"{LEAST_H:g} h of its work in the last seven days must be known; {_hours(week):.1f} are"
        )
    if evidence.unit == "requests":
        return
    change = evidence.mix_change
    if change is None:
        raise _UnknownError(
            "the lengths of its requests are unknown: the server does not count them"
        )
    if max(map(abs, change)) > MIX_TOLERANCE:
        raise _UnknownError(
            f"its requests differ from those of the curve by more than {MIX_TOLERANCE:.0%}: prompts"
            f" {change[0]:+.0%}, answers {change[1]:+.0%}; set tokens_in and tokens_out in"
            f" [probe.load] of {evidence.curve.probe}, and {again}".replace("%", " %")
        )


def _load_cost(
    history: History, service: str, evidence: LoadEvidence, week: Sequence[float]
) -> LoadCost:
    """Return the cost of a load.

    Raises:
        _UnknownError: A price, a power or a point is missing, or the load is beyond the points.
    """
    curve, replicas = evidence.curve, evidence.replicas
    devices = list(history.services[service].devices)
    per_replica = _devices_of_a_replica(history, evidence, devices)
    price = _price(history, devices)
    mean_per_s = math.fsum(week) / len(week)
    load_per_s = mean_per_s / replicas
    if not load_per_s:
        raise _UnknownError("it had no requests in the last seven days")
    highest = curve.fastest.work_per_s
    if load_per_s > highest:
        raise _UnknownError(
            f"its mean load is above the measured range: {significant(load_per_s)}/s of a replica, and at"
            f" most {significant(highest)}/s were measured"
        )
    second = float(price.rate.per_hour) / HOUR_S
    power_w = _power_w(history, devices) if price.electricity_per_j else 0.0
    paid_per_s = second * len(devices) + power_w * price.electricity_per_j
    each_of = {
        index: _each_at(point, second * per_replica, price)
        for index, point in enumerate(curve.points)
        if point.work_per_s and point.meets(curve.bounds_ms)
    }
    if not each_of:
        raise _UnknownError("no measured load is known to meet the service level")
    cheapest = min(each_of, key=lambda index: each_of[index])
    floor, each_floor = curve.points[cheapest], each_of[cheapest]
    each = paid_per_s / mean_per_s
    month = paid_per_s * MONTH_H * HOUR_S
    doubt = floor.rel_err + max(map(abs, evidence.mix_change or (0.0,)))

    def unused(factor: float) -> Decimal:
        return cents(month * max(0.0, 1 - factor * each_floor / each))

    points = capacity_points(curve)
    merge, (count, most, fewest), reason = None, *_replicas(evidence, week, points, doubt)
    rented = next((names for names in history.rented_together if {*names} & {*devices}), ())
    if not reason and rented:
        reason = f"{' and '.join(rented)} are one host: none is released alone"
    if not reason:
        saved, low, high, assumptions = _saved(history, devices, per_replica, price)
        saving, at_peak = (replicas - count) * saved, quantile(week, PEAK) / count
        merge = Merge(
            replicas=count,
            saving_per_month=cents(saving),
            saving_low=cents((replicas - most) * low),
            saving_high=cents((replicas - fewest) * high),
            peak_share=at_peak / points[-1].work_per_s,
            at_peak_ms={
                name: _interpolated(points, f"{name}_ms", at_peak) for name in curve.bounds_ms
            },
            times_floor=each / each_floor * (1 - float(saving) / month),
            assumptions=[*_assumptions(evidence, points[-1], count), *assumptions],
        )
    return LoadCost(
        load_per_s=load_per_s,
        peak_per_s=quantile(week, PEAK) / replicas,
        saturation_per_s=highest,
        limit_per_s=points[-1].work_per_s if points else None,
        each=each,
        each_floor=each_floor,
        floor=floor,
        cost_per_month=cents(month),
        unused_per_month=unused(1),
        unused_low=unused(1 + doubt),
        unused_high=unused(max(0.0, 1 - doubt)),
        merge=merge,
        kept_because=reason,
    )


def _devices_of_a_replica(history: History, evidence: LoadEvidence, devices: Sequence[str]) -> int:
    """Return the number of devices of a replica, if all are like those of the curve.

    Raises:
        _UnknownError: They are not.
    """
    measured = evidence.curve.device.split(TOGETHER)
    per_replica, rest = divmod(len(devices), evidence.replicas)
    if rest or per_replica != len(measured):
        raise _UnknownError(
            f"{counted(evidence.replicas, 'server')} of it on {counted(len(devices), 'device')}, and the"
            f" curve was measured on {evidence.curve.device}"
        )
    models = {
        None if (found := history.devices.get(name)) is None else found.device.model
        for name in (*devices, *measured)
    }
    if len(models) > 1 or None in models:
        raise _UnknownError("its devices are not of the same model as those of the curve")
    return per_replica


def _price(history: History, devices: Sequence[str]) -> DevicePrice:
    """Return the price in force of all devices.

    Raises:
        _UnknownError: One has none, or they differ.
    """
    prices = [found[0] for name in devices if (found := history.prices.get(name))]
    if len(prices) < len(devices):
        raise _UnknownError("its devices have no price: set [[price]]")
    if len({(price.rate.currency, price.rate.per_hour, price.rate.plan) for price in prices}) > 1:
        raise _UnknownError("its devices are priced differently")
    return prices[0]


def _power_w(history: History, devices: Sequence[str]) -> float:
    """Return the mean power of all devices.

    Raises:
        _UnknownError: It is unknown.
    """
    powers = [history.devices[name].mean_power_w for name in devices]
    known = [power for power in powers if power is not None]
    if len(known) < len(powers):
        raise _UnknownError("electricity is billed separately, and the power is unknown")
    return math.fsum(known)


def _each_at(point: LoadPoint, paid_per_s: float, price: DevicePrice) -> float:
    """Return the cost of a unit at a point, at the price in force.

    Raises:
        _UnknownError: Electricity is billed separately, and was not measured.
    """
    each = paid_per_s / point.work_per_s
    if not price.electricity_per_j:
        return each
    energy_j = point["energy_per_inference_j"]
    if point["tokens_out_per_s"]:
        per_million_j = point["energy_per_million_tokens_out_j"]
        energy_j = None if per_million_j is None else per_million_j / 1e6
    if energy_j is None:
        raise _UnknownError("electricity is billed separately, and the curve has no energy")
    return each + energy_j * price.electricity_per_j


def _saved(
    history: History, devices: Sequence[str], per_replica: int, price: DevicePrice
) -> tuple[Decimal, Decimal, Decimal, list[str]]:
    """Return what a month without a replica saves, its range, and what that rests on.

    It is currency for 730 h, with the electricity of the idle power where that is billed. The range is
    that of an assumed price.

    Args:
        history: The history of the host.
        devices: Devices of the service.
        per_replica: How many of them a replica uses.
        price: Their price in force.
    """
    rate, assumptions = price.rate, []
    hours = exact(MONTH_H * per_replica)
    electricity = Decimal(0)
    if price.electricity_per_j:
        idle_w = [history.devices[name].idle_w for name in devices]
        known = [power for power in idle_w if power is not None]
        if known:
            joules = min(known) * per_replica * MONTH_H * HOUR_S
            electricity = exact(joules * price.electricity_per_j)
        else:
            assumptions.append("the electricity of released devices is not included")
    if price.is_always_paid:
        assumptions.append("released devices are given back or sold: until then they are paid too")
    low, high = (
        rate.per_hour if one is None else one for one in (rate.low_per_hour, rate.high_per_hour)
    )
    saved, low, high = (one * hours + electricity for one in (rate.per_hour, low, high))
    return saved, low, high, assumptions


def _replicas(
    evidence: LoadEvidence, week: Sequence[float], points: Sequence[LoadPoint], doubt: float
) -> tuple[tuple[int, int, int], str]:
    """Return how many replicas carry the load, the most and the fewest; and why none is released.

    Args:
        evidence: Curve and requests.
        week: Work of the last seven days.
        points: Points within the service level by their load; none if no load meets it.
        doubt: Relative uncertainty of what a server does: of the point, and by other lengths.
    """
    held = evidence.replicas
    limit_per_s = points[-1].work_per_s if points else 0.0
    # The few windows of the load curve itself are beyond this quantile.
    cache, waiting = (
        quantile(values, PEAK) if values else 0.0
        for values in (evidence.kv_cache_shares, evidence.requests_waiting)
    )
    reasons = {
        "it is one replica": held == 1,
        "no measured load is known to meet the service level": not limit_per_s,
        f"{percent(COVERAGE_MIN)} of a week of its work must be known": (
            _hours(week) / HOURS_A_WEEK < COVERAGE_MIN
        ),
        "its peak is above the highest load that meets the service level": (
            quantile(week, PEAK) > held * limit_per_s * (1 + _ROUNDING)
        ),
        "requests wait for a server at its peak": waiting >= held * WAITING,
    }
    for words, applies in reasons.items():
        if applies:
            return (held, held, held), words

    def needed(peak: float, factor: float) -> int:
        # What the KV cache of all replicas holds must fit into those of fewer.
        replicas = max(quantile(week, peak) / (limit_per_s * factor), held * cache / KV_FULL)
        return min(held, max(1, math.ceil(replicas - _ROUNDING)))

    count = needed(PEAK, 1.0)
    full = f" (KV cache: {percent(cache)} in use)" if cache else ""
    reason = f"each is needed at the peak{full}" if count == held else ""
    return (count, needed(1.0, 1 / (1 + doubt)), needed(_PEAK_LOW, 1 + doubt)), reason


def capacity_points(curve: LoadCurve) -> list[LoadPoint]:
    """Return the points up to the highest load that a server carries, in the order of their load.

    Requests of independent users arrive at random, so that the open loop is used where the curve has
    one. The points end before the first one that does not meet the service level, or whose queue grew.
    """
    for loop in ("open", "closed"):
        points: list[LoadPoint] = []
        of_loop = sorted(
            (point for point in curve.points if point.loop == loop),
            key=lambda point: (point.concurrency or 0, point["offered_per_s"] or 0.0),
        )
        for point in of_loop:
            met = point.meets(curve.bounds_ms)
            end = curve.ends.get(point.loop) if point is of_loop[-1] else None
            if met is False or end == "errors" or (loop == "open" and end == "saturated"):
                break
            if met:
                points.append(point)
        if points:
            return sorted(points, key=lambda point: point.work_per_s)
    return []


def _interpolated(points: Sequence[LoadPoint], name: str, load_per_s: float) -> float | None:
    """Return a figure at a load, linear between measured points; None outside of them.

    Args:
        points: Points by their throughput, ascending.
        name: One of FIGURES.
        load_per_s: Units per second of a server.
    """
    for below, above in pairwise(points):
        low, high = below.work_per_s, above.work_per_s
        if low <= load_per_s <= high:
            first, second = below[name], above[name]
            if first is None or second is None:
                return None
            part = (load_per_s - low) / (high - low) if high > low else 1.0
            return first + (second - first) * part
    return None


def _assumptions(evidence: LoadEvidence, limit: LoadPoint, count: int) -> Iterator[str]:
    yield "the load is spread evenly over the replicas, and stays as in the last seven days"
    if not evidence.curve.bounds_ms:
        yield "the latency at that load is acceptable: set slo of the probe"
    if limit.loop == "closed":
        yield (
            "requests do not queue as those of independent users: the curve has no open loop within"
            " the service level"
        )
    if evidence.software == "unknown":
        yield "server and model are those of the curve: the probe has no run since"
    if evidence.kv_cache_shares:
        yield "the KV cache fills in proportion to the load"
    if count == 1:
        yield "no replica has to take over for another"


def cents(amount: float | Decimal) -> Decimal:
    """Round to cents: more digits would exceed the precision of the measurements."""
    return exact(amount).quantize(_CENT, ROUND_HALF_EVEN)
