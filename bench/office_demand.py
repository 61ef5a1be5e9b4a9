"""Seeded production of services for office hours: rows like those of `demand`, made independently of it.

Demand has office hours with a lunch dip, nights with 8 to 50 % of the traffic, weekends, bursts, ramps over
days, launches, falls, holidays, and replicas that are added and removed. Requests belong to classes with
their own lengths, whose shares vary over the day; some launches bring a further class. A request takes
device time for input tokens, output tokens and itself. The server is additive, saturates, or runs passes with
a fixed part that a larger batch divides. Noise is AR(1) from window to window.

A change of efficiency is a factor on the device time of the work at the same load, from an instant on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from costprobe.core.records import Point
from demand import DAY_S, WINDOW_S, ServedWork, cost_row

SERVERS = ("additive", "saturating", "passes")
# More work than this share of the devices' time is refused.
MOST_BUSY = 0.9
HOUR_S = 3600
# Changes of efficiency, and the days in which they begin.
CHANGES = (1.1, 1 / 1.1, 1.1, 1.2)
CHANGE_DAYS = (8, 20)


@dataclass(frozen=True)
class OfficeRecipe:
    """What happens to a service.

    Attributes:
        seed: Of everything random.
        days: Length of the history.
        server: "additive", "saturating" or "passes".
        has_tokens: Whether tokens are counted, or inferences only.
        is_changed: Whether the efficiency changes once.
    """

    seed: int
    days: int = 42
    server: str = "additive"
    has_tokens: bool = True
    is_changed: bool = False

    @property
    def slower(self) -> float:
        """The factor of the change of efficiency; 1 without one."""
        return CHANGES[self.seed // 3 % len(CHANGES)] if self.is_changed else 1.0

    @property
    def slower_from_s(self) -> float:
        """Seconds after the start from which device time has that factor."""
        return _service(self).slower_from_s


@dataclass(frozen=True)
class _Class:
    """Requests of one kind: tokens of a request, their spread, the cached share, the hour of its peak."""

    tokens_in: float
    tokens_out: float
    spread: float
    cached: float
    peak_hour: float

    @classmethod
    def drawn(cls, rng: random.Random) -> _Class:
        """Return one at random."""
        return cls(
            tokens_in=math.exp(rng.uniform(math.log(150), math.log(4000))),
            tokens_out=math.exp(rng.uniform(math.log(30), math.log(600))),
            spread=rng.uniform(0.3, 1.2),
            cached=rng.choice([0.0, rng.uniform(0.1, 0.7)]),
            peak_hour=rng.uniform(0, 24),
        )


class _OfficeService:
    """What is random about a service and the same throughout its history."""

    def __init__(self, recipe: OfficeRecipe) -> None:
        self.recipe = recipe
        self.rng = rng = random.Random(f"office {recipe.seed} {recipe.is_changed}")
        end_s = recipe.days * DAY_S
        self.rate = math.exp(rng.uniform(math.log(0.4), math.log(15)))
        self.opens, self.lasts = rng.uniform(6, 10), rng.uniform(8, 12)
        self.zone_h = rng.uniform(0, 24)
        self.lunch, self.night = rng.uniform(0, 0.4), rng.uniform(0.08, 0.5)
        self.weekend = rng.uniform(0.1, 0.9)
        self.day_noise, self.window_noise = rng.uniform(0.02, 0.08), rng.uniform(0.02, 0.08)
        self.bursts = [
            (at_s, at_s + rng.uniform(600, 5400), rng.uniform(1.3, 2.5))
            for at_s in (rng.uniform(0, end_s) for _ in range(rng.randint(0, 2) * recipe.days // 7))
        ]
        # Launches, falls and ramps: start, end of the ramp, end, and the factor.
        self.moves = [self._move(end_s) for _ in range(rng.randint(0, 4))]
        self.holidays = {rng.randrange(recipe.days) for _ in range(rng.randint(0, 3))}
        self.classes = [_Class.drawn(rng) for _ in range(rng.randint(1, 3))]
        self.shares = [rng.uniform(0.2, 1) for _ in self.classes]
        self.swing = rng.uniform(0, 0.4)
        self.launched = _Class.drawn(rng)
        self.launches = [
            (rng.uniform(0, end_s), rng.choice([math.inf, rng.uniform(1, 8) * DAY_S]))
            for _ in range(rng.choice([0, 0, 1, 1, 2]))
        ]
        self.launched_share = rng.uniform(0.15, 1.0)
        # Device time of an input token is the unit.
        self.of_output = rng.uniform(3, 12)
        self.of_request = rng.choice([0.0, rng.uniform(0, 300)])
        self.stated_output = self.of_output * math.exp(rng.gauss(0, 0.35))
        self.noise, self.phi = rng.uniform(0.005, 0.015), rng.uniform(0, 0.95)
        self.idle_w, self.busy_w = rng.uniform(50, 130), rng.uniform(250, 700)
        self.devices = rng.choice([1, 1, 2, 3, 6])
        self.replicas = sorted(
            (rng.uniform(0, end_s), max(1, self.devices + rng.choice([-2, -1, 1, 2])))
            for _ in range(rng.randint(0, 4))
        )
        self.fixed_share = rng.uniform(0.3, 3)
        usual = rng.uniform(0.1, 0.6) * self.devices
        office_s = (self.zone_h + self.opens + self.lasts / 4) % 24 * HOUR_S
        self.unit_s = usual / (self.rate * self._mean_work(office_s))
        self.slower_from_s = self._change_s() if recipe.is_changed else math.inf

    def _move(self, end_s: float) -> tuple[float, float, float, float]:
        rng = self.rng
        start_s = rng.uniform(0, end_s)
        ramp_s = rng.choice([0.0, 0.0, rng.uniform(1, 6) * DAY_S])
        lasts_s = rng.choice([math.inf, rng.uniform(1, 10) * DAY_S])
        return start_s, start_s + ramp_s, start_s + ramp_s + lasts_s, rng.uniform(0.4, 2.2)

    def _change_s(self) -> float:
        """Return an instant: at any time, at night, or within hours of a launch or of other replicas."""
        rng = self.rng
        first_s, last_s = (days * DAY_S for days in CHANGE_DAYS)
        at_s = rng.uniform(first_s, last_s)
        if self.recipe.seed % 3 == 1:
            at_s = at_s // DAY_S * DAY_S + (self.zone_h + rng.uniform(0, 5)) % 24 * HOUR_S
        starts = [start_s for start_s, *_ in (*self.moves, *self.launches, *self.replicas)]
        near = [start_s for start_s in starts if first_s < start_s < last_s]
        if self.recipe.seed % 3 == 2 and near:
            at_s = rng.choice(near) + rng.uniform(-6, 6) * HOUR_S
        return at_s

    def demand(self, time_s: float) -> float:
        """Return the requests per s expected at a time since the start."""
        local_s = time_s - self.zone_h * HOUR_S
        hour, day = local_s / HOUR_S % 24, int(local_s // DAY_S)
        since = hour - self.opens
        opened = 1 / (1 + math.exp(-3 * since)) - 1 / (1 + math.exp(-2 * (since - self.lasts)))
        opened *= 1 - self.lunch * math.exp(-(((since - self.lasts / 2) / 0.7) ** 2))
        is_free = day % 7 >= 5 or day in self.holidays
        value = self.rate * (
            self.night + (1 - self.night) * opened * (self.weekend if is_free else 1)
        )
        for start_s, stop_s, factor in self.bursts:
            value *= factor if start_s <= time_s < stop_s else 1.0
        for start_s, full_s, stop_s, factor in self.moves:
            if start_s <= time_s < stop_s:
                part = 1.0 if time_s >= full_s else (time_s - start_s) / (full_s - start_s)
                value *= factor**part
        return value

    def of_class(self, time_s: float) -> list[tuple[_Class, float]]:
        """Return the classes and their requests as shares of the demand; a launch adds to it."""
        hour = time_s / HOUR_S % 24
        logs = [
            self.swing * math.cos((hour - one.peak_hour) / 12 * math.pi) for one in self.classes
        ]
        parts = [share * math.exp(log) for share, log in zip(self.shares, logs, strict=True)]
        found = [(one, part / sum(parts)) for one, part in zip(self.classes, parts, strict=True)]
        if any(start_s <= time_s < start_s + lasts_s for start_s, lasts_s in self.launches):
            found.append((self.launched, self.launched_share))
        return found

    def devices_at(self, time_s: float) -> int:
        """Return the number of devices at a time since the start."""
        counts = [count for start_s, count in self.replicas if start_s <= time_s]
        return counts[-1] if counts else self.devices

    def busy_share(self, offered: float) -> float:
        """Return the busy share at device time per device-second as an additive server would take."""
        if self.recipe.server == "additive":
            return offered
        if self.recipe.server == "saturating":
            return 1 - math.exp(-1.3 * offered)
        # Of passes with a fixed part a and c for an item: a * rate is `fixed`, c * rate is `offered`. What
        # arrives in a pass is the next one's batch.
        fixed = self.fixed_share * offered
        return min(1.0, fixed * max(0.0, 1 - offered) / (1 + fixed) + offered)

    def _mean_work(self, time_s: float) -> float:
        """Return the mean work of the requests that come for each one of the demand."""
        if not self.recipe.has_tokens:
            return sum(share for _, share in self.of_class(time_s))
        return sum(
            share
            * (one.tokens_in * (1 - one.cached) + self.of_output * one.tokens_out + self.of_request)
            for one, share in self.of_class(time_s)
        )

    def work(self, served: ServedWork) -> float:
        """Return the true device time of what was served, in units of an input token's."""
        if not self.recipe.has_tokens:
            return served.requests
        computed = served.tokens_in - served.cached
        return computed + self.of_output * served.tokens_out + self.of_request * served.requests

    def most(self, time_s: float) -> float:
        """Return the demand in a window that the devices can serve."""
        held_s = self.devices_at(time_s) * WINDOW_S
        slower = self.recipe.slower if time_s >= self.slower_from_s else 1.0
        return MOST_BUSY * held_s / (self._mean_work(time_s) * self.unit_s * slower)


