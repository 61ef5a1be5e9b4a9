"""Seeded production of a service: rows of `cost` in windows of five minutes, with a known truth.

Demand has a daily pattern, weekends, growth and random days; launches, which bring other requests, holidays,
outages, and replicas that are added and removed by hand or with the demand. The server is additive, or batches: a busier device takes less time for a token,
up to one that is busy whenever a request is there. Its true device time of an output token differs from
the weight that rows divide their cost by. A change of efficiency is a factor on device time from an
instant on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from costprobe.core.records import NS_PER_S, Point

WINDOW_S = 300
DAY_S = 86_400
# More work than this share of the devices' time is refused.
SATURATED = 0.85
# Requests in flight with which a step of "decoding" takes twice as long as alone.
DOUBLED = 8.0
# A Monday's midnight, UTC.
START_S = 1_772_409_600
PRICE_PER_S = 2.5 / 3600
ELECTRICITY_PER_J = 0.12 / 3.6e6


class ServedWork(NamedTuple):
    """What a service did in a window."""

    requests: float
    tokens_in: float
    tokens_out: float
    cached: float


@dataclass(frozen=True)
class DemandRecipe:
    """What happens to a service.

    Attributes:
        seed: Of everything random.
        days: Length of the history.
        server: "additive", "batching", "always busy", or "decoding": busy while it has a request,
            whose steps take longer with their batch, and which counts the time of decode.
        has_tokens: Whether tokens are counted, or inferences only.
        slower_from_s: Seconds after the start from which device time has a factor.
        slower: That factor.
        ramp_days: Duration of its growth; 0 is a step.
        demand_from_s: Likewise of the demand.
        demand: That factor.
        is_quiet: Without launches, holidays, outages and changes of replicas.
    """

    seed: int
    days: int = 42
    server: str = "batching"
    has_tokens: bool = True
    slower_from_s: float = math.inf
    slower: float = 1.0
    ramp_days: float = 0.0
    demand_from_s: float = math.inf
    demand: float = 1.0
    is_quiet: bool = False

    def slower_at(self, time_s: float) -> float:
        """Return the factor on device time at a time since the start."""
        since_s = time_s - self.slower_from_s
        if since_s < 0:
            return 1.0
        share = min(1.0, since_s / self.ramp_days / DAY_S) if self.ramp_days else 1.0
        return math.exp(share * math.log(self.slower))


@dataclass
class _Service:
    """What is random about a service and the same throughout its history."""

    rng: random.Random
    recipe: DemandRecipe
    launches: list[tuple[float, float, float]] = field(default_factory=list)
    holidays: list[tuple[float, float, float]] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    replicas: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng, end_s = self.rng, self.recipe.days * DAY_S
        self.peak_hour = rng.uniform(0, 24)
        self.amplitude = rng.uniform(0.2, 1.2)
        self.weekend = rng.uniform(0.25, 1.1)
        self.growth = rng.uniform(-0.05, 0.1)
        self.rate = math.exp(rng.uniform(math.log(0.5), math.log(20)))
        self.day_noise, self.hour_noise = rng.uniform(0.02, 0.1), rng.uniform(0.02, 0.1)
        self.tokens_in, self.tokens_out = rng.uniform(300, 3000), rng.uniform(50, 500)
        self.cached = rng.uniform(0, 0.6)
        self.mix_by_day = rng.uniform(0, 0.2)
        self.length_cv = rng.uniform(0.5, 1.5)
        self.true_weight = rng.uniform(3, 12)
        self.stated_weight = self.true_weight * math.exp(rng.gauss(0, 0.35))
        self.window_noise, self.slow_noise = rng.uniform(0.005, 0.03), rng.uniform(0.002, 0.01)
        self.idle_w, self.busy_w = rng.uniform(60, 120), rng.uniform(300, 650)
        self.usual_share = rng.uniform(0.1, 0.6)
        self.devices = rng.choice([1, 1, 2, 4])
        self.replicas = [(0.0, self.devices)]
        self.launch_mix = (rng.uniform(0.6, 1.6), rng.uniform(0.6, 1.6))
        self.scales = not self.recipe.is_quiet and rng.random() < 0.4
        if self.recipe.is_quiet:
            return
        for _ in range(rng.randint(0, 2)):
            lasts_s = rng.choice([rng.uniform(1, 7) * DAY_S, math.inf])
            self.launches.append((rng.uniform(0, end_s), lasts_s, rng.uniform(1.2, 2.5)))
        for _ in range(rng.randint(0, 3)):
            day = rng.randrange(self.recipe.days) * DAY_S
            self.holidays.append(
                (day, day + rng.choice([1, 1, 2, 4]) * DAY_S, rng.uniform(0.2, 0.7))
            )
        for _ in range(rng.randint(0, 2)):
            start_s = rng.uniform(0, end_s)
            self.outages.append((start_s, start_s + rng.uniform(0.2, 8) * 3600))
        for _ in range(rng.randint(0, 4)):
            self.replicas.append(
                (rng.uniform(0, end_s), max(1, self.devices + rng.choice([-1, 1, 2])))
            )
        self.replicas.sort()

    def demand(self, time_s: float) -> float:
        """Return requests per s expected at a time since the start."""
        hour, day = time_s / 3600 % 24, int(time_s // DAY_S)
        log = self.amplitude * math.cos((hour - self.peak_hour) / 24 * 2 * math.pi)
        log += self.growth * time_s / (7 * DAY_S)
        value = self.rate * math.exp(log) * (self.weekend if day % 7 >= 5 else 1.0)
        for start_s, lasts_s, factor in self.launches:
            if start_s <= time_s < start_s + lasts_s:
                value *= factor
        for start_s, stop_s, factor in self.holidays:
            if start_s <= time_s < stop_s:
                value *= factor
        return value * (self.recipe.demand if time_s >= self.recipe.demand_from_s else 1.0)

    def devices_at(self, time_s: float) -> int:
        """Return the number of devices at a time since the start."""
        if self.scales:
            usual = self.rate / 0.8
            return max(1, math.ceil(self.devices * self.demand(time_s // 3600 * 3600) / usual))
        return [count for start_s, count in self.replicas if start_s <= time_s][-1]

    def mix(self, time_s: float) -> tuple[float, float]:
        """Return factors on input and output tokens of a request: launches bring other requests."""
        is_launched = any(
            start_s <= time_s < start_s + lasts_s for start_s, lasts_s, _ in self.launches
        )
        return self.launch_mix if is_launched else (1.0, 1.0)


def rows(recipe: DemandRecipe) -> Iterator[Point]:
    """Yield the rows of the whole service, oldest first; a window of an outage has none."""
    service = _Service(random.Random(recipe.seed), recipe)
    rng = service.rng
    per_token_s = _device_time(service)
    of_day = of_hour = slow = 0.0
    for window in range(recipe.days * DAY_S // WINDOW_S):
        time_s = window * WINDOW_S
        if time_s % DAY_S == 0:
            of_day = rng.gauss(0, service.day_noise)
        if time_s % 3600 == 0:
            of_hour = 0.7 * of_hour + rng.gauss(0, service.hour_noise)
        slow = 0.995 * slow + rng.gauss(0, service.slow_noise * 0.1)
        expected = service.demand(time_s) * math.exp(of_day + of_hour) * WINDOW_S
        one = _work(service, _mean_request(service, *service.mix(time_s)))
        slower = recipe.slower_at(time_s)
        capacity = SATURATED * WINDOW_S * service.devices_at(time_s) / (one * per_token_s * slower)
        expected = min(expected, capacity)
        requests = float(max(0, round(rng.gauss(expected, math.sqrt(expected)))))
        served = _served(service, requests, time_s)
        lost = any(start_s <= time_s < stop_s for start_s, stop_s in service.outages)
        if lost or rng.random() < 0.003:
            continue
        noise = slow + rng.gauss(0, service.window_noise)
        yield _row(service, served, time_s, per_token_s * math.exp(noise))


def request_changes_s(recipe: DemandRecipe) -> list[float]:
    """Return the seconds after the start at which other requests begin or cease to arrive."""
    service = _Service(random.Random(recipe.seed), recipe)
    return [
        at_s
        for start_s, lasts_s, _ in service.launches
        for at_s in (start_s, start_s + lasts_s)
        if at_s < recipe.days * DAY_S
    ]


def _served(service: _Service, requests: float, time_s: float) -> ServedWork:
    """Return what is served in a window."""
    rng = service.rng
    spread = service.length_cv / math.sqrt(max(1.0, requests))
    shift = service.mix_by_day * math.cos(time_s / DAY_S * 2 * math.pi)
    of_in, of_out = service.mix(time_s)
    tokens_in = (
        of_in * requests * service.tokens_in * max(0.1, rng.gauss(1, spread)) * math.exp(shift)
    )
    tokens_out = of_out * requests * service.tokens_out * max(0.1, rng.gauss(1, spread))
    cached = service.cached * tokens_in * rng.uniform(0.95, 1.0)
    return ServedWork(requests, tokens_in, tokens_out, cached)


def _work(service: _Service, served: ServedWork) -> float:
    if not service.recipe.has_tokens:
        return served.requests
    return served.tokens_in - served.cached + service.true_weight * served.tokens_out


def _device_time(service: _Service) -> float:
    """Return the device time of a unit of work with which a usual day has the usual busy share."""
    mean = sum(service.demand(hour * 3600.0) for hour in range(24)) / 24
    return service.usual_share * service.devices / mean / _work(service, _mean_request(service))


def _mean_request(service: _Service, of_in: float = 1.0, of_out: float = 1.0) -> ServedWork:
    tokens_in = of_in * service.tokens_in
    return ServedWork(1.0, tokens_in, of_out * service.tokens_out, tokens_in * service.cached)


def _row(service: _Service, served: ServedWork, time_s: float, unit_s: float) -> Point:
    """Return the row of a window."""
    recipe, count = service.recipe, service.devices_at(time_s)
    held_s = float(WINDOW_S * count)
    offered = _work(service, served) * unit_s / held_s
    slower = recipe.slower_at(time_s)
    # Each takes longer with the others, by Little's law; above the capacity requests are refused.
    in_flight = DOUBLED / (1 / min(0.9, offered * slower) - 1) if offered > 0 else 0.0
    share = {
        "additive": offered,
        "batching": offered**0.75 * service.usual_share**0.25 if offered > 0 else 0.0,
        "always busy": 1 - math.exp(-1.5 * offered),
        "decoding": (1 - math.exp(-in_flight)) / slower,
    }[recipe.server]
    busy_s = held_s * min(1.0, share * slower)
    energy_j = service.idle_w * (held_s - busy_s) + service.busy_w * busy_s
    hardware, electricity = PRICE_PER_S * held_s, ELECTRICITY_PER_J * energy_j
    fields: dict[str, float | int | str | bool] = {
        "cost_total": hardware + electricity,
        "cost_total_hardware": hardware,
        "cost_total_energy": electricity,
        "cost_idle": (PRICE_PER_S + ELECTRICITY_PER_J * service.idle_w) * (held_s - busy_s),
        "device_s": held_s,
        "device_busy_s": busy_s,
        "energy_j": energy_j,
        "requests": served.requests,
        "inferences": served.requests,
        "window_s": float(WINDOW_S),
    }
    if recipe.server == "decoding":
        fields["decode_request_s"] = in_flight * held_s
    if recipe.has_tokens:
        of_in = served.tokens_in - served.cached
        of_out = service.stated_weight * served.tokens_out
        total = of_in + of_out or 1.0
        fields |= {
            "tokens_in": served.tokens_in,
            "tokens_out": served.tokens_out,
            "cached_tokens": served.cached,
            "cost_tokens_in": (hardware + electricity) * of_in / total,
            "cost_tokens_out": (hardware + electricity) * of_out / total,
        }
    tags = {
        "service": "chat",
        "basis": "serving",
        "device": "+".join(f"gpu{index}" for index in range(count)),
        "plan": "on_demand",
        "currency": "USD",
    }
    return Point("cost", tags, fields, int((START_S + time_s + WINDOW_S) * NS_PER_S))
