"""Device time or energy per unit of work by load and mix, learned from a series' own history.

A server batches: the more work a device gets, the less time one token takes, so that the busy
time per token falls at noon and rises at night without any change of efficiency. The model is

    ln(effort / work) = f(ln(work per device-second), mix)

with f a local linear regression (biweight against outliers after Cleveland, "Robust locally
weighted regression", 1979). It is conditionally parametric (Cleveland and Devlin, "Locally
weighted regression", 1988): near a load the effort is linear in load and mix, and the tricube
weights depend on the load alone. Where the samples near a load do not show the slope it is shrunk
towards the expected one, and the coefficients of the mix towards those of all loads. Those are
estimated from samples with other mixes at the same load (Robinson, "Root-N-consistent
semiparametric regression", 1988): the load explains what load and mix could both explain. Beyond
the load that was observed, f continues with its slope at the edge, which is uncertain, and beyond
the mixes that were observed at a load with their coefficients.

Shifts of efficiency at a load or mix that was not observed before: what the continuation is wrong
by is not a new number in every block but a smooth curve of the load: zero at the edge, with an
uncertain slope that wanders (the prior of a smoothing spline; Wahba, "Improper priors, spline
smoothing and the problem of guarding against model errors in regression", 1978). A shift of
efficiency jumps at an instant at whatever load. Both are estimated together by generalized least
squares, and the shift counts if it is large in its standard errors (a generalized likelihood
ratio over the start of the shift). Blocks at known loads count fully, those beyond by what they
show about the shift in spite of the unknown curve.

Idle and busy power: the energy of a unit of work falls with the load because idle power is
divided among more work. With the idle and the busy seconds of a unit at a load, two powers
describe that at every load, observed or not.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, mul
from statistics import median
from typing import NamedTuple

from costprobe.core.statistics import MAD_TO_SIGMA
from costprobe.drift.normal import SeriesModel

# Samples at each end of a range that are not known well enough.
EXTREMES = 4

Pair = tuple[float, float]

KNOTS = 13
# Width of the regression: a share of the range of loads, and the least one in log units. Twice as wide it
# is wrong by 3 to 8 % at the highest loads of a server that saturates.
WIDTH_SHARE = 0.1
LEAST_WIDTH = 0.12
# Standard deviation of the expected slope, which is between 0 (an additive server) and -1 (a device that
# is busy, or draws power, whatever the load).
SLOPE_ERROR = 0.4
# Loads that differ by less show no slope: counts are in the load and in the effort per count, so that
# their noise has a slope of -1.
LOAD_NOISE = 0.05
# Standard deviation of the coefficients of the mix: elasticities, of tokens whose weights are wrong by up to
# a factor of two. And that of the difference between a coefficient at one load and at all.
COEFFICIENT_ERROR = 0.2
LOCAL_ERROR = 0.1

# Blocks after the start of a shift.
LEAST_AFTER = 3
# A shift in standard errors that counts, and a residual beside it that is an outlier.
SHIFT_ERRORS = 5.0
OUTLYING = 4.5
# A shift without any one of the blocks: a block in which the load jumps is an outlier.
LONE_ERRORS = 3.5
_LEAST_VARIANCE = 1e-12

# Below this share of the product of both sums of squares there is one load only.
LEAST_DETERMINANT = 1e-4

LEAST_NOISE = 0.005
ROUNDS = 3
BIWEIGHT = 4.7
USUAL_MIX = (0.0, 0.0)
# Standard deviation of the coefficient of mixes that were not observed at a load, and the standard errors
# that an extrapolation may be wrong by.
UNKNOWN_MIX = 0.3
EXTRAPOLATION_ERRORS = 2.0
# Variance of the change of the slope over a log unit of load before any load is observed, and the log units
# of observed loads that it is worth: from a server that takes requests one by one (slope 0) to one that
# batches all (-1) are about three log units.
CURVATURE = 0.3**2
CURVATURE_WORTH = 1.0
# Mean distance of the samples that a slope at the edge is from, in widths, and the factor by which slow
# noise increases the variance of slopes and coefficients.
EDGE_DISTANCE = 0.7
SLOW_NOISE = 3.0


class Matrix(NamedTuple):
    """A symmetric matrix of two rows."""

    aa: float
    ab: float
    bb: float

    def inverse(self, scale: float = 1.0) -> Matrix:
        """Return the inverse with a factor."""
        scale /= self.aa * self.bb - self.ab * self.ab
        return Matrix(scale * self.bb, -scale * self.ab, scale * self.aa)

    def plus(self, other: Matrix) -> Matrix:
        """Return the sum."""
        return Matrix(self.aa + other.aa, self.ab + other.ab, self.bb + other.bb)

    def times(self, pair: Pair) -> Pair:
        """Return the product with a vector."""
        a, b = pair
        return self.aa * a + self.ab * b, self.ab * a + self.bb * b


class Beyond(NamedTuple):
    """How far load and mix are from what the model knows, in log units.

    Attributes:
        load: Outside of the known loads; 0 within, negative below.
        mix: Outside of the mixes known at that load, likewise.
        known: What the coefficients of known mixes may be wrong by: independent standard errors.
    """

    load: float
    mix: tuple[float, float]
    known: tuple[float, float]


class Residual(NamedTuple):
    """What level, load and mix do not explain of a block.

    Attributes:
        time_s: UTC in s of its end.
        value: In log units.
        beyond: Where the model is extrapolated.
        is_unknown: Whether the model may be wrong there by more than the noise.
    """

    time_s: float
    value: float
    beyond: Beyond
    is_unknown: bool


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Variances in squared log units.

    Attributes:
        noise: Of a block.
        phi: AR(1) coefficient of the noise from block to block.
        level: Of the level.
        slopes: Of the slope below and above the known loads.
        curvature: Of the change of the slope over a log unit of load.
        mix: Of the coefficient of a mix that was not observed.
    """

    noise: float
    phi: float
    level: float
    slopes: tuple[float, float]
    curvature: float
    mix: float

    def covariance(self, one: Beyond, other: Beyond) -> float:
        """Return the covariance of what level and extrapolation are wrong by in two blocks."""
        value: float = self.level + math.fsum(map(mul, one.known, other.known))
        for mine, its in zip(one.mix, other.mix, strict=True):
            if mine * its > 0:
                # Requests of a new kind have what they differ by in common, however their mix varies.
                value += self.mix * min(mine * mine, its * its)
        if one.load * other.load > 0:
            near, far = sorted((abs(one.load), abs(other.load)))
            slope = self.slopes[one.load > 0]
            value += near * (slope * far + self.curvature * near * (3 * far - near) / 6)
        return value


