"""Parts of a cost change: price, time, energy; in production price, demand, mix, efficiency.

A cost per inference is C = r t + p e: price rate times time, electricity price (PUE included)
times energy. Source: Ang, "Decomposition analysis for policymaking in energy" (2004), the
logarithmic mean Divisia index, LMDI-I: ln(C1/C0) is the sum over the factors x of w ln(x1/x0),
with w = L(term1, term0) / L(C1, C0) and L the logarithmic mean. Where a term is zero on one side,
the limit of Ang and Liu (2007) is used in closed form. There is no remainder.

A cost per token of production is a sum of products, one for each model and kind of token:

    cost = hardware price x (device-seconds / busy) x (busy / work)
             x model x kind x computed x weight
         + electricity price x (joules / busy) x (busy / work) x the same mix

where work is weighted tokens (or inferences), comparable between two periods, and the last
factors are the model's share of the tokens, the share of the kind in it, and the part that no
cache answered. The weight of a kind is its relative device time and the same in both periods. The
change is decomposed by `log_mean_parts` (LMDI-I, Ang 2005: "The LMDI approach to decomposition
analysis: a practical guide"), so that the parts add up to it.

The input is sums over a period, from rows of `cost` on the serving basis: ratios of sums, and
their change between two equal spans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from costprobe.core.columns import RowColumns, number, numbers
from costprobe.core.periods import DAY_NS, WEEK_NS, TimeSpan
from costprobe.core.records import NS_PER_S, TOGETHER, Point
from costprobe.core.schema import ASSUMED, SERVING_RATIOS, Ratio, part_words
from costprobe.core.units import HOUR_S, MONTH_H

Factor = Literal[
    "hardware price", "time per inference", "electricity price", "energy per inference"
]
Name = TypeVar("Name", bound=str)
_FACTORS: Final[tuple[Factor, ...]] = get_args(Factor)
_ROUNDING: Final = 1e-12
# Models that add up to less than this share of their service leave counts that belong to none.
COUNTED_SHARE = 1 - 1e-6
Kind = Literal["in", "out", "item"]
# Relative device time of one of each kind, by model and kind.
Weights = Mapping[tuple[str, Kind], float]
Unit = Literal["token", "inference"]
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
    }
)
# A driver of the change is larger than this, in log units.
LEAST_PART: Final = 1e-9
# The month that amounts are stated for.
MONTH_S: Final = MONTH_H * HOUR_S
# Prices that differ by less, as a share, are the same.
SAME_PRICE: Final = 1e-3
# A span with a lower coverage is not compared: it lacks hours of the day that the other has.
COMPARED_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class CostFactors:
    """Factors of the cost of one inference.

    Attributes:
        price_per_s: Currency per device-second.
        time_s: Device-seconds per inference.
        electricity_per_j: Currency per joule, PUE included; 0 where the price includes it.
        energy_j: Joules per inference; any value where electricity_per_j is 0.
    """

    price_per_s: float
    time_s: float
    electricity_per_j: float = 0.0
    energy_j: float = 0.0

    @property
    def hardware(self) -> float:
        """Currency per inference for holding the device."""
        return self.price_per_s * self.time_s

    @property
    def electricity(self) -> float:
        """Currency per inference for electricity."""
        return self.electricity_per_j * self.energy_j

    @property
    def cost(self) -> float:
        """Currency per inference."""
        return self.hardware + self.electricity

    def at_prices_of(self, other: CostFactors) -> CostFactors:
        """Return this period's time and energy at the prices of another."""
        return CostFactors(other.price_per_s, self.time_s, other.electricity_per_j, self.energy_j)


@dataclass(frozen=True, slots=True)
class CostChange:
    """The decomposition of a change of cost.

    Attributes:
        log_ratio: ln(after / before).
        parts: Each factor's part of log_ratio; they add up to it.
    """

    log_ratio: float
    parts: Mapping[Factor, float]

    @property
    def change_pct(self) -> float:
        """The change in percent of the cost before."""
        return math.expm1(self.log_ratio) * 100

    @property
    def largest(self) -> tuple[Factor, float]:
        """Return the factor with the largest part in the direction of the change, and its share.

        The share is above 1 if another factor has the opposite sign.
        """
        sign = 1 if self.log_ratio >= 0 else -1
        factor = max(self.parts, key=lambda name: sign * self.parts[name])
        return factor, self.parts[factor] / self.log_ratio if self.log_ratio else 0.0


