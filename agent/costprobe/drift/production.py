"""Detection of changes of a service's production: efficiency, demand and mix.

Windows of a service are added up to blocks of about the same length, the input of detection.
Efficiency is the device time and the energy of a unit of work, less what load and mix explain
(`load_model`), and the time per output token, less what the requests in flight explain. Demand is
the device-seconds held for a unit of work, and mix the work of one request, each against its
hour-of-week profile.

Demand differs by the hour of the week, and no holiday or launch of a day is a lasting change. A
departure from the profile is therefore summed up over hours, beyond a tolerance and up to a limit
for each hour (a CUSUM of Huber's psi); a collapse is reported after some hours.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer

from costprobe.core.columns import number
from costprobe.core.periods import HOURS_A_WEEK
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import HOUR_S
from costprobe.drift.findings import ServingMetric
from costprobe.drift.load_model import Brief, EffortSeries, Mix, WindowEffort
from costprobe.drift.normal import DAY_S, Real
from costprobe.unit_costs.change import (
    Kind,
    ProductionSums,
    Unit,
    added_sums,
    as_one,
    kind_prices,
    production_sums,
    work_of,
)

# Blocks that the weights of kinds of work come from.
TRAINING = 48
# A block that windows with a known cost cover less has no value.
COVERED_SHARE = 0.8
# A block with less traffic continues until it is MOST_BLOCKS long.
LEAST_REQUESTS = 50.0
# Where requests are not counted.
LEAST_TOKENS = 20_000.0
# The load is that of the windows of a block, of which there are so many at most.
PARTS = 6
MOST_BLOCKS = 4
# A block with a smaller busy share measures background activity.
LEAST_BUSY_SHARE = 0.005
# Rows of a block that are kept.
MAX_ROWS = 1000

# A value of a new week enters the profile with at least this weight.
LEAST_GAIN = 0.25
# An hour of one week moves the profile by at most this, in log units.
MOST_MOVE = 0.5
# Departures are judged after a week.
LEARNED_S = 7 * DAY_S
MOST_HOUR = 0.5
# The level follows growth with this time constant, as long as the departure is tolerated.
LEVEL_HOURS = 100.0
# A departure is as large as it was in the last hours.
RECENT_HOURS = 6.0

# Blocks that a change is explained by: those of eight days.
MAX_BLOCKS = 8 * 48
# Kinds of tokens of models with a weight; further ones do not count.
MAX_KINDS = 500
# Expected change of the logarithm of device time and of energy per work with that of the load: batches,
# and idle power. A step of a larger batch takes longer.
SLOPES: Final[Mapping[ServingMetric, float]] = MappingProxyType(
    {"serving_time": -0.2, "serving_energy": -0.4, "serving_tpot": 0.3}
)
# Devices with a larger busy share were busy all the time.
CAPPED_SHARE = 0.97
# An idle block counts as this share of the mean work of a block.
LEAST_WORK = 0.02
WORK_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class ProductionBlock:
    """Sums over consecutive windows of a service.

    Attributes:
        end_s: UTC in s of its end.
        sums: Its sums.
        has_traffic: Whether the traffic suffices for ratios.
        windows: Sums over its parts, each with a part of that traffic.
    """

    end_s: float
    # Stored without the division among models.
    sums: Annotated[ProductionSums, PlainSerializer(lambda sums: asdict(as_one(sums)))]
    has_traffic: bool
    windows: Annotated[tuple[ProductionSums, ...], Field(exclude=True)] = ()

    @property
    def hours(self) -> float:
        """Length of its windows in hours."""
        return self.sums.window_s / HOUR_S

    @property
    def has_tokens(self) -> bool:
        """Whether tokens are counted."""
        return self.sums.total.tokens > 0


def mix_of(sums: ProductionSums) -> Mix:
    """Return the logarithms of output per input, and of requests per token; 0 where they are not counted."""
    total = sums.total
    if not total.tokens:
        return 0.0, 0.0
    per_input = math.log((total.tokens_out + 1) / (total.computed + 1))
    return per_input, math.log(total.requests / total.tokens) if total.requests else 0.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a departure must exceed to be reported.

    Attributes:
        effect: Smallest departure, in log units.
        hours: Hours of the largest departure that counts until it is reported.
        collapse: Departure that is reported at once, in log units.
        collapse_hours: Hours that it must last.
    """

    effect: float
    hours: float
    collapse: float = math.inf
    collapse_hours: float = 3.0


@dataclass(frozen=True, slots=True)
class Departure:
    """A lasting departure from the profile.

    Attributes:
        since_s: Its start, UTC in s.
        change: Departure of the last hours, in log units.
        is_collapse: Whether it was reported for its size.
    """

    since_s: float
    change: float
    is_collapse: bool = False