@cache
def _service(recipe: OfficeRecipe) -> _OfficeService:
    return _OfficeService(recipe)


def request_changes_s(recipe: OfficeRecipe) -> list[float]:
    """Return the seconds after the start at which other requests begin or cease to arrive."""
    return [
        at_s
        for start_s, lasts_s in _service(recipe).launches
        for at_s in (start_s, start_s + lasts_s)
        if at_s < recipe.days * DAY_S
    ]


def recipes(seeds: range) -> list[OfficeRecipe]:
    """Return histories without a change of efficiency, and with one."""
    return [
        OfficeRecipe(seed, days, SERVERS[seed // 4 % 3], seed % 5 != 0, is_changed)
        for seed in seeds
        for days, is_changed in ((42, False), (24, True))
    ]


def rows(recipe: OfficeRecipe) -> Iterator[Point]:
    """Yield the rows of the whole service, oldest first."""
    service = _OfficeService(recipe)
    rng = service.rng
    of_day = slow = 0.0
    for window in range(recipe.days * DAY_S // WINDOW_S):
        time_s = float(window * WINDOW_S)
        if time_s % DAY_S == 0:
            of_day = rng.gauss(0, service.day_noise)
        slow = service.phi * slow + math.sqrt(1 - service.phi**2) * rng.gauss(0, service.noise)
        served = _served(service, time_s, of_day + rng.gauss(0, service.window_noise))
        count = service.devices_at(time_s)
        held_s = float(WINDOW_S * count)
        offered = service.work(served) * service.unit_s / held_s
        slower = recipe.slower if time_s >= service.slower_from_s else 1.0
        busy_s = held_s * min(1.0, service.busy_share(offered) * slower * math.exp(slow))
        energy_j = service.idle_w * (held_s - busy_s) + service.busy_w * busy_s
        stated = service.stated_output if recipe.has_tokens else None
        yield cost_row(
            served,
            time_s,
            count,
            busy_s,
            energy_j=energy_j,
            idle_w=service.idle_w,
            output_weight=stated,
        )


def _served(service: _OfficeService, time_s: float, log: float) -> ServedWork:
    """Return what is served in a window."""
    rng = service.rng
    expected = service.demand(time_s) * math.exp(log) * WINDOW_S
    expected = min(expected, service.most(time_s))
    requests = tokens_in = tokens_out = cached = 0.0
    for one, share in service.of_class(time_s):
        count = max(0, round(rng.gauss(expected * share, math.sqrt(expected * share))))
        spread = one.spread / math.sqrt(max(1, count))
        of_in = count * one.tokens_in * max(0.2, rng.gauss(1, spread))
        requests += count
        tokens_in += of_in
        tokens_out += count * one.tokens_out * max(0.2, rng.gauss(1, spread))
        cached += of_in * one.cached * rng.uniform(0.95, 1.0)
    return ServedWork(requests, tokens_in, tokens_out, cached)
