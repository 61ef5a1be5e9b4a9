"""Decomposition of a change of production cost into price, demand, mix and efficiency.

A cost per token is a sum of products, one for each model and kind of token:

    cost = hardware price x (device-seconds / busy) x (busy / work) x model x kind x computed x weight
         + electricity price x (joules / busy) x (busy / work) x the same mix

where work is weighted tokens, and the last factors are the model's share of the tokens, the share of
the kind in it, and the part that no cache answered. The weight of a kind is its relative device time
and the same in both periods. The change is decomposed by `log_mean_parts` (LMDI-I, Ang 2005: "The LMDI
approach to decomposition analysis: a practical guide"), so that the parts add up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from costprobe.domain.costing.comparison.change import log_mean_parts
from costprobe.domain.costing.comparison.production_sums import ModelSums, ProductionSums
from costprobe.domain.costing.comparison.production_work import (
    Weights,
    as_one,
    kind_weights,
    work_of,
)

Unit = Literal["token", "inference", "request"]
Driver = Literal["price", "demand", "mix", "efficiency"]
Part = Literal[
    "hardware price",
    "electricity price",
    "idle time",
    "load",
    "speed",
    "busy power",
    "idle power",
    "mean power",
    "models",
    "input and output",
    "cached input",
    "request length",
    "weight",
]
# What each part is due to.
DRIVERS: Final[Mapping[Part, Driver]] = MappingProxyType(
    {
        "hardware price": "price",
        "electricity price": "price",
        "idle time": "demand",
        "load": "demand",
        "speed": "efficiency",
        "busy power": "efficiency",
        "idle power": "efficiency",
        "mean power": "efficiency",
        "models": "mix",
        "input and output": "mix",
        "cached input": "mix",
        "request length": "mix",
    }
)
# A driver of the change is larger than this, in log units.
LEAST_PART: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ProductionChange:
    """The decomposition of a change of cost per unit between two periods.

    Attributes:
        unit: What the cost is divided by: one token, inference or request.
        before: Currency per unit in the earlier period.
        after: Currency per unit in the later one.
        parts: Each factor's part of `log_ratio`; they add up to it.
        traffic: Work of an hour, later over earlier.
        devices: Device-seconds of an hour, later over earlier.
        control: Time per inference of the probe on the same devices, later over earlier; None
            without one.
        currency: ISO 4217 code of the costs.
        rate_per_s: Units per second in the later period; None if the length of its windows is unknown.
    """

    unit: Unit
    before: float
    after: float
    parts: Mapping[Part, float]
    traffic: float
    devices: float
    control: float | None = None
    currency: str = ""
    rate_per_s: float | None = None

    @property
    def log_ratio(self) -> float:
        """ln(after / before)."""
        return math.log(self.after / self.before)

    @property
    def change_pct(self) -> float:
        """The change in percent of the cost before."""
        return math.expm1(self.log_ratio) * 100

    @property
    def drivers(self) -> dict[Driver, float]:
        """The parts by what they are due to; they add up to `log_ratio`."""
        sums: dict[Driver, float] = dict.fromkeys(("price", "demand", "mix", "efficiency"), 0.0)
        for part, effect in self.parts.items():
            if part in DRIVERS:
                sums[DRIVERS[part]] += effect
        return sums

    @property
    def driver(self) -> Driver | None:
        """What most of the change is due to; None without a change."""
        sign = math.copysign(1.0, self.log_ratio)
        drivers = self.drivers
        driver = max(drivers, key=lambda name: sign * drivers[name])
        return driver if sign * drivers[driver] > LEAST_PART else None


def production_change(
    before: ProductionSums,
    after: ProductionSums,
    *,
    unit: Unit | None = None,
    control: float | None = None,
    log_load: float = 0.0,
) -> ProductionChange:
    """Decompose the change of cost per unit between two periods of a service.

    Args:
        before: The earlier period.
        after: The later period, in the same currency.
        unit: What the cost is divided by; None for tokens, or inferences where none are counted.
        control: Time per inference of the probe on the same devices, later over earlier. Where the
            busy time is unknown, it is the change of speed, and the rest is idle time.
        log_load: Change of the busy time per token that the change of load explains, in log units.

    Raises:
        ValueError: A cost is not positive, nothing was counted, or the currencies differ.
    """
    if before.currency != after.currency:
        raise ValueError("costs of two currencies cannot be compared")
    if set(before.models) != set(after.models) and "" in {*before.models, *after.models}:
        before, after = as_one(before), as_one(after)
    has_tokens = before.total.tokens > 0 and after.total.tokens > 0
    unit = unit or ("token" if has_tokens else "inference")
    is_by_token = has_tokens
    counts = [_count(sums.total, unit) for sums in (before, after)]
    if min(counts) <= 0 or min(before.device_s, after.device_s) <= 0:
        raise ValueError("nothing was counted in one of the periods")
    weights = kind_weights(before, after, is_by_token=is_by_token)
    work = [work_of(sums, weights) for sums in (before, after)]
    if min(work) <= 0:
        raise ValueError("nothing was counted in one of the periods")
    knows_busy = bool(before.busy_s and after.busy_s)
    knows_idle = knows_busy and None not in (before.idle_cost, after.idle_cost)
    knows_energy = bool(before.energy_j and after.energy_j)
    sides = [
        _terms(
            sums,
            _Side(
                work=done,
                count=count,
                speed=speed,
                load=load,
                knows_busy=knows_busy,
                knows_idle=knows_idle,
                knows_energy=knows_energy,
            ),
            weights,
            is_by_token=is_by_token,
        )
        for sums, done, count, speed, load in zip(
            (before, after),
            work,
            counts,
            (1.0, 1.0 if control is None else control),
            (1.0, math.exp(log_load)),
            strict=True,
        )
    ]
    parts = log_mean_parts(*sides)
    parts.pop("weight", None)
    hours = [sums.window_s or sums.device_s for sums in (before, after)]
    return ProductionChange(
        unit=unit,
        before=before.cost / counts[0],
        after=after.cost / counts[1],
        parts=parts,
        traffic=work[1] / hours[1] / (work[0] / hours[0]),
        devices=after.device_s / hours[1] / (before.device_s / hours[0]),
        control=control,
        currency=after.currency,
        rate_per_s=counts[1] / after.window_s if after.window_s else None,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One period's sums; `speed` and `load` are relative to the earlier period."""

    work: float
    count: float
    speed: float
    load: float
    knows_busy: bool
    knows_idle: bool
    knows_energy: bool


