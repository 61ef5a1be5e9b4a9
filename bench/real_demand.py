"""Production of a service with the demand of a real tenant, on a simulated server that never changes by itself.

Requests per second by ten minutes, the variation of their gaps and the lengths of requests are those of
tenants of large language models (github.com/alibaba/ServeGen, Apache-2.0; `servegen.csv.gz`). Requests arrive in slots
of ten seconds, in bursts as their gaps vary; what a server cannot take waits. The server "steps" decodes a
batch in steps that take longer with it, beside prefill, and is busy while it has a request; "saturates" has a
busy share that is concave in what is offered.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from costprobe.core.records import Point
from demand import DAY_S, WINDOW_S, ServedWork, cost_row

FILE = "servegen.csv.gz"
SERVERS = ("steps", "saturates")
SLOT_S = 10
RATE_S = 600
# What waits longer than this is refused; what a server takes at most.
MOST_WAITING_S = 1800
MOST_BUSY = 0.9
MOST_OFFERED = 2.0
SLOWER = 1.1
SLOWER_DAYS = (6, 13)


class Demand(NamedTuple):
    """Ten minutes of a tenant: requests per s, variation of gaps, mean and deviation of tokens."""

    rate: float
    cv: float
    of_in: tuple[float, float]
    of_out: tuple[float, float]


@dataclass(frozen=True)
class TenantRecipe:
    """What happens to a service.

    Attributes:
        folder: That of the data.
        tenant: Its name there.
        server: "steps" or "saturates".
        is_changed: Whether the server becomes slower once.
    """

    folder: Path
    tenant: str
    server: str
    is_changed: bool = False

    @property
    def slower(self) -> float:
        """The factor of the change; 1 without one."""
        return SLOWER if self.is_changed else 1.0

    @property
    def slower_from_s(self) -> float:
        """Seconds after the start from which device time has that factor."""
        if not self.is_changed:
            return math.inf
        first, last = (days * DAY_S for days in SLOWER_DAYS)
        return random.Random(f"change {self.tenant} {self.server}").uniform(first, last)


@cache
def tenants(folder: Path) -> dict[str, list[Demand]]:
    """Return the demand of each tenant, by its name."""
    found: dict[str, list[Demand]] = {}
    with gzip.open(folder / FILE, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, _, *numbers = row.values()
            rate, cv, *tokens = (float(number or "nan") for number in numbers)
            demand = Demand(rate, cv, (tokens[0], tokens[1]), (tokens[2], tokens[3]))
            found.setdefault(name, []).append(demand)
    return found


def recipes(folder: Path, half: int) -> list[TenantRecipe]:
    """Return histories without a change and with one, of every second tenant."""
    return [
        TenantRecipe(folder, tenant, server, is_changed)
        for tenant in sorted(tenants(folder))[half::2]
        for server in SERVERS
        for is_changed in (False, True)
    ]


class _Server:
    """What is random about a server and the same throughout its history."""

    def __init__(self, recipe: TenantRecipe, demands: list[Demand]) -> None:
        self.kind = recipe.server
        rng = random.Random(f"server {recipe.tenant} {recipe.server}")
        self.cached = rng.choice([0.0, rng.uniform(0.1, 0.6)])
        # Of a step without requests, of each request in it, and of a token of prefill, in s.
        self.step_s = rng.uniform(0.008, 0.03)
        self.decode_s, self.prefill_s = rng.uniform(2e-4, 8e-4), rng.uniform(0.5e-4, 2e-4)
        self.of_request_s = self.prefill_s * rng.choice([0.0, rng.uniform(0, 200)])
        self.stated_weight = self.decode_s / self.prefill_s * math.exp(rng.gauss(0.3, 0.35))
        self.noise, self.phi = rng.uniform(0.003, 0.012), rng.uniform(0, 0.9)
        self.idle_w, self.busy_w = rng.uniform(60, 120), rng.uniform(300, 650)
        seconds = sorted(
            demand.rate * self.request_s(demand.of_in[0], demand.of_out[0])
            for demand in demands
            if demand.rate > 0
        )
        self.largest = seconds[len(seconds) * 99 // 100] / rng.uniform(0.4, 0.9)
        self.devices = math.ceil(self.largest) if self.kind == "steps" else rng.choice([1, 2, 4])

    def request_s(self, tokens_in: float, tokens_out: float) -> float:
        """Return the device time of a request in a large batch."""
        computed = tokens_in * (1 - self.cached)
        return computed * self.prefill_s + tokens_out * self.decode_s + self.of_request_s

    def busy(self, work: ServedWork, slower: float) -> tuple[float, float]:
        """Return busy share and requests in flight of a device in a slot."""
        offered_s = work.requests * self.of_request_s
        offered_s += (work.tokens_in - work.cached) * self.prefill_s
        if self.kind == "saturates":
            offered = (offered_s + work.tokens_out * self.decode_s) / SLOT_S / self.largest
            return min(1.0, (1 - math.exp(-1.3 * offered)) * slower), 0.0
        held_s = SLOT_S * self.devices
        prefill = offered_s / held_s * slower
        per_s = (work.tokens_out - work.requests) / held_s * slower
        in_flight = self.step_s * per_s / max(0.05, 1 - prefill - self.decode_s * per_s)
        return 1 - max(0.0, 1 - prefill) * math.exp(-in_flight), in_flight

    def share(self, work: ServedWork, slower: float) -> float:
        """Return the share of what is offered in a slot that the server can take."""
        mean = self.request_s(work.tokens_in, work.tokens_out) - self.of_request_s
        offered = (mean + work.requests * self.of_request_s) / SLOT_S
        if self.kind == "saturates":
            return min(1.0, MOST_OFFERED * self.largest / offered) if offered else 1.0
        return min(1.0, MOST_BUSY * self.devices / offered / slower) if offered else 1.0


def rows(recipe: TenantRecipe) -> Iterator[Point]:
    """Yield the rows of the whole service, oldest first."""
    demands = tenants(recipe.folder)[recipe.tenant]
    server = _Server(recipe, demands)
    rng = random.Random(f"demand {recipe.tenant} {recipe.server} {recipe.is_changed}")
    waiting, slow = ServedWork(0.0, 0.0, 0.0, 0.0), 0.0
    for window in range(len(demands) * RATE_S // WINDOW_S):
        time_s = float(window * WINDOW_S)
        demand = demands[int(time_s // RATE_S)]
        slower = recipe.slower if time_s >= recipe.slower_from_s else 1.0
        slow = server.phi * slow + math.sqrt(1 - server.phi**2) * rng.gauss(0, server.noise)
        slower *= math.exp(slow)
        served, busy_s, decode_s = ServedWork(0.0, 0.0, 0.0, 0.0), 0.0, 0.0
        for _ in range(WINDOW_S // SLOT_S):
            offered = _sum(waiting, _arriving(rng, demand, server.cached))
            share = server.share(offered, slower)
            done = ServedWork(*(share * part for part in offered))
            kept = min(1.0, MOST_WAITING_S / SLOT_S * share) * (1 - share)
            waiting = ServedWork(*(kept * part for part in offered))
            busy, in_flight = server.busy(done, slower)
            served = _sum(served, done)
            busy_s += SLOT_S * server.devices * busy
            decode_s += SLOT_S * server.devices * in_flight
        held_s = WINDOW_S * server.devices
        row = cost_row(
            served,
            time_s,
            server.devices,
            busy_s,
            energy_j=server.idle_w * (held_s - busy_s) + server.busy_w * busy_s,
            idle_w=server.idle_w,
            output_weight=server.stated_weight,
        )
        if server.kind == "steps":
            row = replace(row, fields={**row.fields, "decode_request_s": decode_s})
        yield row


def _sum(one: ServedWork, other: ServedWork) -> ServedWork:
    return ServedWork(*(mine + its for mine, its in zip(one, other, strict=True)))


def _arriving(rng: random.Random, demand: Demand, cached: float) -> ServedWork:
    """Return what arrives in a slot: a negative binomial count whose dispersion is that of the gaps."""
    mean = demand.rate * SLOT_S
    if not mean or math.isnan(demand.of_in[0]):
        return ServedWork(0.0, 0.0, 0.0, 0.0)
    dispersion = demand.cv**2
    if dispersion > 1:
        mean = rng.gammavariate(mean / (dispersion - 1), dispersion - 1)
    count = _poisson(rng, mean) if dispersion > 1 else _rounded(rng, mean, mean * dispersion)
    if not count:
        return ServedWork(0.0, 0.0, 0.0, 0.0)
    tokens_in = _total(rng, count, *demand.of_in)
    mean, deviation = demand.of_out
    # Each request has one at least.
    tokens_out = count + _total(rng, count, max(0.0, mean - 1), deviation)
    return ServedWork(count, tokens_in, tokens_out, cached * tokens_in * rng.uniform(0.95, 1.0))


def _poisson(rng: random.Random, mean: float) -> float:
    if mean > 30:
        return _rounded(rng, mean, mean)
    count, product, least = 0, rng.random(), math.exp(-mean)
    while product > least:
        count, product = count + 1, product * rng.random()
    return float(count)


def _rounded(rng: random.Random, mean: float, variance: float) -> float:
    """Return a count with a mean, also where it is below one."""
    return float(max(0, math.floor(rng.gauss(mean, math.sqrt(variance)) + rng.random())))


def _total(rng: random.Random, count: float, mean: float, deviation: float) -> float:
    """Return the tokens of some requests: a gamma variable of the same mean and deviation."""
    if deviation <= 0 or mean <= 0:
        return count * mean
    shape = count * (mean / deviation) ** 2
    return rng.gammavariate(shape, count * mean / shape)