class ShiftEstimate(NamedTuple):
    """The most likely shift.

    Attributes:
        since_s: End of the first block after it, UTC in s.
        shift: Size in log units.
        errors: Size in standard errors.
        is_step: Whether the blocks after it are close to each other.
    """

    since_s: float
    shift: float
    errors: float
    is_step: bool

    @property
    def is_certain(self) -> bool:
        """Whether neither noise nor the unknown curve explains it."""
        return self.is_step and abs(self.errors) >= SHIFT_ERRORS


class Powers(NamedTuple):
    """Mean power of a device in W while it is idle, and while it is busy."""

    idle_w: float
    busy_w: float

    def energy_j(self, idle_s: float, busy_s: float) -> float:
        """Return the energy of idle and busy device-seconds."""
        return self.idle_w * idle_s + self.busy_w * busy_s


@dataclass(frozen=True, slots=True)
class LoadSample:
    """What one aggregated window contributes.

    Attributes:
        time_s: UTC in s of its end.
        load: ln of the work per device-second.
        mix: Logarithms of ratios that describe the mix of the work.
        effort: ln of the device time, or energy, per unit of work.
        is_capped: Whether the devices were busy all the time, so that more work takes no more of it.
    """

    time_s: float
    load: float
    mix: Pair
    effort: float
    is_capped: bool = False