# A demand that is lower by a quarter for two days, by 40 % for longer than a holiday, or by 80 % for three
# hours; a mix that is heavier by a third for half a day.
TOLERANCES: Final[Mapping[ServingMetric, Tolerance]] = MappingProxyType(
    {
        "demand": Tolerance(effect=0.1, hours=28.0, collapse=math.log(5)),
        "mix": Tolerance(effect=0.15, hours=6.0),
    }
)


@dataclass(frozen=True, slots=True)
class ProductionFinding:
    """A detected change of a service.

    Attributes:
        metric: The monitored series.
        time_s: UTC in s of the end of the block that completed it.
        since_s: Estimated start, UTC in s.
        change: ln(after / before).
        is_collapse: Whether nearly all traffic is gone.
        unit: What work is counted in.
    """

    metric: ServingMetric
    time_s: float
    since_s: float
    change: float
    is_collapse: bool = False
    unit: Unit = "token"


@dataclass(frozen=True, slots=True)
class Periods:
    """Two periods that are compared.

    Attributes:
        before_s: Start and end of the earlier one, UTC in s.
        after_s: Of the later one.
        before: Sums of the earlier one.
        after: Sums of the later one.
    """

    before_s: tuple[float, float]
    after_s: tuple[float, float]
    before: ProductionSums
    after: ProductionSums


