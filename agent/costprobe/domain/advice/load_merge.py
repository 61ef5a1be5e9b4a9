"""How many replicas carry a service's load within its service level, and what fewer of them save."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import Final

from costprobe.core.units import HOUR_S, MONTH_H, percent
from costprobe.domain.advice.history import History
from costprobe.domain.advice.load_evidence import LoadEvidence, WeekOfLoad
from costprobe.domain.advice.supply import DevicePrice
from costprobe.domain.costing.load.point import LoadPoint
from costprobe.domain.costing.money import exact

# Replicas must carry this quantile of the minutes of the week; the range begins at the lower one.
PEAK: Final = 0.99
_PEAK_LOW: Final = 0.95
# Share of the week that must be known.
COVERAGE_MIN: Final = 0.7
_ROUNDING: Final = 1e-9
_CENT: Final = Decimal("0.01")


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
class MergeQuestion:
    """What is known of a load.

    Attributes:
        evidence: Curve and requests.
        week: Work of the last seven days.
        points: Points within the service level by their load; none if no load meets it.
        doubt: Relative uncertainty of what a server does: of the point, and by other lengths.
        cost_per_month: Currency for 730 h of all replicas.
        times_floor: Cost relative to the cheapest point.
    """

    evidence: LoadEvidence
    week: WeekOfLoad
    points: Sequence[LoadPoint]
    doubt: float
    cost_per_month: float
    times_floor: float


@dataclass(frozen=True, slots=True)
class ReleasedReplica:
    """What a month without a replica saves.

    Attributes:
        saving: Currency for 730 h, with the electricity of its idle power where that is billed.
        low, high: Range of an assumed price; `saving` for any other.
        assumptions: What it rests on.
        kept_because: Why none can be released; empty if they can.
    """

    saving: Decimal
    low: Decimal
    high: Decimal
    assumptions: Sequence[str]
    kept_because: str


def released_devices(
    history: History, devices: Sequence[str], per_replica: int, price: DevicePrice
) -> ReleasedReplica:
    """Return what a month without the devices of a replica saves.

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
    rented = next((names for names in history.rented_together if {*names} & {*devices}), ())
    low = rate.per_hour if rate.low_per_hour is None else rate.low_per_hour
    high = rate.per_hour if rate.high_per_hour is None else rate.high_per_hour
    return ReleasedReplica(
        rate.per_hour * hours + electricity,
        low * hours + electricity,
        high * hours + electricity,
        assumptions,
        f"{' and '.join(rented)} are one host: none is released alone" if rented else "",
    )


def merged(question: MergeQuestion, replica: ReleasedReplica) -> tuple[Merge | None, str]:
    """Return fewer replicas that carry the load, or None and the reason.

    Args:
        question: What is known of the load.
        replica: What a replica less saves.
    """
    evidence, week, points = question.evidence, question.week, question.points
    held = evidence.replicas
    limit_per_s = points[-1].work_per_s if points else 0.0

    def needed(peak: float, factor: float) -> int:
        count = math.ceil(week.at(peak) / (limit_per_s * factor) - _ROUNDING)
        return min(held, max(1, count))

    reasons = {
        "it is one replica": held == 1,
        "no measured load is known to meet the service level": not limit_per_s,
        f"{percent(COVERAGE_MIN)} of a week of its work must be known": week.coverage
        < COVERAGE_MIN,
        "its peak is above the highest load that meets the service level": (
            week.at(PEAK) > held * limit_per_s * (1 + _ROUNDING)
        ),
    }
    reason = next((words for words, applies in reasons.items() if applies), "")
    count = held if reason else needed(PEAK, 1.0)
    if count == held:
        return None, reason or "each is needed at the peak"
    if replica.kept_because:
        return None, replica.kept_because
    most = needed(1.0, 1 / (1 + question.doubt))
    fewest = needed(_PEAK_LOW, 1 + question.doubt)
    saving = (held - count) * replica.saving
    load_per_s = week.at(PEAK) / count
    return Merge(
        replicas=count,
        saving_per_month=cents(saving),
        saving_low=cents((held - most) * replica.low),
        saving_high=cents((held - fewest) * replica.high),
        peak_share=load_per_s / limit_per_s,
        at_peak_ms={
            name: interpolated(points, f"{name}_ms", load_per_s)
            for name in evidence.curve.bounds_ms
        },
        times_floor=question.times_floor * (1 - float(saving) / question.cost_per_month),
        assumptions=[*_assumptions(evidence, points[-1], count), *replica.assumptions],
    ), ""


def interpolated(points: Sequence[LoadPoint], name: str, load_per_s: float) -> float | None:
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
    if count == 1:
        yield "no replica has to take over for another"


def cents(amount: float | Decimal) -> Decimal:
    """Round to cents: more digits would exceed the precision of the measurements."""
    return exact(amount).quantize(_CENT, ROUND_HALF_EVEN)
