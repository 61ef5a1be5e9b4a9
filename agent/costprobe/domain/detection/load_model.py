"""How device time or energy per unit of work depends on load and mix, learned from a series' own history.

A server batches: the more work a device gets, the less time one token takes, so that the busy time per
token falls at noon and rises at night without any change of efficiency. The model is

    ln(effort / work) = f(ln(work per device-second)) + coefficients x mix

with f a local linear regression (Cleveland, "Robust locally weighted regression", 1979: tricube
weights, biweight against outliers) and the coefficients by ridge regression on the rest. Beyond the
load that was observed, f continues with its slope at the edge, which is uncertain.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from costprobe.domain.detection.extrapolated_shift import Beyond, Uncertainty
from costprobe.domain.detection.normal import SeriesModel
from costprobe.domain.detection.powers import fitted_powers

KNOTS = 13
# Width of the regression: a share of the range of loads, and the least one in log units.
WIDTH_SHARE = 0.2
LEAST_WIDTH = 0.12
# Standard deviation of the expected slope of f, which is between 0 (an additive server) and -1 (a device
# that is busy, or draws power, whatever the load).
SLOPE_ERROR = 0.4
COEFFICIENT_ERROR = 0.5
# Loads that differ by less show no slope: counts are in the load and in the effort per count, so that
# their noise has a slope of -1.
LOAD_NOISE = 0.05
LEAST_NOISE = 0.005
ROUNDS = 3
BIWEIGHT = 4.7
MAD_TO_SIGMA = 1.4826
# Part of the distance to the observed loads, and mixes, that the extrapolation may be wrong by.
UNKNOWN_SLOPE = 0.4
UNKNOWN_MIX = 0.4
# Samples at each end of a range that are not known well enough.
EXTREMES = 4
# Variance of the change of the slope over a log unit of load before any load is observed, and the log units
# of observed loads that it is worth: from a server that takes requests one by one (slope 0) to one that
# batches all (-1) are about three log units.
CURVATURE = 0.3**2
CURVATURE_WORTH = 1.0
# Mean distance of the samples that a slope at the edge is from, in widths, and the factor by which slow
# noise increases its variance.
EDGE_DISTANCE = 0.7
SLOW_NOISE = 3.0


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
    mix: tuple[float, float]
    effort: float
    is_capped: bool = False


class LoadModel:
    """A fitted model.

    Args:
        samples: History at one level of efficiency; at least one.
        slope: Expected slope of f.
        busy: For energy the model of device time, if it is known.
    """

    def __init__(
        self, samples: Sequence[LoadSample], slope: float, busy: LoadModel | None = None
    ) -> None:
        self._slope, self._busy = slope, busy
        loads = [sample.load for sample in samples]
        self._low, self._high = _range(loads)
        first, second = ([sample.mix[index] for sample in samples] for index in (0, 1))
        self._mixes = _range(first), _range(second)
        self._centers = median(first), median(second)
        width = max(LEAST_WIDTH, WIDTH_SHARE * (self._high - self._low))
        step = (self._high - self._low) / (KNOTS - 1)
        self._knots = array("d", [self._low + index * step for index in range(KNOTS)])
        self._coefficients = (0.0, 0.0)
        weights = [1.0] * len(samples)
        self._powers = None
        if busy is not None:
            self._powers = fitted_powers(
                (math.exp(sample.effort), *busy.seconds(sample.load)) for sample in samples
            )
        efforts = [sample.effort - self._of_powers(sample.load) for sample in samples]
        for _ in range(ROUNDS):
            rest = [
                effort - self._of_mix(sample.mix)
                for effort, sample in zip(efforts, samples, strict=True)
            ]
            noise = self._noise(rest)
            self._values, self._slopes, self._spreads = self._fit(
                loads, rest, weights, width, noise
            )
            residuals = [
                effort - self._of_curve(load) for effort, load in zip(efforts, loads, strict=True)
            ]
            self._coefficients = self._ridge(samples, residuals, weights, noise)
            residuals = [
                residual - self._of_mix(sample.mix)
                for residual, sample in zip(residuals, samples, strict=True)
            ]
            scale = max(LEAST_NOISE, MAD_TO_SIGMA * median(abs(value) for value in residuals))
            weights = [max(0.0, 1 - (value / (BIWEIGHT * scale)) ** 2) ** 2 for value in residuals]
        turns = sum((later - former) ** 2 for former, later in pairwise(self._slopes))
        known = self._high - self._low
        self._curvature = (CURVATURE_WORTH * CURVATURE + turns) / (CURVATURE_WORTH + known)
        bend = self._curvature * EDGE_DISTANCE * width
        low, high = (SLOW_NOISE * scale**2 / self._spreads[edge] + bend for edge in (0, -1))
        self._slope_variances = low, high

    def surprise(self, sample: LoadSample, level: float) -> float:
        """Return the effort less what load and mix explain, in log units, as near to a level as it may be.

        Beyond the observed loads and mixes it is nearer by what the slope there may be wrong by.

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
        return sample.effort - self._of_load(sample.load) - self._of_mix(sample.mix)

    def slack(self, sample: LoadSample) -> float:
        """Return what the model may be wrong by beyond the observed loads and mixes, in log units."""
        beyond = self.beyond(sample)
        return UNKNOWN_SLOPE * abs(beyond.load) + UNKNOWN_MIX * sum(map(abs, beyond.mix))

    def beyond(self, sample: LoadSample) -> Beyond:
        """Return how far a sample is beyond the observed loads and mixes."""
        (first, second), (of_first, of_second) = sample.mix, self._mixes
        mix = _outside(first, of_first), _outside(second, of_second)
        return Beyond(_outside(sample.load, (self._low, self._high)), mix)

    def uncertainty(self, series: SeriesModel) -> Uncertainty:
        """Return what the efforts of samples less what load and mix explain may be wrong by.

        Args:
            series: Level and noise of these differences.
        """
        return Uncertainty(
            noise=series.sigma_all**2,
            phi=series.phi,
            level=series.level_variance,
            slopes=self._slope_variances,
            curvature=self._curvature,
            mix=UNKNOWN_MIX**2,
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
        return self._of_powers(load) + self._of_curve(load)

    def _of_powers(self, load: float) -> float:
        """Return the logarithm of the energy per unit of work at constant idle and busy power."""
        if self._busy is None or self._powers is None:
            return 0.0
        return math.log(self._powers.energy_j(*self._busy.seconds(load)))

    def seconds(self, load: float) -> tuple[float, float]:
        """Return the expected idle and busy device-seconds of a unit of work."""
        busy_s = math.exp(self._of_load(load))
        return max(0.0, math.exp(-load) - busy_s), busy_s

    def _of_curve(self, load: float) -> float:
        if load <= self._low:
            return self._values[0] + self._slopes[0] * (load - self._low)
        if load >= self._high:
            return self._values[-1] + self._slopes[-1] * (load - self._high)
        step = (self._high - self._low) / (KNOTS - 1)
        index = min(KNOTS - 2, int((load - self._low) / step))
        share = (load - self._knots[index]) / step
        return (1 - share) * self._values[index] + share * self._values[index + 1]

    def _of_mix(self, mix: tuple[float, float]) -> float:
        (first, second), (c0, c1) = self._coefficients, self._centers
        return first * (mix[0] - c0) + second * (mix[1] - c1)

    @staticmethod
    def _noise(values: Sequence[float]) -> float:
        """Return the variance of the noise, from differences of neighbours in time."""
        steps = [abs(later - former) for former, later in pairwise(values)]
        spread = MAD_TO_SIGMA * median(steps) / math.sqrt(2) if steps else 0.0
        return max(LEAST_NOISE, spread) ** 2

    def _fit(
        self,
        loads: Sequence[float],
        values: Sequence[float],
        weights: Sequence[float],
        width: float,
        noise: float,
    ) -> tuple[array[float], array[float], array[float]]:
        """Return value and slope of f at each knot, and what divides the noise's variance in the slope's."""
        fitted, slopes, spreads = array("d"), array("d"), array("d")
        prior, reach = noise / SLOPE_ERROR**2, 2 * width
        for knot in self._knots:
            total = of_x = of_y = of_xx = of_xy = 0.0
            for load, value, weight in zip(loads, values, weights, strict=True):
                x = load - knot
                if not -reach < x < reach:
                    continue
                distance = abs(x) / reach
                tricube = 1 - distance * distance * distance
                kernel = weight * tricube * tricube * tricube
                moment = kernel * x
                total += kernel
                of_x += moment
                of_y += kernel * value
                of_xx += moment * x
                of_xy += moment * value
            if total <= 0:
                fitted.append(math.nan)
                slopes.append(self._slope)
                spreads.append(prior)
                continue
            mean_x, mean_y = of_x / total, of_y / total
            spread, product = of_xx - total * mean_x**2, of_xy - total * mean_x * mean_y
            shrinkage = prior + total * LOAD_NOISE**2
            slope = (product + shrinkage * self._slope) / (max(0.0, spread) + shrinkage)
            fitted.append(mean_y - slope * mean_x)
            slopes.append(slope)
            spreads.append(max(0.0, spread) + shrinkage)
        return _filled(fitted), slopes, spreads

    def _ridge(
        self,
        samples: Sequence[LoadSample],
        residuals: Sequence[float],
        weights: Sequence[float],
        noise: float,
    ) -> tuple[float, float]:
        """Return the coefficients of the mix."""
        prior = noise / COEFFICIENT_ERROR**2
        (c0, c1), aa, ab, bb, ay, by = self._centers, prior, 0.0, prior, 0.0, 0.0
        for sample, residual, weight in zip(samples, residuals, weights, strict=True):
            a, b = sample.mix[0] - c0, sample.mix[1] - c1
            aa += weight * a * a
            ab += weight * a * b
            bb += weight * b * b
            ay += weight * a * residual
            by += weight * b * residual
        determinant = aa * bb - ab * ab
        return (bb * ay - ab * by) / determinant, (aa * by - ab * ay) / determinant


def _outside(value: float, known: tuple[float, float]) -> float:
    """Return the signed distance of a value from a range; 0 within."""
    return min(0.0, value - known[0]) + max(0.0, value - known[1])


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values without a few at each end."""
    ordered = sorted(values)
    left_out = min(EXTREMES, (len(ordered) - 1) // 2)
    return ordered[left_out], ordered[-1 - left_out]


def _filled(values: array[float]) -> array[float]:
    """Interpolate knots without values between their neighbours."""
    known = [index for index, value in enumerate(values) if not math.isnan(value)]
    for left, right in pairwise(known):
        for index in range(left + 1, right):
            share = (index - left) / (right - left)
            values[index] = values[left] + share * (values[right] - values[left])
    return values