class LoadModel:
    """A fitted model.

    Args:
        samples: History at one level of efficiency; at least one.
        slope: Expected slope of f; with known idle and busy power it is 0.
        busy: For energy the model of device time, if it is known.
    """

    def __init__(
        self, samples: Sequence[LoadSample], slope: float, busy: LoadModel | None = None
    ) -> None:
        self._busy = busy
        self._low, self._high = _known_range([sample.load for sample in samples])
        first, second = ([sample.mix[index] for sample in samples] for index in (0, 1))
        self._centers = median(first), median(second)
        self._powers = None
        if busy is not None:
            self._powers = _fitted_powers(
                (math.exp(sample.effort), *busy.seconds(sample.load)) for sample in samples
            )
        slope = slope if self._powers is None else 0.0
        self._curve = EffortCurve((self._low, self._high), slope)
        self._fit(samples)
        self._extrapolation = self._extrapolated()

    def _fit(self, samples: Sequence[LoadSample]) -> None:
        """Fit the curve, with biweight against outliers."""
        samples = sorted(samples, key=attrgetter("load"))
        times_s = [sample.time_s for sample in samples]
        loads = [sample.load for sample in samples]
        mixes = [self._unusual(sample.mix) for sample in samples]
        first, second = ([mix[index] for mix in mixes] for index in (0, 1))
        efforts = [sample.effort - self._of_powers(sample.load) for sample in samples]
        residuals, weights = efforts, [1.0] * len(samples)
        for _ in range(ROUNDS):
            by_time = sorted(zip(times_s, residuals, strict=True))
            noise = SLOW_NOISE * self._noise([rest for _, rest in by_time])
            self._curve.fit(loads, (first, second), efforts, weights, noise)
            fitted = map(self._curve.value, loads, mixes)
            residuals = [y - expected for y, expected in zip(efforts, fitted, strict=True)]
            scale = max(LEAST_NOISE, MAD_TO_SIGMA * median(map(abs, residuals)))
            weights = [max(0.0, 1 - (rest / (BIWEIGHT * scale)) ** 2) ** 2 for rest in residuals]

    def _extrapolated(self) -> Uncertainty:
        """Return what the curve may be wrong by beyond the known loads and mixes, without the noise."""
        known = self._high - self._low
        curvature = (CURVATURE_WORTH * CURVATURE + self._curve.turns) / (CURVATURE_WORTH + known)
        bend = curvature * EDGE_DISTANCE * self._curve.width
        below, above = self._curve.edges
        return Uncertainty(
            noise=0.0,
            phi=0.0,
            level=0.0,
            slopes=(below + bend, above + bend),
            curvature=curvature,
            mix=UNKNOWN_MIX**2,
        )

    def surprise(self, sample: LoadSample, level: float) -> float:
        """Return the effort less what load and mix explain, in log units, as near to a level as it may be.

        It is nearer by what slope and coefficients may be wrong by at that load and mix.

        Args:
            sample: The sample.
            level: What load and mix have not explained lately.
        """
        beyond = self.rest(sample) - level
        if sample.is_capped and beyond < 0:
            return level
        return level + math.copysign(max(0.0, abs(beyond) - self.slack(sample)), beyond)

    def rest(self, sample: LoadSample) -> float:
        """Return the effort less what load and mix are expected to explain, in log units."""
        mix = self._unusual(sample.mix)
        return sample.effort - self._of_powers(sample.load) - self._curve.value(sample.load, mix)

    def slack(self, sample: LoadSample) -> float:
        """Return what the model may be wrong by at a load and mix, in log units."""
        beyond = self.beyond(sample)
        variance = self._extrapolation.covariance(beyond, beyond)
        return EXTRAPOLATION_ERRORS * math.sqrt(max(0.0, variance))

    def beyond(self, sample: LoadSample) -> Beyond:
        """Return how far a sample is beyond the observed loads and mixes."""
        mix, near = self._unusual(sample.mix), self._curve.mixes(sample.load)
        unknown = _outside(mix[0], near[0]), _outside(mix[1], near[1])
        load = _outside(sample.load, (self._low, self._high))
        return Beyond(load, unknown, self._curve.error(sample.load, mix))

    def uncertainty(self, series: SeriesModel) -> Uncertainty:
        """Return what the efforts of samples less what load and mix explain may be wrong by.

        Args:
            series: Level and noise of these differences.
        """
        return replace(
            self._extrapolation,
            noise=series.sigma_all**2,
            phi=series.phi,
            level=series.level_variance,
        )

    def effect_of_load(self, before: float, after: float) -> float:
        """Return the change of effort that a change of load explains, in log units.

        Args:
            before: ln of the work per device-second.
            after: Likewise.
        """
        return self._of_load(after) - self._of_load(before)

    def _of_load(self, load: float) -> float:
        """Return f, and for energy what idle and busy power explain."""
        return self._of_powers(load) + self._curve.value(load, USUAL_MIX)

    def _of_powers(self, load: float) -> float:
        """Return the logarithm of the energy per unit of work at constant idle and busy power."""
        if self._busy is None or self._powers is None:
            return 0.0
        return math.log(self._powers.energy_j(*self._busy.seconds(load)))

    def seconds(self, load: float) -> Pair:
        """Return the expected idle and busy device-seconds of a unit of work."""
        busy_s = math.exp(self._of_load(load))
        return max(0.0, math.exp(-load) - busy_s), busy_s

    def _unusual(self, mix: Pair) -> Pair:
        """Return the difference of a mix from the usual one."""
        return mix[0] - self._centers[0], mix[1] - self._centers[1]

    @staticmethod
    def _noise(values: Sequence[float]) -> float:
        """Return the variance of the noise, from differences of neighbours in time."""
        steps = [abs(later - former) for former, later in pairwise(values)]
        spread = MAD_TO_SIGMA * median(steps) / math.sqrt(2) if steps else 0.0
        return max(LEAST_NOISE, spread) ** 2