def split_change(before: CostFactors, after: CostFactors) -> CostChange:
    """Decompose the change between two costs.

    Args:
        before: The factors of the period before.
        after: The factors of the period after.

    Raises:
        ValueError: A cost is not positive, so that no ratio is defined.
    """
    parts = log_mean_parts(cost_terms(before), cost_terms(after))
    return CostChange(math.log(after.cost / before.cost), {name: parts[name] for name in _FACTORS})


def capacity_worth(price_per_s: float, ratio: float) -> float:
    """Return what a change of the cost per inference is worth in a month of a device that is fully used.

    The device costs the same before and after. Of its price the share 1 - 1/ratio pays for what the same
    work did not take before; after an improvement the share 1 - ratio is free for other work, and negative.

    Args:
        price_per_s: Currency per device-second, with the electricity of a device that is fully used.
        ratio: Cost per inference at constant prices, later over earlier.
    """
    return price_per_s * MONTH_S * (1 - 1 / ratio if ratio > 1 else ratio - 1)


def log_mean_parts(
    before: Sequence[Mapping[Name, float]], after: Sequence[Mapping[Name, float]]
) -> dict[Name, float]:
    """Return each factor's part of ln(after / before) of a sum of products; they add up to it.

    A term that is not positive on one side is the effect of its first factor that is not.

    Args:
        before: The factors of each term, by name; at most one of a term is negative.
        after: The same terms and factors later.

    Raises:
        ValueError: A sum is not positive, so that no ratio is defined.
    """
    products_before = [math.prod(old.values()) for old in before]
    products_after = [math.prod(new.values()) for new in after]
    total_before, total_after = math.fsum(products_before), math.fsum(products_after)
    # What is left of terms that cancel is rounding.
    least = [_ROUNDING * math.fsum(map(abs, terms)) for terms in (products_before, products_after)]
    if not (total_before > least[0] and total_after > least[1]):
        raise ValueError("both costs must be positive to decompose their change")
    mean_total = _log_mean(total_after, total_before)
    parts: dict[Name, float] = {}
    for old, new, product_before, product_after in zip(
        before, after, products_before, products_after, strict=True
    ):
        if product_before > 0 and product_after > 0:
            weight = _log_mean(product_after, product_before) / mean_total
            for name, value in old.items():
                parts[name] = parts.get(name, 0.0) + weight * math.log(new[name] / value)
            continue
        for name in old:
            parts.setdefault(name, 0.0)
        zero = next((name for name in old if not (old[name] > 0 and new[name] > 0)), None)
        if zero is not None:
            parts[zero] += (product_after - product_before) / mean_total
    return parts


def cost_terms(factors: CostFactors) -> list[dict[Factor, float]]:
    """Return the factors of each product that the cost is the sum of."""
    return [
        {"hardware price": factors.price_per_s, "time per inference": factors.time_s},
        {
            "electricity price": factors.electricity_per_j,
            "energy per inference": factors.energy_j,
        },
    ]