def _terms(
    sums: ProductionSums, side: _Side, weights: Weights, *, is_by_token: bool
) -> list[dict[Part, float]]:
    """Return the products that add up to the cost per unit."""
    terms: list[dict[Part, float]] = []
    for mix in _mixes(sums, side.count, weights, is_by_token=is_by_token):
        terms += [{**bearing, **mix} for bearing in _bearings(sums, side)]
    return terms


def _bearings(sums: ProductionSums, side: _Side) -> Iterator[dict[Part, float]]:
    """Yield the products that add up to the cost of one unit of work."""
    price = sums.hardware / sums.device_s
    if side.knows_busy and sums.busy_s:
        speed: dict[Part, float] = {
            "load": side.load,
            "speed": sums.busy_s / side.work / side.load,
        }
        held_per_busy = sums.device_s / sums.busy_s
    else:
        speed = {"speed": side.speed}
        held_per_busy = sums.device_s / side.work / side.speed
    yield {"hardware price": price, "idle time": held_per_busy, **speed}
    power_s = sums.energy_j or 1.0 if side.knows_energy else 1.0
    electricity_price = sums.electricity / power_s
    if side.knows_idle and sums.busy_s:
        idle_s = max(0.0, sums.device_s - sums.busy_s)
        idle = max(0.0, (sums.idle_cost or 0.0) - price * idle_s)
        idle_j = power_s * min(1.0, idle / sums.electricity) if sums.electricity else 0.0
        # Without idle time there is no idle electricity.
        idle_j = idle_j if idle_s > 0 else 0.0
        yield {
            "electricity price": electricity_price,
            "busy power": (power_s - idle_j) / sums.busy_s,
            **speed,
        }
        yield {
            "electricity price": electricity_price,
            "idle time": idle_s / sums.busy_s,
            "idle power": idle_j / idle_s if idle_s > 0 else 0.0,
            **speed,
        }
    else:
        yield {
            "electricity price": electricity_price,
            "idle time": held_per_busy,
            "mean power": power_s / sums.device_s,
            **speed,
        }


def _mixes(
    sums: ProductionSums, count: float, weights: Weights, *, is_by_token: bool
) -> Iterator[dict[Part, float]]:
    """Yield the products that add up to the work of one unit: a term for each model and kind."""
    total = sums.total
    base = total.tokens if is_by_token else total.inferences
    length = base / count
    for (model, kind), weight in weights.items():
        own = sums.models.get(model, ModelSums())
        size = own.tokens if is_by_token else own.inferences
        factors: dict[Part, float] = {"models": size / base}
        if kind == "in":
            factors["input and output"] = own.tokens_in / size if size else 0.0
            factors["cached input"] = own.computed / own.tokens_in if own.tokens_in else 0.0
        elif kind == "out":
            factors["input and output"] = own.tokens_out / size if size else 0.0
        yield {**factors, "request length": length, "weight": weight}


def _count(model: ModelSums, unit: Unit) -> float:
    return {"token": model.tokens, "inference": model.inferences, "request": model.requests}[unit]