def _outside(value: float, known: Pair) -> float:
    """Return the signed distance of a value from a range; 0 within."""
    return min(0.0, value - known[0]) + max(0.0, value - known[1])


class EffortCurve:
    """A fitted curve.

    Args:
        loads: Least and largest load of the knots.
        slope: Expected slope.
    """

    def __init__(self, loads: Pair, slope: float) -> None:
        self._slope = slope
        self._low, self._high = loads
        self.width = max(LEAST_WIDTH, WIDTH_SHARE * (self._high - self._low))
        self._step = (self._high - self._low) / (KNOTS - 1)
        self._loads = [self._low + index * self._step for index in range(KNOTS)]
        self._knots: list[_Knot] = []

    @property
    def turns(self) -> float:
        """Sum of the squared changes of the slope from knot to knot."""
        return math.fsum(
            (later.slope - former.slope) ** 2 for former, later in pairwise(self._knots)
        )

    @property
    def edges(self) -> Pair:
        """Variances of the slope at both edges, without its change beyond them."""
        first, last = self._knots[0].expected, self._knots[-1].expected
        return SLOPE_ERROR**2 * first, SLOPE_ERROR**2 * last

    def value(self, load: float, mix: Pair) -> float:
        """Return the value at a load and a mix."""
        if load <= self._low:
            return self._knots[0].at(mix) + self._knots[0].slope * (load - self._low)
        if load >= self._high:
            return self._knots[-1].at(mix) + self._knots[-1].slope * (load - self._high)
        index = min(KNOTS - 2, int((load - self._low) / self._step))
        share = (load - self._loads[index]) / self._step
        return (1 - share) * self._knots[index].at(mix) + share * self._knots[index + 1].at(mix)

    def error(self, load: float, mix: Pair) -> Pair:
        """Return what the coefficients may be wrong by at a load and mix: independent standard errors.

        Those of two mixes have the sum of their products as covariance.
        """
        knot = self._nearest(load)
        a, b = mix[0] - knot.mix[0], mix[1] - knot.mix[1]
        first, both, last = knot.root
        return first * a + both * b, last * b

    def mixes(self, load: float) -> tuple[Pair, Pair]:
        """Return the ranges of both numbers of the mixes that were observed near a load."""
        return self._nearest(load).mixes

    def _nearest(self, load: float) -> _Knot:
        index = round((load - self._low) / self._step) if self._step else 0
        return self._knots[max(0, min(KNOTS - 1, index))]

    def fit(
        self,
        loads: Sequence[float],
        mixes: tuple[Sequence[float], Sequence[float]],
        values: Sequence[float],
        weights: Sequence[float],
        noise: float,
    ) -> None:
        """Fit the curve.

        Args:
            loads: Those of the samples, in ascending order.
            mixes: Both numbers of their mixes.
            values: Their values.
            weights: Their weights; at least one is positive.
            noise: Variance of the values.
        """
        columns = loads, *mixes, values, weights
        found = [_moments_near(knot, 2 * self.width, columns) for knot in self._loads]
        usual, prior = self._usual(found, math.fsum(weights), noise)
        known = {
            index: self._plane(near, usual, prior, noise)
            for index, near in enumerate(found)
            if near is not None
        }
        self._knots = [
            known.get(index) or self._between(index, list(known.items())) for index in range(KNOTS)
        ]

    def _shrinkage(self, near: _Moments, noise: float) -> float:
        return noise / SLOPE_ERROR**2 + near.total * LOAD_NOISE**2

    def _usual(
        self, found: Sequence[_Moments | None], weight: float, noise: float
    ) -> tuple[Pair, Matrix]:
        """Return the coefficients of all loads, and the inverse covariance of those at one load."""
        known = [near.less(self._slope, (0.0, 0.0)) for near in found if near is not None]
        # A sample is near several knots.
        share = weight / math.fsum(near.total for near in known)
        least = noise / COEFFICIENT_ERROR**2
        matrix, of_values = Matrix(least, 0.0, least), (0.0, 0.0)
        for near in known:
            (aa, ab, bb), (ay, by) = near.within(self._shrinkage(near, noise))
            matrix = matrix.plus(Matrix(share * aa, share * ab, share * bb))
            of_values = of_values[0] + share * ay, of_values[1] + share * by
        usual = matrix.inverse().times(of_values)
        covariance = matrix.inverse(noise).plus(Matrix(LOCAL_ERROR**2, 0.0, LOCAL_ERROR**2))
        return usual, covariance.inverse()

    def _plane(self, near: _Moments, usual: Pair, prior: Matrix, noise: float) -> _Knot:
        """Return the plane at a knot."""
        rest, shrinkage = near.less(self._slope, usual), self._shrinkage(near, noise)
        matrix, of_values = rest.within(shrinkage)
        matrix = matrix.plus(Matrix(noise * prior.aa, noise * prior.ab, noise * prior.bb))
        a, b = matrix.inverse().times(of_values)
        slope = (rest.xy - rest.xa * a - rest.xb * b) / (rest.xx + shrinkage)
        value = rest.y - slope * rest.x - a * rest.mix[0] - b * rest.mix[1]
        aa, ab, bb = matrix.inverse(noise)
        root = math.sqrt(aa), ab / math.sqrt(aa), math.sqrt(max(0.0, bb - ab * ab / aa))
        coefficients = usual[0] + a, usual[1] + b
        expected = shrinkage / (near.xx + shrinkage)
        return _Knot(value, self._slope + slope, near.mix, near.mixes, coefficients, root, expected)

    def _between(self, index: int, known: Sequence[tuple[int, _Knot]]) -> _Knot:
        """Return the plane at a knot without samples: the nearest one, through the values on both sides."""
        left, before = next((pair for pair in reversed(known) if pair[0] < index), known[0])
        right, after = next((pair for pair in known if pair[0] > index), known[-1])
        nearest, plane = min(known, key=lambda pair: abs(pair[0] - index))
        value = plane.value + self._slope * (index - nearest) * self._step
        if left < index < right:
            value = before.value + (index - left) / (right - left) * (after.value - before.value)
        return plane._replace(value=value, slope=self._slope, expected=1.0)


