"""Device time or energy per unit of work by load and mix, learned from a series' own history.

A server batches: the more work a device gets, the less time one token takes, so that the busy
time per token falls at noon and rises at night without any change of efficiency. The model is

    ln(effort / work) = a + b load + c1 hinge1(load) + ... + d mix

by ridge regression with Huber weights ("Robust estimation of a location parameter", 1964): each
coefficient has a prior of which its ridge is the inverse variance, so that the same equations say
what a prediction may be wrong by (Lindley and Smith, "Bayes estimates for the linear model", 1972):
at a load that was never seen, by the unknown slope and bends there. Half an hour is no load: time
per work is concave in it, and a bursty half hour lies elsewhere than a flat one of the same mean.
Each sample is therefore a mean over its windows, weighted by their work, of the logarithm of the
effort as well as of each regressor.

What the model is wrong by at a load is the same in all blocks of a day at that load. They count as
one observation of it, however many they are.

The rest is watched for shifts: no clock and no I/O, the same blocks give the same shifts. What a
series does by itself, as far as load and mix do not explain it, is not known from any model: how far
its blocks departed from their level before, for each number of blocks, is what a shift must exceed. A
shift that reverts was such a departure, so that what alternates is held back once it is known.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import accumulate, pairwise
from operator import mul
from statistics import fmean, median
from typing import Annotated, NamedTuple

from pydantic import PlainSerializer

from costprobe.core.statistics import MAD_TO_SIGMA, inverse_of
from costprobe.drift.normal import DAY_S

# A number of a stored state; one that JSON does not have is a text.
Brief = Annotated[
    float, PlainSerializer(lambda x: float(f"{x:.7g}") if math.isfinite(x) else str(x))
]
Mix = tuple[float, float]
Features = tuple[Brief, ...]

# Loads at which the slope may change, as distances from the usual load in log units.
HINGES = (-2.5, -1.4, -0.6, 0.0, 0.6, 1.4, 2.5)
# Standard deviations of the coefficients: of the slope around the expected one, which is between 0 (an
# additive server) and -1 (a device that is busy whatever the load); of its change at a hinge; of the logarithms
# of the mix; of their bounded forms (token weights that are wrong by up to a factor of two and more); and of
# the latter's change over a log unit of load: an output token of a small batch takes most.
SLOPE, BEND, ELASTICITY, BOUNDED, BY_LOAD = 0.4, 0.5, 0.15, 1.0, 0.3
PRIOR = (30.0, SLOPE, *(BEND,) * len(HINGES), *(ELASTICITY,) * 2, *(BOUNDED,) * 2, *(BY_LOAD,) * 2)
MIXES = slice(2 + len(HINGES), 4 + len(HINGES))
# Factor by which slow noise increases the variance of coefficients, and the standard deviation of what is
# common to the blocks of a day at one load, without and relative to the noise.
SLOW_NOISE = 2.0
OF_A_DAY, OF_A_DAY_SHARE = 0.02, 1.0
LOADS_APART = 0.5
LEAST_NOISE = 0.005
HUBER = 1.5
ROUNDS = 3


class Usual(NamedTuple):
    """The usual load and mix of a series, from which regressors are measured."""

    load: float
    mix: Mix


class WindowEffort(NamedTuple):
    """What a window contributes to a sample.

    Attributes:
        load: ln of the work per device-second, or of the requests in flight.
        mix: Logarithms of ratios that describe the mix of the work.
        effort: ln of the device time, energy or time of decode per unit of work.
        weight: Its work.
    """

    load: float
    mix: Mix
    effort: float
    weight: float


class LoadSample(NamedTuple):
    """A block: means over its windows.

    Attributes:
        time_s: UTC in s of its end.
        effort: ln of the effort per unit of work.
        features: The regressors.
    """

    time_s: float
    effort: Brief
    features: Features


def sample_of(time_s: float, windows: Sequence[WindowEffort], usual: Usual) -> LoadSample:
    """Return the sample of a block with at least one window."""
    weights = [window.weight for window in windows]
    total = math.fsum(weights)
    efforts = [window.effort for window in windows]
    columns = zip(*(features_of(window.load, window.mix, usual) for window in windows), strict=True)
    effort, *features = (
        math.fsum(map(mul, weights, column)) / total for column in (efforts, *columns)
    )
    return LoadSample(time_s, effort, tuple(features))


def features_of(load: float, mix: Mix, usual: Usual) -> Features:
    """Return the regressors at a load and mix."""
    x = load - usual.load
    first, second = mix[0] - usual.mix[0], mix[1] - usual.mix[1]
    # A sum of times per kind of token is bounded by that of each kind, whatever the mix.
    of_first, of_second = math.tanh(first / 2) / 2, math.tanh(second / 2) / 2
    hinges = (max(0.0, x - at if at >= 0 else at - x) for at in HINGES)
    return 1.0, x, *hinges, first, second, of_first, of_second, of_first * x, of_second * x


class LoadModel:
    """A fitted model.

    Args:
        samples: History at one level of efficiency; at least one.
        slope: Expected slope over the load.

    Attributes:
        noise: Standard deviation of a sample.
    """

    def __init__(self, samples: Sequence[LoadSample], slope: float) -> None:
        self._slope = slope
        columns = list(zip(*(sample.features for sample in samples), strict=True))
        efforts = [sample.effort - slope * sample.features[1] for sample in samples]
        cells = [
            (sample.time_s // DAY_S, round(sample.features[1] / LOADS_APART)) for sample in samples
        ]
        alike = Counter(cells)
        counts = [alike[cell] for cell in cells]
        self.noise, weights = 4 * LEAST_NOISE, [1.0] * len(samples)
        for _ in range(ROUNDS):
            self._fit(columns, efforts, weights)
            rests = [abs(sample.effort - self.expected(sample.features)) for sample in samples]
            self.noise = noise = max(LEAST_NOISE, MAD_TO_SIGMA * median(rests))
            of_a_day = (OF_A_DAY + OF_A_DAY_SHARE * noise) ** 2 / (SLOW_NOISE * noise**2)
            weights = [
                min(1.0, HUBER * noise / rest if rest else 1.0) / (1 + count * of_a_day)
                for rest, count in zip(rests, counts, strict=True)
            ]

    def _fit(
        self, columns: Sequence[Sequence[float]], efforts: Sequence[float], weights: Sequence[float]
    ) -> None:
        variance = SLOW_NOISE * self.noise**2
        weighted = [list(map(mul, weights, column)) for column in columns]
        matrix = [[sum(map(mul, one, other)) for other in columns] for one in weighted]
        for index, deviation in enumerate(PRIOR):
            matrix[index][index] += variance / deviation**2
        # Each coefficient has its ridge: no matrix is singular.
        inverse = inverse_of(matrix) or []
        products = [sum(map(mul, column, efforts)) for column in weighted]
        self._coefficients = [sum(map(mul, row, products)) for row in inverse]
        self._coefficients[1] += self._slope
        self._covariance = [[variance * value for value in row] for row in inverse]

    def expected(self, features: Features) -> float:
        """Return the expected effort."""
        return math.fsum(map(mul, self._coefficients, features))

    def variance(self, features: Features) -> float:
        """Return what the expected effort may be wrong by: its variance, without the noise."""
        products = (math.fsum(map(mul, row, features)) for row in self._covariance)
        return math.fsum(map(mul, features, products))

    def effect_of_load(self, before: float, after: float, usual: Usual) -> float:
        """Return the change of effort that a change of load explains, in log units.

        Args:
            before: ln of the work per device-second.
            after: Likewise.
            usual: The usual load and mix.
        """
        first, last = (
            self.expected(features_of(load, usual.mix, usual)) for load in (before, after)
        )
        return last - first


# Samples from which the first load model is fitted, those between two fits, and those that are kept.
TRAINING = 48
FIT_EVERY = 24
MAX_SAMPLES = 480
# Numbers of blocks whose departure is judged, and the first of them for a series that departs by more than
# TAME by itself, or where the model may be wrong by that.
LENGTHS = (3, 4, 6, 9, 12, 18, 24)
LEAST_WILD, TAME = 9, 0.03
# A departure counts beyond so many times the largest one before (more often the wilder a series is), and so much
# more; both by 1 + YOUNG / blocks for a series of few blocks; and beyond so many standard errors of white noise.
MORE, WILD, LEAST_MORE, YOUNG, NOISE_ERRORS = 1.2, 0.1, 0.01, 48.0, 6.0
# The share of its blocks that must have more than half of it, and of its limit from which the model does not
# learn from what may have shifted.
SAME_SHARE, SUSPECTED_SHARE = 0.75, 0.6
# A later shift that leaves less of one reverts it.
REVERTED_SHARE = 0.6
# The level follows with this time constant, in blocks, and a value by so many standard deviations at most.
LEVEL_BLOCKS, CLIP = 24.0, 3.0
# What the model may be wrong by, in standard errors; and that far from the loads and mixes that were seen, in log
# units for each log unit of distance beyond one that is near.
EXTRAPOLATION_ERRORS, FAR_ERROR, NEARBY = 2.0, 0.6, 0.15
# What it is usually wrong by is in those departures, up to this.
USUAL_ERROR = 0.015
# A series with more noise departs by itself in more ways than its past shows: it has no shifts.
MOST_NOISE = 0.04
# Blocks with the most similar load and mix.
NEAR = 8


class _Known(NamedTuple):
    """A sample with what the model said of it when it came.

    Attributes:
        sample: The sample.
        rest: What load and mix did not explain, in log units.
        variance: What the model may have been wrong by; infinite of a sample of the training.
        offset: The shifts before it.
    """

    sample: LoadSample
    rest: Brief
    variance: Brief
    offset: Brief

    @property
    def level(self) -> float:
        """The rest without the shifts before it."""
        return self.rest - self.offset


@dataclass
class EffortSeries:
    """Device time, energy or time of decode per unit of work, less what load and mix explain.

    Attributes:
        least_effect: Smallest shift, in log units.
        slope: Expected change of ln effort with ln load.
        usual: The usual load and mix; None in the training.
        known: The last samples.
        since_fit: Samples since the last fit.
        level: The level without the shifts.
        since_found: Samples since the last shift was found.
        lasts: Samples since it began.
        shift: Its size, until it has reverted.
    """

    least_effect: float
    slope: float
    usual: Usual | None = None
    known: deque[_Known] = field(default_factory=deque)
    since_fit: int = 0
    level: float = 0.0
    since_found: int = MAX_SAMPLES
    lasts: int = MAX_SAMPLES
    shift: float = 0.0

    def __post_init__(self) -> None:
        self.model: LoadModel | None = None
        self._training: list[tuple[float, Sequence[WindowEffort]]] = []
        self._is_suspected = False
        self._limits: dict[int, float] = {}
        self._clip = self._patience = self._variance = 0.0
        # Load, mix and distance from the model of each sample.
        self._misfits: list[tuple[float, ...]] = []
        self.known = deque(self.known, maxlen=MAX_SAMPLES)
        if self.known:
            since_fit, level = self.since_fit, self.level
            self._fit()
            self.since_fit, self.level = since_fit, level

    def update(self, time_s: float, windows: Sequence[WindowEffort]) -> list[tuple[float, float]]:
        """Add a block; return start (UTC in s) and size of the shifts that it completes."""
        if self.usual is None:
            self._training.append((time_s, windows))
            if len(self._training) >= TRAINING:
                self._begin()
            return []
        self._add(sample_of(time_s, windows, self.usual))
        found = self._found()
        self._is_suspected &= not found
        if self.since_fit >= FIT_EVERY * (1 + self._is_suspected):
            self._fit()
        return found

    def history(self, count: int) -> dict[float, float]:
        """Return the logarithms of the last efforts less load and mix, by the UTC in s of their end."""
        return {known.sample.time_s: known.rest for known in list(self.known)[-count:]}

    def rests(self, since_s: float, until_s: float) -> list[float]:
        """Return what load and mix do not explain of the blocks that ended in a time, by the present model."""
        model = self.model
        samples = [known.sample for known in self.known if since_s < known.sample.time_s <= until_s]
        return [s.effort - model.expected(s.features) for s in samples] if model else []

    def departure(self, count: int) -> float:
        """Return how far the mean of the last blocks is from the level."""
        return fmean(known.level for known in list(self.known)[-count:]) - self.level

    def _begin(self) -> None:
        """Fit the first model to the blocks of the training."""
        windows = [window for _, of_block in self._training for window in of_block]
        first, second = (median(window.mix[index] for window in windows) for index in (0, 1))
        self.usual = usual = Usual(median(window.load for window in windows), (first, second))
        for time_s, of_block in self._training:
            self.known.append(_Known(sample_of(time_s, of_block, usual), 0.0, math.inf, 0.0))
        self._training = []
        self._fit()

    def _add(self, sample: LoadSample) -> None:
        model, offset = self.model, self.known[-1].offset
        if model is None:
            return
        rest = sample.effort - model.expected(sample.features)
        variance = model.variance(sample.features) + self._unknown(sample.features) ** 2
        self.known.append(_Known(sample, rest, variance, offset))
        self.since_fit += 1
        self.since_found += 1
        self.lasts += 1

    @property
    def is_noisy(self) -> bool:
        """Whether it varies too much by itself for a change to be found."""
        return self.model is not None and self.model.noise > MOST_NOISE

    def _unknown(self, features: Features) -> float:
        """Return what the model may be wrong by beyond the noise at a load and mix, in log units.

        It was wrong near them before, or they are far from all that were seen.
        """
        x, (first, second) = features[1], features[MIXES]
        near = nsmallest(
            NEAR,
            (
                (abs(load - x) + abs(one - first) + abs(other - second), rest)
                for load, one, other, rest in self._misfits
            ),
        )
        noise = 0.0 if self.model is None else self.model.noise
        misfit = max(0.0, fmean(rest for _, rest in near) - noise)
        return math.hypot(misfit, FAR_ERROR * max(0.0, fmean(far for far, _ in near) - NEARBY))

    def _fit(self) -> None:
        samples = [
            known.sample._replace(effort=known.sample.effort - known.offset) for known in self.known
        ]
        self.model = model = LoadModel(samples, self.slope)
        self._misfits = [
            (features[1], *features[MIXES], abs(effort - model.expected(features)))
            for _, effort, features in samples
        ]
        self.since_fit = 0
        self._calibrate()

    def _calibrate(self) -> None:
        """Find the level, and how far it departed by itself for each number of blocks."""
        judged = [known for known in self.known if known.variance < math.inf]
        levels = [known.level for known in judged]
        steps = [abs(later - former) for former, later in pairwise(levels)]
        noise = MAD_TO_SIGMA * median(steps) / math.sqrt(2) if steps else 0.0
        self._clip = CLIP * max(LEAST_NOISE, noise)
        before, level = [], 0.0
        for value in levels:
            before.append(level)
            level = self._followed(level, value)
        self.level, self._patience = level, 1 + YOUNG / max(1, len(judged))
        usual = median(known.variance for known in judged) if judged else 0.0
        self._variance = min(USUAL_ERROR**2, usual)
        sums = list(accumulate((known.variance for known in judged), initial=0.0))
        self._limits = {
            length: max(
                (
                    abs(_middle(levels[at : at + length]) - before[at])
                    - self._slack((sums[at + length] - sums[at]) / length)
                    for at in range(len(levels) - length + 1)
                ),
                default=0.0,
            )
            for length in LENGTHS
        }

    def _followed(self, level: float, value: float) -> float:
        return level + max(-self._clip, min(self._clip, value - level)) / LEVEL_BLOCKS

    def _found(self) -> list[tuple[float, float]]:
        """Return the shift that the last blocks show."""
        recent = list(self.known)[-LENGTHS[-1] :]
        levels = [known.level - self.level for known in recent]
        best, size, self._is_suspected = 0, 0.0, False
        for length in () if self.is_noisy else LENGTHS:
            if length > min(self.since_found, len(recent)):
                break
            if recent[-length].variance == math.inf:
                break
            of_length = levels[-length:]
            shift = _middle(of_length)
            error = self._slack(fmean(known.variance for known in recent[-length:]))
            least = max(self._limit(length), self.least_effect / 2) + error
            self._is_suspected |= abs(shift) > SUSPECTED_SHARE * least
            is_wild = max(self._limits[LENGTHS[0]], error) > TAME
            lasts = sum(level * shift > shift * shift / 2 for level in of_length)
            is_same = levels[-1] * shift > shift * shift / 2 and lasts >= SAME_SHARE * length
            if length < (LEAST_WILD if is_wild else 0) or abs(shift) < least or not is_same:
                continue
            if length * shift * shift > best * size * size:
                best, size = length, shift
        if not best:
            if not self._is_suspected:
                self.level = self._followed(self.level, self.known[-1].level)
            return []
        # It began where two levels are nearest to all values.
        most = min(self.since_found, len(recent))
        length = max(range(LENGTHS[0], most + 1), key=lambda n: fmean(levels[-n:]) ** 2 * n)
        size = _middle(levels[-length:])
        self.adopt(length, size)
        return [(self._start_s(length), size)]

    def _slack(self, variance: float) -> float:
        """Return what the model may be wrong by beyond what it usually is, which is in the limits."""
        return EXTRAPOLATION_ERRORS * math.sqrt(max(0.0, variance - self._variance))

    def _limit(self, length: int) -> float:
        """Return the largest departure of so many blocks that the series, or noise, makes by itself."""
        more = MORE + max(0.0, self._limits[LENGTHS[0]]) / WILD
        own = (more * max(0.0, self._limits[length]) + LEAST_MORE) * self._patience
        noise = 0.0 if self.model is None else self.model.noise
        return max(own, NOISE_ERRORS * noise / math.sqrt(length))

    def _start_s(self, length: int) -> float:
        return self.known[-length].sample.time_s

    def adopt(self, length: int, shift: float) -> None:
        """Add a shift to the offset of the last blocks; one that reverts another was a departure."""
        self._move(length, 0, shift)
        if abs(self.shift + shift) < REVERTED_SHARE * abs(self.shift):
            # The blocks between both have their level as it was: the next one like it is expected.
            self._move(self.lasts, length, -self.shift)
            self.shift = 0.0
        else:
            self.shift = shift
        self.since_found, self.lasts = 0, length
        self._calibrate()

    def _move(self, first: int, last: int, change: float) -> None:
        """Change the offset of the blocks from the last `first` to before the last `last`."""
        for back in range(last + 1, min(first, len(self.known)) + 1):
            known = self.known[-back]
            self.known[-back] = known._replace(offset=known.offset + change)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