def _log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers, accurate also where they are nearly equal."""
    least, most = (a, b) if a < b else (b, a)
    excess = (most - least) / least
    return (most - least) / math.log1p(excess) if excess else least


@dataclass(frozen=True, slots=True)
class ModelSums:
    """What a service did for one of its models.

    Attributes:
        tokens_in: Prompt tokens, cached ones included.
        cached: Those that were found in a cache.
        tokens_out: Generated tokens.
        inferences: Inferred items.
        requests: Requests.
        tokens_in_cost: Currency for prompt tokens.
        tokens_out_cost: Currency for generated tokens.
        cost: Currency for all of it.
    """

    tokens_in: float = 0.0
    cached: float = 0.0
    tokens_out: float = 0.0
    inferences: float = 0.0
    requests: float = 0.0
    tokens_in_cost: float = 0.0
    tokens_out_cost: float = 0.0
    cost: float = 0.0

    @property
    def tokens(self) -> float:
        """Prompt and generated tokens."""
        return self.tokens_in + self.tokens_out

    @property
    def computed(self) -> float:
        """Prompt tokens that were not found in a cache."""
        return max(0.0, self.tokens_in - self.cached)


@dataclass(frozen=True, slots=True)
class ProductionSums:
    """A service, or one of its models, over a period; None if unknown.

    Attributes:
        window_s: Seconds of its complete windows.
        hardware: Currency for devices without electricity.
        electricity: Currency for electricity; 0 where the price includes it.
        idle_cost: Currency for idle time, electricity included.
        device_s: Device-seconds that were paid for.
        busy_s: Those in which the devices were busy.
        energy_j: Joules, idle time included.
        models: What it did, by model; one entry where models are not known.
        devices: Names of its devices in the newest window.
        currency: ISO 4217 code.
        is_assumed: Whether the price is an assumed one.
        decode_request_s: Seconds of decode summed over requests.
    """

    window_s: float
    hardware: float
    electricity: float
    idle_cost: float | None
    device_s: float
    busy_s: float | None
    energy_j: float | None
    models: Mapping[str, ModelSums]
    devices: tuple[str, ...] = ()
    currency: str = ""
    is_assumed: bool = False
    decode_request_s: float | None = None

    @property
    def cost(self) -> float:
        """Currency for devices and electricity."""
        return self.hardware + self.electricity

    @property
    def total(self) -> ModelSums:
        """Sum over the models."""
        return _added_models(list(self.models.values()))


# The fields of `cost` that are added up: those that a row has, those that each row needs, those of a model.
_SUMS: Final = {
    "window_s": "window_s",
    "hardware": "cost_total_hardware",
    "electricity": "cost_total_energy",
    "device_s": "device_s",
}
_KNOWN: Final = {
    "idle_cost": "cost_idle",
    "busy_s": "device_busy_s",
    "energy_j": "energy_j",
    "decode_request_s": "decode_request_s",
}
_OF_MODEL: Final = {
    "tokens_in": "tokens_in",
    "cached": "cached_tokens",
    "tokens_out": "tokens_out",
    "inferences": "inferences",
    "requests": "requests",
    "tokens_in_cost": "cost_tokens_in",
    "tokens_out_cost": "cost_tokens_out",
    "cost": "cost_total",
}


def production_sums(rows: Iterable[Point]) -> ProductionSums | None:
    """Return the sums over rows of a period; None without a row of the whole service.

    Args:
        rows: Rows of `cost` on the serving basis, of one service in one currency: the whole
            service's, and those of its models. Rows of one model alone count as a service.
    """
    all_rows = list(rows)
    own = [row for row in all_rows if "served_model" not in row.tags] or all_rows
    if not own:
        return None
    of_models: dict[str, list[Point]] = {}
    for row in all_rows:
        if "served_model" in row.tags:
            of_models.setdefault(row.tags["served_model"], []).append(row)
    whole = _model_sums(own)
    models = {name: _model_sums(group) for name, group in sorted(of_models.items())}
    counted = math.fsum(model.tokens or model.inferences for model in models.values())
    if not models or counted < COUNTED_SHARE * (whole.tokens or whole.inferences):
        models = {"": whole}
    newest = max(own, key=lambda row: row.time_ns)
    sums = {name: _sum(own, field) for name, field in _SUMS.items()}
    known: dict[str, Any] = {
        name: _total([number(row, field) for row in own]) for name, field in _KNOWN.items()
    }
    return ProductionSums(
        **sums,
        **known,
        models=models,
        devices=tuple(newest.tags.get("device", "").split(TOGETHER)),
        currency=newest.tags.get("currency", ""),
        is_assumed=newest.tags.get("plan") == ASSUMED,
    )


def added_sums(periods: Sequence[ProductionSums]) -> ProductionSums:
    """Return the sums over several periods, at least one, oldest first."""
    names = dict.fromkeys(name for period in periods for name in period.models)
    added: dict[str, Any] = {
        name: _total([getattr(period, name) for period in periods]) for name in (*_SUMS, *_KNOWN)
    }
    models = {
        name: _added_models([p.models[name] for p in periods if name in p.models]) for name in names
    }
    return replace(periods[-1], models=models, **added)


def _added_models(models: Sequence[ModelSums]) -> ModelSums:
    return ModelSums(
        *(math.fsum(getattr(model, name) for model in models) for name in ModelSums.__slots__)
    )


def _model_sums(rows: Sequence[Point]) -> ModelSums:
    return ModelSums(**{name: _sum(rows, field) for name, field in _OF_MODEL.items()})


def _sum(rows: Sequence[Point], field: str) -> float:
    return math.fsum(numbers(rows, field))


def _total(values: Sequence[float | None]) -> float | None:
    """Return a sum; None where a value is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def work_of(sums: ProductionSums, weights: Weights) -> float:
    """Return the weighted sum of what a service did."""
    return math.fsum(
        weight * _amount_of(sums.models.get(model, ModelSums()), kind)
        for (model, kind), weight in weights.items()
    )