class _Knot(NamedTuple):
    """The fitted plane at a load.

    Attributes:
        value: At the mix 0.
        slope: Over the load.
        mix: The mean one of the samples nearby.
        mixes: Ranges of both numbers of their mixes.
        coefficients: Of the mix.
        root: Cholesky factor of their covariance: its first column, and the last element.
        expected: Share of the slope that is the expected one.
    """

    value: float
    slope: float
    mix: Pair
    mixes: tuple[Pair, Pair]
    coefficients: Pair
    root: tuple[float, float, float]
    expected: float

    def at(self, mix: Pair) -> float:
        """Return the value at a mix."""
        return self.value + self.coefficients[0] * mix[0] + self.coefficients[1] * mix[1]


class _Moments(NamedTuple):
    """Weighted samples near a knot: weight, means, and products around the means.

    x is the load less that of the knot, a and b are the mix, and y is the value; `mixes` has the ranges of
    both numbers of the mix.
    """

    total: float
    x: float
    mix: Pair
    mixes: tuple[Pair, Pair]
    y: float
    xx: float
    xa: float
    xb: float
    of_mix: Matrix
    xy: float
    ay: float
    by: float

    def less(self, slope: float, coefficients: Pair) -> _Moments:
        """Return those of the values less a plane."""
        a, b = coefficients
        of_a, of_b = self.of_mix.times(coefficients)
        return self._replace(
            y=self.y - slope * self.x - a * self.mix[0] - b * self.mix[1],
            xy=self.xy - slope * self.xx - a * self.xa - b * self.xb,
            ay=self.ay - slope * self.xa - of_a,
            by=self.by - slope * self.xb - of_b,
        )

    def within(self, shrinkage: float) -> tuple[Matrix, Pair]:
        """Return the products of the mix, and those with the value, that a slope does not explain."""
        xx = self.xx + shrinkage
        matrix = Matrix(-self.xa * self.xa / xx, -self.xa * self.xb / xx, -self.xb * self.xb / xx)
        of_values = self.ay - self.xa * self.xy / xx, self.by - self.xb * self.xy / xx
        return self.of_mix.plus(matrix), of_values