@dataclass
class WeeklyProfile:
    """The profile of one series, hour by hour: no clock, the same values give the same departures.

    Attributes:
        values: Mean of each hour of the week; NaN where it is unknown.
        counts: Hours that it is of.
        started_s: UTC in s of the first value; NaN before.
        offset: The level beside the profile.
        arms: For departures upwards and downwards: sum, start, size of the last hours, hours of collapse.
    """

    values: list[Brief] = field(default_factory=lambda: [math.nan] * HOURS_A_WEEK)
    counts: list[Brief] = field(default_factory=lambda: [0.0] * HOURS_A_WEEK)
    started_s: Real = math.nan
    offset: float = 0.0
    arms: list[list[float]] = field(default_factory=lambda: [[0.0] * 4, [0.0] * 4])

    def __post_init__(self) -> None:
        if (len(self.values), len(self.counts)) != (HOURS_A_WEEK, HOURS_A_WEEK):
            raise ValueError("a weekly profile of another size")

    def update(
        self, tolerance: Tolerance, time_s: float, x: float, hours: float
    ) -> Departure | None:
        """Add a value; return the departure that it completes.

        Args:
            tolerance: What is reported.
            time_s: UTC in s of its end.
            x: Logarithm of the value.
            hours: Its length.
        """
        if math.isnan(self.started_s):
            self.started_s = time_s
        slot = int((time_s - hours * HOUR_S / 2) // HOUR_S) % HOURS_A_WEEK
        expected = self._expected(slot)
        found = None
        if expected is not None and time_s - self.started_s >= LEARNED_S:
            departure = x - self.offset - expected
            found = self._judge(tolerance, time_s, departure, hours)
            if abs(departure) < tolerance.effect:
                self.offset += hours / LEVEL_HOURS * departure
        if found is not None:
            self.offset += found.change
            self.arms = [[0.0] * 4, [0.0] * 4]
        self._learn(slot, x - self.offset, hours)
        return found

    def _expected(self, slot: int) -> float | None:
        """Return the profile at an hour of the week, with its neighbours where it is unknown."""
        for reach in (0, 1, 2):
            near = [
                self.values[(slot + step) % HOURS_A_WEEK]
                for step in ((0,) if reach == 0 else (-reach, reach))
            ]
            known = [value for value in near if not math.isnan(value)]
            if known:
                return math.fsum(known) / len(known)
        return None

    def _learn(self, slot: int, x: float, hours: float) -> None:
        count = self.counts[slot]
        if count == 0:
            self.values[slot] = x
        else:
            gain = max(LEAST_GAIN * hours, hours / (count + hours))
            move = max(-MOST_MOVE, min(MOST_MOVE, x - self.values[slot]))
            self.values[slot] += min(1.0, gain) * move
        self.counts[slot] = min(count + hours, 1 / LEAST_GAIN)

    def _judge(
        self, tolerance: Tolerance, time_s: float, departure: float, hours: float
    ) -> Departure | None:
        for sign, arm in zip((1.0, -1.0), self.arms, strict=True):
            size = sign * departure
            total, since_s, recent, collapsed = arm
            if total == 0:
                since_s, recent = time_s - hours * HOUR_S, size
            total += (min(size, MOST_HOUR) - tolerance.effect) * hours
            if total <= 0:
                arm[:] = [0.0] * 4
                continue
            recent += min(1.0, hours / RECENT_HOURS) * (size - recent)
            collapsed = collapsed + hours if size > tolerance.collapse else 0.0
            arm[:] = [total, since_s, recent, collapsed]
            is_collapse = collapsed >= tolerance.collapse_hours
            if is_collapse:
                since_s = time_s - collapsed * HOUR_S
            if is_collapse or total > tolerance.hours * (MOST_HOUR - tolerance.effect):
                return Departure(since_s, sign * recent, is_collapse)
        return None


_Weights = Annotated[
    dict[tuple[str, Kind], float],
    PlainSerializer(lambda weights: [[*kind, weight] for kind, weight in weights.items()]),
    BeforeValidator(lambda rows: {(model, kind): weight for model, kind, weight in rows}),
]


@dataclass
class ProductionDetector:
    """Detect changes of one service: no clock, no I/O.

    Attributes:
        least_effect: Smallest shift of the efficiency that is looked for, as a share.
        block_s: Time over which windows are added up, in s.
        ended_ns: UTC in ns of the end of the last block.
        efforts: The series of efficiency. One that an earlier version did not watch begins without a state.
        profiles: Those of demand and mix.
        blocks: The last blocks.
        mean_work: Mean work of a block.
        weights: Those of the training: they must not move with the load that they are estimated from.
        is_by_decode: Whether the load is that of decode: a history without it keeps work per device-second.
    """

    least_effect: float
    block_s: float
    ended_ns: int = 0
    efforts: dict[ServingMetric, EffortSeries] = field(default_factory=dict)
    profiles: dict[ServingMetric, WeeklyProfile] = field(default_factory=dict)
    blocks: deque[ProductionBlock] = field(default_factory=deque)
    mean_work: float = 0.0
    weights: _Weights = field(default_factory=dict)
    is_by_decode: bool = False

    def __post_init__(self) -> None:
        self.begin_block()
        for metric, slope in SLOPES.items():
            self.efforts.setdefault(metric, EffortSeries(self.least_effect, slope))
        for metric in TOLERANCES:
            self.profiles.setdefault(metric, WeeklyProfile())
        self._training: list[ProductionBlock] | None = None if self.blocks else []
        self.blocks = deque(self.blocks, maxlen=MAX_BLOCKS)

    @property
    def is_trained(self) -> bool:
        """Whether it has a state; before, it is trained from its history again after a restart."""
        return self._training is None

    def update(self, rows: Sequence[Point]) -> list[ProductionFinding]:
        """Add a window; return the changes that it completes.

        Args:
            rows: Rows of `cost` of one time: the service's, and those of its models.
        """
        findings = []
        for block in self._builder.add(rows):
            self.blocks.append(block)
            self.ended_ns = self._builder.ended_ns
            if self._training is None:
                findings += self._judged(block)
                continue
            self._training.append(block)
            if len(self._training) >= TRAINING:
                self.is_by_decode = all(
                    known.sums.decode_request_s for known in self._training if known.has_traffic
                )
                for known in self._training:
                    self._judged(known)
                self._training = None
        return findings

    def begin_block(self) -> None:
        """Discard the rows of the block that has not ended."""
        self._builder = BlockBuilder(self.block_s, self.ended_ns)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices of the last block."""
        return self.blocks[-1].sums.devices if self.blocks else ()

    def periods(self, since_s: float, until_s: float) -> Periods | None:
        """Return a period and one before it with the same hours; None where one is not covered.

        The earlier one is that a week before, else some days before, else the time just before.

        Args:
            since_s: UTC in s.
            until_s: UTC in s.
        """
        length_s = until_s - since_s
        after = self.sums(since_s, until_s)
        shifts_s = [7 * DAY_S, *(days * DAY_S for days in range(1, 7))]
        spans = [(since_s - shift, until_s - shift) for shift in shifts_s if shift >= length_s]
        spans.append((since_s - max(length_s, DAY_S), since_s))
        for span in spans:
            before = self.sums(*span)
            if after is not None and before is not None:
                return Periods(span, (since_s, until_s), before, after)
        return None

    def effect_of_load(self, periods: Periods) -> float:
        """Return the change of device time per work that the change of load explains, in log units."""
        series = self.efforts["serving_time"]
        before, after = (
            _load_of(sums, work_of(sums, self.weights), is_by_decode=self.is_by_decode)
            for sums in (periods.before, periods.after)
        )
        if series.model is None or series.usual is None or before is None or after is None:
            return 0.0
        return series.model.effect_of_load(before, after, series.usual)

    def sums(self, since_s: float, until_s: float) -> ProductionSums | None:
        """Return the sums of a period; None where blocks cover too little of it."""
        blocks = [block.sums for block in self.blocks if since_s < block.end_s <= until_s]
        covered_s = math.fsum(sums.window_s for sums in blocks)
        return added_sums(blocks) if covered_s >= COVERED_SHARE * (until_s - since_s) else None

    def _work(self, block: ProductionBlock) -> float:
        """Return the work of a block; a kind that is new gets its weight from it."""
        known = added_sums([known.sums for known in self._training or [block]])
        # A first block without requests does not decide what work is counted in.
        is_by_token = block.has_tokens or known.total.tokens > 0
        prices = kind_prices(block.sums, is_by_token=is_by_token)
        # Windows with requests to one model only are not divided among models.
        whole = kind_prices(as_one(block.sums), is_by_token=is_by_token)
        if not self.weights:
            for sums in (known, as_one(known)):
                self.weights |= kind_prices(sums, is_by_token=is_by_token)
        common = [kind for kind in prices if kind in self.weights]
        reference = prices if common else whole
        common = common or [kind for kind in whole if kind in self.weights]
        new = [kind for kind in prices if kind not in self.weights]
        if new and common and len(self.weights) < MAX_KINDS:
            scale = fmean(math.log(self.weights[kind] / reference[kind]) for kind in common)
            self.weights |= {kind: prices[kind] * math.exp(scale) for kind in new}
        return work_of(block.sums, self.weights)

    def _judged(self, block: ProductionBlock) -> list[ProductionFinding]:
        work = self._work(block)
        gain = WORK_GAIN if self.mean_work else 1.0
        self.mean_work += gain * (work - self.mean_work)
        findings = self._departures(block, work)
        sums = block.sums
        if not block.has_traffic or work <= 0 or sums.device_s <= 0:
            return findings
        windows = self._windows(block)
        for metric, of_metric in windows.items():
            if of_metric:
                for since_s, change in self.efforts[metric].update(block.end_s, of_metric):
                    findings.append(_finding(metric, block, Departure(since_s, change)))
        return findings

    def _windows(self, block: ProductionBlock) -> dict[ServingMetric, list[WindowEffort]]:
        """Return what a unit of work took in each window, without those that show nothing of it."""
        found: dict[ServingMetric, list[WindowEffort]] = {metric: [] for metric in SLOPES}
        for sums in block.windows:
            work, busy_s, energy_j = work_of(sums, self.weights), sums.busy_s, sums.energy_j
            load = _load_of(sums, work, is_by_decode=self.is_by_decode)
            of_decode = _load_of(sums, work, is_by_decode=True)
            if work <= 0 or sums.device_s <= 0:
                continue
            mix, decode_s = mix_of(sums), sums.decode_request_s
            share = None if busy_s is None else busy_s / sums.device_s
            # Prefill generates the first token of a request.
            decoded = sums.total.tokens_out - sums.total.requests
            is_decoded = decoded >= sums.total.requests and decoded > 0
            if decode_s and of_decode is not None and is_decoded:
                effort = math.log(decode_s / decoded)
                found["serving_tpot"].append(WindowEffort(of_decode, mix, effort, decoded))
            is_open = share is None or share < CAPPED_SHARE
            is_busy = share is not None and share >= LEAST_BUSY_SHARE
            if load is not None and busy_s and is_busy and (is_open or self.is_by_decode):
                effort = math.log(busy_s / work)
                found["serving_time"].append(WindowEffort(load, mix, effort, work))
            if energy_j and is_open:
                load, effort = math.log(work / sums.device_s), math.log(energy_j / work)
                found["serving_energy"].append(WindowEffort(load, mix, effort, work))
        return found

    def _departures(self, block: ProductionBlock, work: float) -> list[ProductionFinding]:
        values: dict[ServingMetric, float] = {}
        if self.mean_work > 0 and block.sums.device_s > 0:
            counted = max(work, LEAST_WORK * self.mean_work)
            values["demand"] = math.log(block.sums.device_s / counted)
        total = block.sums.total
        items = total.requests or total.inferences
        if block.has_traffic and total.tokens and items and work > 0:
            values["mix"] = math.log(work / items)
        findings = []
        for metric, value in values.items():
            profile, tolerance = self.profiles[metric], TOLERANCES[metric]
            found = profile.update(tolerance, block.end_s, value, block.hours)
            if found is not None:
                findings.append(_finding(metric, block, found))
        return findings


def _finding(metric: ServingMetric, block: ProductionBlock, found: Departure) -> ProductionFinding:
    unit: Unit = "token" if block.has_tokens else "inference"
    # After the wall clock was set back, its start may seem to be later.
    since_s = min(found.since_s, block.end_s - block.hours * HOUR_S)
    return ProductionFinding(metric, block.end_s, since_s, found.change, found.is_collapse, unit)


def _load_of(sums: ProductionSums, work: float, *, is_by_decode: bool) -> float | None:
    """Return the logarithm of the load that device time per work depends on; None without work.

    A step takes what its batch takes: where the time of decode is known, it is the requests that are decoded
    while the devices are busy, whether they came evenly or in bursts.
    """
    if work <= 0 or sums.device_s <= 0:
        return None
    if is_by_decode:
        decode_s = sums.decode_request_s
        return math.log(decode_s / (sums.busy_s or sums.device_s)) if decode_s else None
    return math.log(work / sums.device_s)


class BlockBuilder:
    """Add up the rows of one service.

    Args:
        block_s: Length of a block in s; windows longer than that are a block each.
        ended_ns: UTC in ns of the end of the last block.
    """

    def __init__(self, block_s: float, ended_ns: int = 0) -> None:
        self._block_ns = round(block_s * NS_PER_S)
        self._rows: list[Point] = []
        self._last_ns = 0
        self.ended_ns = ended_ns

    def add(self, rows: Sequence[Point]) -> list[ProductionBlock]:
        """Add the rows of the next window; return the blocks that it completes.

        Args:
            rows: The service's row, and those of its models. A window that was added is skipped.
        """
        row = rows[0]
        if row.time_ns <= max(self.ended_ns, self._rows[-1].time_ns if self._rows else 0):
            return []
        blocks = []
        middle_ns = row.time_ns - _window_ns(row) // 2
        if self._rows and self._number(middle_ns) != self._number(self._last_ns):
            blocks += self._ended(is_last=row.time_ns - self._first_ns > self._longest_ns)
        self._rows.extend(rows)
        self._last_ns = middle_ns
        del self._rows[:-MAX_ROWS]
        if self._number(row.time_ns) != self._number(self._last_ns):
            blocks += self._ended(is_last=row.time_ns - self._first_ns >= self._longest_ns)
        return blocks

    @property
    def _longest_ns(self) -> int:
        return MOST_BLOCKS * self._block_ns

    @property
    def _first_ns(self) -> int:
        return self._rows[0].time_ns - _window_ns(self._rows[0])

    def _number(self, time_ns: int) -> int:
        return time_ns // self._block_ns

    def _ended(self, *, is_last: bool) -> list[ProductionBlock]:
        """Return the block of the rows; none while it continues, and for one without coverage."""
        block = _block(self._rows, self._block_ns / NS_PER_S)
        if block is None or not (block.has_traffic or is_last):
            return []
        end_ns, length_ns = self._rows[-1].time_ns, self._rows[-1].time_ns - self._first_ns
        self._rows.clear()
        self.ended_ns = end_ns
        least_s = COVERED_SHARE * max(length_ns, self._block_ns) / NS_PER_S
        return [block] if block.sums.window_s >= least_s else []


def _window_ns(row: Point) -> int:
    return round((number(row, "window_s") or 0.0) * NS_PER_S)


def _block(rows: Sequence[Point], block_s: float) -> ProductionBlock | None:
    sums = production_sums(rows)
    if sums is None:
        return None
    windows = _windows(rows, block_s / PARTS)
    return ProductionBlock(rows[-1].time_ns / NS_PER_S, sums, _traffic(sums) >= 1, windows)


def _traffic(sums: ProductionSums) -> float:
    """Return the traffic in that of a block which suffices."""
    requests = sums.total.requests or sums.total.inferences
    return requests / LEAST_REQUESTS or sums.total.tokens / LEAST_TOKENS


def _windows(rows: Sequence[Point], least_s: float) -> tuple[ProductionSums, ...]:
    """Return the sums over the windows of a block; short ones, or with little traffic, are added up."""
    parts: list[list[Point]] = [[]]
    for _, together in groupby(rows, key=lambda row: row.time_ns):
        parts[-1].extend(together)
        sums = production_sums(parts[-1])
        if sums is not None and sums.window_s >= least_s and _traffic(sums) >= 1 / PARTS:
            parts.append([])
    # What is left is too little for one.
    left = parts.pop()
    if parts:
        parts[-1].extend(left)
    return tuple(sums for part in parts or [left] if (sums := production_sums(part)) is not None)