def _amount_of(model: ModelSums, kind: Kind) -> float:
    """Return how many of a kind were computed."""
    return {"in": model.computed, "out": model.tokens_out, "item": model.inferences}[kind]


def kind_weights(before: ProductionSums, after: ProductionSums, *, is_by_token: bool) -> Weights:
    """Return the relative device time of each model's kinds: the mean of both periods.

    A price and an idle share scale all kinds of a period alike; kinds of both periods show by how much.
    """
    sides = [kind_prices(sums, is_by_token=is_by_token) for sums in (before, after)]
    common = [kind for kind in sides[0] if kind in sides[1]]
    scale = fmean(math.log(sides[1][kind] / sides[0][kind]) for kind in common) if common else 0.0
    weights = {}
    for kind in dict.fromkeys([*sides[0], *sides[1]]):
        logs = [
            math.log(side[kind]) + shift
            for side, shift in zip(sides, (scale / 2, -scale / 2), strict=True)
            if kind in side
        ]
        weights[kind] = math.exp(fmean(logs))
    return weights


def kind_prices(sums: ProductionSums, *, is_by_token: bool) -> dict[tuple[str, Kind], float]:
    """Return the cost of each kind that was computed, by model and kind."""
    prices: dict[tuple[str, Kind], float] = {}
    for name, model in sums.models.items():
        costs: tuple[tuple[Kind, float], ...] = (
            (("in", model.tokens_in_cost), ("out", model.tokens_out_cost))
            if is_by_token
            else (("item", model.cost),)
        )
        for kind, cost in costs:
            amount = _amount_of(model, kind)
            if cost > 0 and amount > 0:
                prices[name, kind] = cost / amount
    return prices


def as_one(sums: ProductionSums) -> ProductionSums:
    """Return the sums without a division among models."""
    return replace(sums, models={"": sums.total})