def _moments_near(knot: float, reach: float, columns: Sequence[Sequence[float]]) -> _Moments | None:
    """Return the moments of the samples near a knot; None if there are none with a weight.

    Args:
        knot: A load.
        reach: Distance from it at which the tricube weight is zero.
        columns: Loads in ascending order, both numbers of the mixes, values and weights.
    """
    near = slice(bisect_left(columns[0], knot - reach), bisect_right(columns[0], knot + reach))
    loads, a, b, y, weights = (column[near] for column in columns)
    x = [load - knot for load in loads]
    kernel = [
        weight * (1 - (abs(distance) / reach) ** 3) ** 3
        for distance, weight in zip(x, weights, strict=True)
    ]
    total = math.fsum(kernel)
    if total <= 0:
        return None
    of_a, of_b = (
        _known_range([number for number, weight in zip(mix, weights, strict=True) if weight > 0])
        for mix in (a, b)
    )
    (mean_x, x), (mean_a, a), (mean_b, b), (mean_y, y) = (
        _around_mean(column, kernel, total) for column in (x, a, b, y)
    )
    kx, ka, kb = (list(map(mul, kernel, column)) for column in (x, a, b))
    xx, xa, xb, xy = (math.fsum(map(mul, kx, column)) for column in (x, a, b, y))
    aa, ab, ay = (math.fsum(map(mul, ka, column)) for column in (a, b, y))
    bb, by = (math.fsum(map(mul, kb, column)) for column in (b, y))
    mix, products = (mean_a, mean_b), Matrix(aa, ab, bb)
    return _Moments(total, mean_x, mix, (of_a, of_b), mean_y, xx, xa, xb, products, xy, ay, by)


def _around_mean(
    values: Sequence[float], weights: Sequence[float], total: float
) -> tuple[float, list[float]]:
    """Return the weighted mean of values, and their differences from it."""
    mean = math.fsum(map(mul, weights, values)) / total
    return mean, [value - mean for value in values]


