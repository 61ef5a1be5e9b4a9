"""How device time or energy per unit of work depends on load and mix, learned from a series' own history.

A server batches: the more work a device gets, the less time one token takes, so that the busy time per
token falls at noon and rises at night without any change of efficiency. The model is

    ln(effort / work) = f(ln(work per device-second), mix)

with f a local linear regression (`effort_curve`; biweight against outliers after Cleveland, "Robust locally
weighted regression", 1979). Beyond the load that was observed, f continues with its slope at the edge, which
is uncertain, and beyond the mixes that were observed at a load with their coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from statistics import median

from costprobe.domain.detection.effort_curve import EffortCurve
from costprobe.domain.detection.extrapolated_shift import Beyond, Uncertainty
from costprobe.domain.detection.moments import Pair, known_range
from costprobe.domain.detection.normal import SeriesModel
from costprobe.domain.detection.powers import fitted_powers

LEAST_NOISE = 0.005
ROUNDS = 3
BIWEIGHT = 4.7
MAD_TO_SIGMA = 1.4826
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
        self._low, self._high = known_range([sample.load for sample in samples])
        first, second = ([sample.mix[index] for sample in samples] for index in (0, 1))
        self._centers = median(first), median(second)
        self._powers = None
        if busy is not None:
            self._powers = fitted_powers(
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