@dataclass(frozen=True, slots=True)
class ProductionChange:
    """The decomposition of a change of cost per unit between two periods.

    Attributes:
        unit: What the cost is divided by: one token or inference.
        before: Currency per unit in the earlier period.
        after: Currency per unit in the later one.
        parts: Each factor's part of `log_ratio`; they add up to it.
        traffic: Work of an hour, later over earlier.
        devices: Device-seconds of an hour, later over earlier.
        control: Time per inference of the probe on the same devices, later over earlier; None
            without one.
        currency: ISO 4217 code of the costs.
        is_assumed: Whether the price is an assumed one.
        rate_per_s: Units per second in the later period; None if the length of its windows is unknown.
        spend_per_s: From `spend_change`.
    """

    unit: Unit
    before: float
    after: float
    parts: Mapping[Part, float]
    traffic: float
    devices: float
    control: float | None = None
    currency: str = ""
    is_assumed: bool = False
    rate_per_s: float | None = None
    spend_per_s: float | None = None

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
    control: float | None = None,
    log_load: float = 0.0,
) -> ProductionChange:
    """Decompose the change of cost per token, or per inference where none are counted, between two periods.

    Args:
        before: The earlier period.
        after: The later period, in the same currency.
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
    is_by_token = before.total.tokens > 0 and after.total.tokens > 0
    unit: Unit = "token" if is_by_token else "inference"
    counts = [
        sums.total.tokens if is_by_token else sums.total.inferences for sums in (before, after)
    ]
    if min(counts) <= 0:
        raise ValueError("nothing was counted in one of the periods")
    if min(before.device_s, after.device_s) <= 0:
        raise ValueError("its rows in one of the periods have no device time (device_s)")
    weights = kind_weights(before, after, is_by_token=is_by_token)
    work = [work_of(sums, weights) for sums in (before, after)]
    if min(work) <= 0:
        raise ValueError("nothing was counted in one of the periods")
    knows_busy = bool(before.busy_s and after.busy_s)
    known = _Known(
        busy=knows_busy,
        idle=knows_busy and None not in (before.idle_cost, after.idle_cost),
        energy=bool(before.energy_j and after.energy_j),
    )
    speeds, loads = (1.0, 1.0 if control is None else control), (1.0, math.exp(log_load))
    sides = [
        [
            {**bearing, **mix}
            for mix in _mixes(sums, weights, is_by_token=is_by_token)
            for bearing in _bearings(sums, done, speed, load, known)
        ]
        for sums, done, speed, load in zip((before, after), work, speeds, loads, strict=True)
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
        is_assumed=after.is_assumed,
        rate_per_s=counts[1] / after.window_s if after.window_s else None,
        spend_per_s=spend_change(before, after),
    )


def spend_change(before: ProductionSums, after: ProductionSums) -> float | None:
    """Return the change of what is spent on a service, currency per s.

    None with the same devices at the same prices, whatever they do: what is left is the electricity of
    another traffic. None also if the length of the windows is unknown.
    """
    if min(before.window_s, after.window_s, before.device_s, after.device_s) <= 0:
        return None
    sides = [
        (
            sums.hardware / sums.device_s,
            sums.electricity / sums.energy_j if sums.energy_j else 0.0,
        )
        for sums in (before, after)
    ]
    is_same_price = all(
        math.isclose(old, new, rel_tol=SAME_PRICE) for old, new in zip(*sides, strict=True)
    )
    if is_same_price and set(before.devices) == set(after.devices):
        return None
    return after.cost / after.window_s - before.cost / before.window_s


class _Known(NamedTuple):
    """What is known of both periods."""

    busy: bool
    idle: bool
    energy: bool


def _bearings(
    sums: ProductionSums, work: float, speed_ratio: float, load: float, known: _Known
) -> Iterator[dict[Part, float]]:
    """Yield the products that add up to the cost of one unit of work.

    Args:
        sums: The sums of a period.
        work: Its work.
        speed_ratio: Time per inference, relative to the earlier period.
        load: Effect of the load, likewise.
        known: What is known of both periods.
    """
    price = sums.hardware / sums.device_s
    if known.busy and sums.busy_s:
        speed: dict[Part, float] = {
            "load": load,
            "speed": sums.busy_s / work / load,
        }
        held_per_busy = sums.device_s / sums.busy_s
    else:
        speed = {"speed": speed_ratio}
        held_per_busy = sums.device_s / work / speed_ratio
    yield {"hardware price": price, "idle time": held_per_busy, **speed}
    energy_j = (known.energy and sums.energy_j) or 1.0
    of_energy: dict[Part, float] = {"electricity price": sums.electricity / energy_j}
    if not (known.idle and sums.busy_s):
        mean: dict[Part, float] = {"mean power": energy_j / sums.device_s}
        yield {**of_energy, "idle time": held_per_busy, **mean, **speed}
        return
    idle_s = max(0.0, sums.device_s - sums.busy_s)
    # Of one sign, as both are of the same tariffs; without idle time there is no idle electricity.
    idle = (sums.idle_cost or 0.0) - price * idle_s
    share = idle / sums.electricity if sums.electricity and idle_s else 0.0
    idle_j = energy_j * min(1.0, max(0.0, share))
    yield {**of_energy, "busy power": (energy_j - idle_j) / sums.busy_s, **speed}
    idle_w = idle_j / idle_s if idle_s else 0.0
    yield {**of_energy, "idle time": idle_s / sums.busy_s, "idle power": idle_w, **speed}


def _mixes(
    sums: ProductionSums, weights: Weights, *, is_by_token: bool
) -> Iterator[dict[Part, float]]:
    """Yield the products that add up to the work of one unit: a term for each model and kind."""
    total = sums.total
    base = total.tokens if is_by_token else total.inferences
    for (model, kind), weight in weights.items():
        own = sums.models.get(model, ModelSums())
        size = own.tokens if is_by_token else own.inferences
        factors: dict[Part, float] = {"models": size / base}
        if kind == "in":
            factors["input and output"] = own.tokens_in / size if size else 0.0
            factors["cached input"] = own.computed / own.tokens_in if own.tokens_in else 0.0
        elif kind == "out":
            factors["input and output"] = own.tokens_out / size if size else 0.0
        yield {**factors, "weight": weight}


class ServingChange(NamedTuple):
    """A ratio of production in two spans of equal length and the same hours of the day.

    Attributes:
        before: Ratio in the earlier span.
        after: Ratio in the later one.
    """

    before: float
    after: float

    @property
    def pct(self) -> float | None:
        """Change in percent; None from zero."""
        return (self.after / self.before - 1) * 100 if self.before else None


def compared_spans(since_ns: int, until_ns: int) -> tuple[TimeSpan, TimeSpan]:
    """Return the two equal spans that are compared for a time.

    They hold the same hours of the day, and from two weeks on the same days of the week: otherwise a
    change would be that of the time of day. Of a long time they are its last whole days in two
    halves; of less than two days its last day and the one before; of less than a day that time and
    the same hours of the day before.

    Args:
        since_ns: UTC ns.
        until_ns: UTC ns.
    """
    length_ns = until_ns - since_ns
    half_ns = length_ns // 2
    unit_ns = WEEK_NS if half_ns >= WEEK_NS else DAY_NS
    span_ns = half_ns // unit_ns * unit_ns or min(length_ns, DAY_NS)
    shift_ns = max(span_ns, DAY_NS)
    after = TimeSpan(until_ns - span_ns, until_ns)
    return TimeSpan(after.start_ns - shift_ns, after.end_ns - shift_ns), after


def ratio_of_sums(rows: Iterable[Point], field: str) -> float | None:
    """Return a ratio of production over rows; see `ratio_of_columns`."""
    ratio = SERVING_RATIOS[field]
    rows = [row for row in rows if _has_ratio(row.tags, ratio)]
    times_ns = [row.time_ns for row in rows]
    names = {field, *ratio.fields}
    columns = {name: [row.fields.get(name) for row in rows] for name in names}
    return ratio_of_columns([RowColumns({}, times_ns, times_ns, columns)], field)


def _has_ratio(tags: Mapping[str, str], ratio: Ratio) -> bool:
    return not (ratio.is_of_counts and part_words(tags))


def ratio_of_columns(parts: Iterable[RowColumns], field: str) -> float | None:
    """Return a ratio of production over rows of `cost`; None where nothing was counted.

    Rows without the numerator, such as windows of unknown energy, do not count, nor do those of a
    part of a group, whose counts another host may have; idle windows do.

    Args:
        parts: Rows on the serving basis, of one service or model, in one currency.
        field: A ratio of `SERVING_RATIOS`.
    """
    ratio = SERVING_RATIOS[field]
    sums: dict[str, list[float]] = {}
    for part in parts:
        if ratio.over not in part.columns or not _has_ratio(part.tags, ratio):
            continue
        over, per = part.column(ratio.over), part.column(ratio.per)
        if ratio.older:
            pairs = zip(per, part.column(ratio.older), strict=True)
            per = [older if own is None else own for own, older in pairs]
        # An idle window has a cost, counts or not.
        needed = [over] if ratio.over == "cost_total" else [over, per]
        found = replace(part, columns={**part.columns, ratio.per: list(per)})
        counted = found.where([None not in own for own in zip(*needed, strict=True)])
        for name in ratio.fields:
            if values := counted.numbers(name):
                sums.setdefault(name, []).extend(values)
    return ratio.of({name: math.fsum(values) for name, values in sums.items()})


def change_of(rows: Sequence[Point], field: str, spans: Sequence[TimeSpan]) -> ServingChange | None:
    """Return how production changed between two spans.

    Args:
        rows: Rows of `cost` on the serving basis or of `serving`, of one service or model, in one
            currency, over both spans.
        field: A ratio of `SERVING_RATIOS`, or a total of a window, which is compared by its rate.
        spans: The earlier and the later one, of equal length.

    Returns:
        None where windows cover less than nine tenths of a span, or nothing was counted.
    """
    sums: list[float] = []
    for span in spans:
        in_span = [row for row in rows if span.start_ns < middle_ns(row) <= span.end_ns]
        window_s = math.fsum(_window_s(row) for row in in_span)
        if window_s < COMPARED_SHARE * (span.end_ns - span.start_ns) / NS_PER_S:
            return None
        if field in SERVING_RATIOS:
            value = ratio_of_sums(in_span, field)
        else:
            totals = numbers(in_span, field)
            value = math.fsum(totals) / window_s if totals else None
        if value is None:
            return None
        sums.append(value)
    return ServingChange(*sums)


def _window_s(row: Point) -> float:
    return number(row, "window_s") or 0.0


def middle_ns(row: Point) -> int:
    """Return the middle of a window, or of those in a rolled-up row, which ends with the newest."""
    end_ns = getattr(row, "newest_ns", row.time_ns)
    return int(end_ns - _window_s(row) / 2 * NS_PER_S)