def _known_range(values: Sequence[float]) -> Pair:
    """Return the range of values without a few at each end."""
    ordered = sorted(values)
    left_out = min(EXTREMES, (len(ordered) - 1) // 2)
    return ordered[left_out], ordered[-1 - left_out]


def _fitted_powers(work: Iterable[tuple[float, float, float]]) -> Powers | None:
    """Return the powers by least squares of relative errors; None where the loads do not separate them.

    Args:
        work: Energy in J, idle and busy device-seconds of a unit of work, of each block.
    """
    ii = ib = bb = of_idle = of_busy = 0.0
    for energy_j, idle_s, busy_s in work:
        idle, busy = idle_s / energy_j, busy_s / energy_j
        ii += idle * idle
        ib += idle * busy
        bb += busy * busy
        of_idle += idle
        of_busy += busy
    determinant = ii * bb - ib * ib
    if determinant <= LEAST_DETERMINANT * ii * bb:
        return None
    idle_w = (bb * of_idle - ib * of_busy) / determinant
    busy_w = (ii * of_busy - ib * of_idle) / determinant
    return Powers(idle_w, busy_w) if idle_w >= 0 < busy_w else None


def most_likely_shift(
    residuals: Sequence[Residual], uncertainty: Uncertainty, latest: int
) -> ShiftEstimate | None:
    """Return the most likely shift in the latest blocks; None if there is none to judge.

    Args:
        residuals: Those of the last blocks, oldest first.
        uncertainty: What they may be wrong by.
        latest: Number of blocks in which it may have begun. At least half of those after it are at an
            unknown load: other shifts are found without this.
    """
    factor = _factor(residuals, uncertainty)
    values = _solved(factor, [residual.value for residual in residuals], 0)
    best: ShiftEstimate | None = None
    count = len(residuals)
    for first in range(max(1, count - latest), count - LEAST_AFTER + 1):
        if 2 * sum(residual.is_unknown for residual in residuals[first:]) < count - first:
            continue
        step = _solved(factor, [1.0] * (count - first), first)
        length, after = math.hypot(*step), values[first:]
        errors = math.fsum(map(mul, step, after)) / length
        if best is None or abs(errors) > abs(best.errors):
            shift = errors / length
            is_step = all(abs(y - shift * x) <= OUTLYING for x, y in zip(step, after, strict=True))
            best = ShiftEstimate(residuals[first].time_s, shift, errors, is_step)
    if best is not None and best.is_certain and _is_of_one_block(factor, values, residuals, best):
        return best._replace(is_step=False)
    return best


def _is_of_one_block(
    factor: Sequence[Sequence[float]],
    values: Sequence[float],
    residuals: Sequence[Residual],
    found: ShiftEstimate,
) -> bool:
    """Return whether a shift is uncertain without one of the blocks."""
    count = len(residuals)
    first = next(i for i, known in enumerate(residuals) if known.time_s >= found.since_s)
    step = [0.0] * first + _solved(factor, [1.0] * (count - first), first)
    for index in range(count):
        # A regressor of its own takes the block out.
        alone = [0.0] * index + _solved(factor, [1.0] + [0.0] * (count - index - 1), index)
        share = math.fsum(map(mul, step, alone)) / math.fsum(map(mul, alone, alone))
        rest = [x - share * y for x, y in zip(step, alone, strict=True)]
        errors = math.fsum(map(mul, rest, values)) / (math.hypot(*rest) or math.inf)
        if errors * math.copysign(1.0, found.shift) < LONE_ERRORS:
            return True
    return False


def _factor(residuals: Sequence[Residual], uncertainty: Uncertainty) -> list[list[float]]:
    """Return the Cholesky factor of the residuals' covariance."""
    rows: list[list[float]] = []
    for index, residual in enumerate(residuals):
        row: list[float] = []
        correlated = [uncertainty.phi ** (index - column) for column in range(index + 1)]
        for column, former in enumerate(rows):
            value = uncertainty.covariance(residual.beyond, residuals[column].beyond)
            value += uncertainty.noise * correlated[column] - math.fsum(map(mul, row, former))
            row.append(value / former[column])
        value = uncertainty.covariance(residual.beyond, residual.beyond) + uncertainty.noise
        row.append(math.sqrt(max(_LEAST_VARIANCE, value - math.fsum(map(mul, row, row)))))
        rows.append(row)
    return rows


def _solved(factor: Sequence[Sequence[float]], values: Sequence[float], first: int) -> list[float]:
    """Return the solution of factor * x = values, which are 0 before the index `first`, from there on."""
    solved: list[float] = []
    for row, value in zip(factor[first:], values, strict=True):
        solved.append((value - math.fsum(map(mul, row[first:], solved))) / row[-1])
    return solved
