"""Sums of production over a period, from rows of `cost` on the serving basis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from costprobe.core.device_names import TOGETHER
from costprobe.core.records import Point
from costprobe.core.row_values import number

# Models that add up to less than this share of their service leave counts that belong to none.
COUNTED_SHARE = 1 - 1e-6


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

    @property
    def cost(self) -> float:
        """Currency for devices and electricity."""
        return self.hardware + self.electricity

    @property
    def idle_share(self) -> float | None:
        """Share of the device-seconds in which the devices were idle."""
        if self.busy_s is None or self.device_s <= 0:
            return None
        return min(1.0, max(0.0, 1 - self.busy_s / self.device_s))

    @property
    def total(self) -> ModelSums:
        """Sum over the models."""
        return _added_models(list(self.models.values()))


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
    return ProductionSums(
        window_s=_sum(own, "window_s") or 0.0,
        hardware=_sum(own, "cost_total_hardware") or 0.0,
        electricity=_sum(own, "cost_total_energy") or 0.0,
        idle_cost=_sum(own, "cost_idle", is_needed=True),
        device_s=math.fsum(held_s(row) for row in own),
        busy_s=_total([busy_s(row) for row in own]),
        energy_j=_sum(own, "energy_j", is_needed=True),
        models=models,
        devices=devices_of(newest),
        currency=newest.tags.get("currency", ""),
    )


def added_sums(periods: Sequence[ProductionSums]) -> ProductionSums:
    """Return the sums over several periods, at least one, oldest first."""
    names = dict.fromkeys(name for period in periods for name in period.models)
    return ProductionSums(
        window_s=math.fsum(period.window_s for period in periods),
        hardware=math.fsum(period.hardware for period in periods),
        electricity=math.fsum(period.electricity for period in periods),
        idle_cost=_total([period.idle_cost for period in periods]),
        device_s=math.fsum(period.device_s for period in periods),
        busy_s=_total([period.busy_s for period in periods]),
        energy_j=_total([period.energy_j for period in periods]),
        models={
            name: _added_models([p.models[name] for p in periods if name in p.models])
            for name in names
        },
        devices=periods[-1].devices,
        currency=periods[-1].currency,
    )


def devices_of(row: Point) -> tuple[str, ...]:
    """Return the names of the devices of a service's row."""
    return tuple(row.tags.get("device", "").split(TOGETHER))


def held_s(row: Point) -> float:
    """Return the device-seconds of a row; rows of earlier versions have those of whole devices."""
    known_s = number(row, "device_s")
    if known_s is not None:
        return known_s
    return (number(row, "window_s") or 0.0) * len(devices_of(row))


def busy_s(row: Point) -> float | None:
    """Return the busy device-seconds of a row; by the idle share of cost in rows of earlier versions."""
    if number(row, "device_s") is not None:
        return number(row, "device_busy_s")
    idle_share = number(row, "idle_share")
    return None if idle_share is None else (1 - idle_share) * held_s(row)


def _added_models(models: Sequence[ModelSums]) -> ModelSums:
    return ModelSums(
        *(math.fsum(getattr(model, name) for model in models) for name in ModelSums.__slots__)
    )


def _model_sums(rows: Sequence[Point]) -> ModelSums:
    return ModelSums(
        tokens_in=_sum(rows, "tokens_in") or 0.0,
        cached=_sum(rows, "cached_tokens") or 0.0,
        tokens_out=_sum(rows, "tokens_out") or 0.0,
        inferences=_sum(rows, "inferences") or 0.0,
        requests=_sum(rows, "requests") or 0.0,
        tokens_in_cost=_sum(rows, "cost_tokens_in") or 0.0,
        tokens_out_cost=_sum(rows, "cost_tokens_out") or 0.0,
        cost=_sum(rows, "cost_total") or 0.0,
    )


def _sum(rows: Sequence[Point], field: str, *, is_needed: bool = False) -> float | None:
    """Return the sum of a field; None where no row has it, or one lacks it that is needed."""
    values = [number(row, field) for row in rows]
    if is_needed:
        return _total(values)
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
