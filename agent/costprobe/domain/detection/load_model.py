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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from costprobe.domain.detection.effort_curve import EffortCurve
from costprobe.domain.detection.extrapolated_shift import Beyond, Uncertainty
from costprobe.domain.detection.normal import SeriesModel
from costprobe.domain.detection.powers import fitted_powers

# Of the coefficients of the mix: an elasticity, of tokens whose weights are wrong by up to a factor of two.
COEFFICIENT_ERROR = 0.2
LEAST_NOISE = 0.005
ROUNDS = 3
BIWEIGHT = 4.7
MAD_TO_SIGMA = 1.4826
# Standard deviation of the coefficient of mixes that were not observed, and the standard errors that an
# extrapolation may be wrong by.
UNKNOWN_MIX = 0.3
EXTRAPOLATION_ERRORS = 2.0
# Samples at each end of a range that are not known well enough.
EXTREMES = 4
# Variance of the change of the slope over a log unit of load before any load is observed, and the log units
# of observed loads that it is worth: from a server that takes requests one by one (slope 0) to one that
# batches all (-1) are about three log units.
CURVATURE = 0.3**2
CURVATURE_WORTH = 1.0
# Mean distance of the samples that a slope at the edge is from, in widths, and the factor by which slow
# noise increases the variance of slopes and coefficients.
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
        slope: Expected slope of f; with known idle and busy power it is 0.
        busy: For energy the model of device time, if it is known.
    """

    def __init__(
        self, samples: Sequence[LoadSample], slope: float, busy: LoadModel | None = None
    ) -> None:
        self._busy = busy
        loads = [sample.load for sample in samples]
        self._low, self._high = _range(loads)
        first, second = ([sample.mix[index] for sample in samples] for index in (0, 1))
        self._mixes = _range(first), _range(second)
        self._centers = median(first), median(second)
        self._coefficients = (0.0, 0.0)
        weights = [1.0] * len(samples)
        self._powers = None
        if busy is not None:
            self._powers = fitted_powers(
                (math.exp(sample.effort), *busy.seconds(sample.load)) for sample in samples
            )
        slope = slope if self._powers is None else 0.0
        self._curve = curve = EffortCurve((self._low, self._high), slope)
        efforts = [sample.effort - self._of_powers(sample.load) for sample in samples]
        for _ in range(ROUNDS):
            rest = [
                effort - self._of_mix(sample.mix)
                for effort, sample in zip(efforts, samples, strict=True)
            ]
            noise = SLOW_NOISE * self._noise(rest)
            curve.fit(loads, rest, weights, noise)
            residuals = [
                effort - curve.value(load) for effort, load in zip(efforts, loads, strict=True)
            ]
            self._coefficients, self._weights = self._ridge(samples, residuals, weights, noise)
            residuals = [
                residual - self._of_mix(sample.mix)
                for residual, sample in zip(residuals, samples, strict=True)
            ]
            scale = max(LEAST_NOISE, MAD_TO_SIGMA * median(abs(value) for value in residuals))
            weights = [max(0.0, 1 - (value / (BIWEIGHT * scale)) ** 2) ** 2 for value in residuals]
        self._extrapolation = self._extrapolated()

    def _extrapolated(self) -> Uncertainty:
        """Return what curve and coefficients may be wrong by, without the noise."""
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
            weights=self._weights,
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
        return sample.effort - self._of_load(sample.load) - self._of_mix(sample.mix)

    def slack(self, sample: LoadSample) -> float:
        """Return what the model may be wrong by at a load and mix, in log units."""
        beyond = self.beyond(sample)
        variance = self._extrapolation.covariance(beyond, beyond)
        return EXTRAPOLATION_ERRORS * math.sqrt(max(0.0, variance))

    def beyond(self, sample: LoadSample) -> Beyond:
        """Return how far a sample is beyond the observed loads and mixes."""
        (first, second), (of_first, of_second) = sample.mix, self._mixes
        mix = _outside(first, of_first), _outside(second, of_second)
        unusual = first - self._centers[0], second - self._centers[1]
        return Beyond(_outside(sample.load, (self._low, self._high)), mix, unusual)

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
        return self._of_powers(load) + self._curve.value(load)

    def _of_powers(self, load: float) -> float:
        """Return the logarithm of the energy per unit of work at constant idle and busy power."""
        if self._busy is None or self._powers is None:
            return 0.0
        return math.log(self._powers.energy_j(*self._busy.seconds(load)))

    def seconds(self, load: float) -> tuple[float, float]:
        """Return the expected idle and busy device-seconds of a unit of work."""
        busy_s = math.exp(self._of_load(load))
        return max(0.0, math.exp(-load) - busy_s), busy_s

    def _of_mix(self, mix: tuple[float, float]) -> float:
        (first, second), (c0, c1) = self._coefficients, self._centers
        return first * (mix[0] - c0) + second * (mix[1] - c1)

    @staticmethod
    def _noise(values: Sequence[float]) -> float:
        """Return the variance of the noise, from differences of neighbours in time."""
        steps = [abs(later - former) for former, later in pairwise(values)]
        spread = MAD_TO_SIGMA * median(steps) / math.sqrt(2) if steps else 0.0
        return max(LEAST_NOISE, spread) ** 2

    def _ridge(
        self,
        samples: Sequence[LoadSample],
        residuals: Sequence[float],
        weights: Sequence[float],
        noise: float,
    ) -> tuple[tuple[float, float], tuple[float, float, float]]:
        """Return the coefficients of the mix, and their variances around their covariance."""
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
        coefficients = (bb * ay - ab * by) / determinant, (aa * by - ab * ay) / determinant
        scale = noise / determinant
        return coefficients, (scale * bb, -scale * ab, scale * aa)


def _outside(value: float, known: tuple[float, float]) -> float:
    """Return the signed distance of a value from a range; 0 within."""
    return min(0.0, value - known[0]) + max(0.0, value - known[1])


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values without a few at each end."""
    ordered = sorted(values)
    left_out = min(EXTREMES, (len(ordered) - 1) // 2)
    return ordered[left_out], ordered[-1 - left_out]
