"""Detection of changes of a service's production: efficiency, demand and mix.

Efficiency is the device time and the energy of a unit of work, less what load and mix explain
(`load_model`); the rest goes through the detector of probes. Demand is the device-seconds held for a
unit of work, and mix the work of one request, each against its hour-of-week profile.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import Point
from costprobe.domain.costing.comparison.production_change import Unit
from costprobe.domain.costing.comparison.production_sums import ProductionSums, added_sums
from costprobe.domain.costing.comparison.production_work import (
    Kind,
    as_one,
    kind_prices,
    work_of,
)
from costprobe.domain.detection.effort_series import TRAINING, EffortSeries
from costprobe.domain.detection.findings import DetectorSettings
from costprobe.domain.detection.load_model import LoadSample
from costprobe.domain.detection.production_block import (
    COVERED_SHARE,
    LEAST_BUSY_SHARE,
    BlockBuilder,
    ProductionBlock,
    pack_blocks,
    unpack_blocks,
)
from costprobe.domain.detection.settings import ServingMetric
from costprobe.domain.detection.weekly_profile import DAY_S, Tolerance, WeeklyProfile

# Blocks that a change is explained by: those of eight days.
MAX_BLOCKS = 8 * 48
# Kinds of tokens of models with a weight; further ones do not count.
MAX_KINDS = 500
# Expected change of the logarithm of device time and of energy per work with that of the load: batches,
# and idle power.
TIME_SLOPE, ENERGY_SLOPE = -0.2, -0.4
# Devices with a larger busy share were busy all the time.
CAPPED_SHARE = 0.97
# An idle block counts as this share of the mean work of a block.
LEAST_WORK = 0.02
WORK_GAIN = 0.02
# A demand that is lower by a quarter for two days, by 40 % for longer than a holiday, or by 80 % for three
# hours; a mix that is heavier by a third for half a day.
DEMAND = Tolerance(effect=0.1, hours=28.0, collapse=math.log(5))
MIX = Tolerance(effect=0.15, hours=6.0)


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


class ProductionDetector:
    """Detect changes of one service: no clock, no I/O.

    Args:
        settings: Sensitivity of the detectors of efficiency.
        block_s: Time over which windows are added up, in s.
    """

    def __init__(self, settings: DetectorSettings, block_s: float) -> None:
        self.block_s = block_s
        self._builder = BlockBuilder(block_s)
        busy = EffortSeries(settings, TIME_SLOPE)
        self.efforts: dict[ServingMetric, EffortSeries] = {
            "serving_time": busy,
            "serving_energy": EffortSeries(settings, ENERGY_SLOPE, busy),
        }
        self._profiles: dict[ServingMetric, WeeklyProfile] = {
            "demand": WeeklyProfile(DEMAND),
            "mix": WeeklyProfile(MIX),
        }
        self._mean_work = 0.0
        # Weights must not move with the load that they are estimated from: they are those of the training.
        self._weights: dict[tuple[str, Kind], float] = {}
        self._training: list[ProductionBlock] | None = []
        self._blocks: deque[ProductionBlock] = deque(maxlen=MAX_BLOCKS)

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
            self._blocks.append(block)
            if self._training is None:
                findings += self._judged(block)
                continue
            self._training.append(block)
            if len(self._training) >= TRAINING:
                self._train(self._training)
                self._training = None
        return findings

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        for effort in self.efforts.values():
            effort.detector.clock_was_stepped(step)
        for profile in self._profiles.values():
            profile.clock_was_stepped(step)
        self._builder.ended_ns = min(self._builder.ended_ns, step.now_ns)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices of the last block."""
        return self._blocks[-1].sums.devices if self._blocks else ()

    @property
    def ended_ns(self) -> int:
        """UTC in ns of the end of the last block."""
        return self._builder.ended_ns

    def document(self) -> dict[str, Any]:
        """Return the state as JSON, without the rows of an unfinished block."""
        return {
            "ended_ns": self._builder.ended_ns,
            "mean_work": self._mean_work,
            "weights": [[*kind, weight] for kind, weight in self._weights.items()],
            "blocks": pack_blocks(self._blocks),
            "efforts": {name: effort.document() for name, effort in self.efforts.items()},
            "profiles": {name: profile.document() for name, profile in self._profiles.items()},
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Replace the state by one that `document` returned.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: It is damaged, or of other settings.
        """
        self._builder.ended_ns = int(document["ended_ns"])
        self._mean_work = float(document["mean_work"])
        self._weights = {
            (model, kind): float(weight) for model, kind, weight in document["weights"]
        }
        self._blocks = deque(unpack_blocks(document["blocks"]), maxlen=MAX_BLOCKS)
        for name, effort in self.efforts.items():
            effort.restore(document["efforts"][name])
        for name, profile in self._profiles.items():
            profile.restore(document["profiles"][name])
        self._training = None

    def periods(self, since_s: float, until_s: float) -> Periods | None:
        """Return a period and one before it with the same hours; None where one is not covered.

        The earlier one is that a week before, else some days before, else the time just before.

        Args:
            since_s: UTC in s.
            until_s: UTC in s.
        """
        length_s = until_s - since_s
        after = self._sums(since_s, until_s)
        shifts_s = [7 * DAY_S, *(days * DAY_S for days in range(1, 7))]
        spans = [(since_s - shift, until_s - shift) for shift in shifts_s if shift >= length_s]
        spans.append((since_s - max(length_s, DAY_S), since_s))
        for span in spans:
            before = self._sums(*span)
            if after is not None and before is not None:
                return Periods(span, (since_s, until_s), before, after)
        return None

    def effect_of_load(self, periods: Periods) -> float:
        """Return the change of device time per work that the change of load explains, in log units."""
        model = self.efforts["serving_time"].model
        before, after = periods.before, periods.after
        work = [work_of(sums, self._weights) for sums in (before, after)]
        if model is None or min(*work, before.device_s, after.device_s) <= 0:
            return 0.0
        return model.effect_of_load(
            math.log(work[0] / before.device_s), math.log(work[1] / after.device_s)
        )

    def _sums(self, since_s: float, until_s: float) -> ProductionSums | None:
        """Return the sums of a period; None where blocks cover too little of it."""
        blocks = [block.sums for block in self._blocks if since_s < block.end_s <= until_s]
        covered_s = math.fsum(sums.window_s for sums in blocks)
        return added_sums(blocks) if covered_s >= COVERED_SHARE * (until_s - since_s) else None

    def _train(self, blocks: Sequence[ProductionBlock]) -> None:
        for block in blocks:
            self._judged(block)

    def _work(self, block: ProductionBlock) -> float:
        """Return the work of a block; a kind that is new gets its weight from it."""
        is_by_token = block.has_tokens
        prices = kind_prices(block.sums, is_by_token=is_by_token)
        # Windows with requests to one model only are not divided among models.
        whole = kind_prices(as_one(block.sums), is_by_token=is_by_token)
        if not self._weights:
            all_sums = added_sums([known.sums for known in self._training or [block]])
            for sums in (all_sums, as_one(all_sums)):
                self._weights |= kind_prices(sums, is_by_token=is_by_token)
        common = [kind for kind in prices if kind in self._weights]
        reference = prices if common else whole
        common = common or [kind for kind in whole if kind in self._weights]
        new = [kind for kind in prices if kind not in self._weights]
        if new and common and len(self._weights) < MAX_KINDS:
            scale = fmean(math.log(self._weights[kind] / reference[kind]) for kind in common)
            self._weights |= {kind: prices[kind] * math.exp(scale) for kind in new}
        return work_of(block.sums, self._weights)

    def _judged(self, block: ProductionBlock) -> list[ProductionFinding]:
        work = self._work(block)
        gain = WORK_GAIN if self._mean_work else 1.0
        self._mean_work += gain * (work - self._mean_work)
        unit: Unit = "token" if block.has_tokens else "inference"
        findings = self._departures(block, work, unit)
        sums = block.sums
        if not block.has_traffic or work <= 0 or sums.device_s <= 0:
            return findings
        load = math.log(work / sums.device_s)
        efforts: dict[ServingMetric, float] = {}
        if sums.busy_s and block.busy_share >= LEAST_BUSY_SHARE:
            efforts["serving_time"] = sums.busy_s / work
        if sums.energy_j:
            efforts["serving_energy"] = sums.energy_j / work
        for metric, effort in efforts.items():
            is_capped = block.busy_share >= CAPPED_SHARE
            sample = LoadSample(block.end_s, load, block.mix, math.log(effort), is_capped)
            for since_s, change in self.efforts[metric].update(sample):
                findings.append(ProductionFinding(metric, block.end_s, since_s, change, unit=unit))
        return findings

    def _departures(
        self, block: ProductionBlock, work: float, unit: Unit
    ) -> list[ProductionFinding]:
        values: dict[ServingMetric, float] = {}
        if self._mean_work > 0 and block.sums.device_s > 0:
            counted = max(work, LEAST_WORK * self._mean_work)
            values["demand"] = math.log(block.sums.device_s / counted)
        total = block.sums.total
        items = total.requests or total.inferences
        if block.has_traffic and total.tokens and items:
            values["mix"] = math.log(work / items)
        findings = []
        for metric, value in values.items():
            found = self._profiles[metric].update(block.end_s, value, block.hours)
            if found is not None:
                findings.append(
                    ProductionFinding(
                        metric, block.end_s, found.since_s, found.change, found.is_collapse, unit
                    )
                )
        return findings
