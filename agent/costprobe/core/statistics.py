"""Quantiles, rolling cost, non-negative least squares, robust spread, and thresholds of cumulative sums.

Quantiles are those of samples, and of Student's distribution. The rolling cost is the median and
interquartile range of the samples of the last hour, day and week.

Least squares without negative coefficients: each row is weighted by the inverse of its total
(Lawson and Hanson, "Solving Least Squares Problems", 1974, ch. 23). The intervals of sums of the
coefficients are those of linear regression with Student's quantile; they contain what the model
does not explain.

The robust spread comes with tails that are heavier than normal ones.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from costprobe.core.records import NS_PER_S

# Siegmund's correction for the overshoot over a boundary, in standard deviations.
_OVERSHOOT: Final = 1.166
# Enough for 1e-10 at any number of degrees of freedom below 1e4.
_FRACTION_TERMS = 60
WINDOWS_S: Mapping[str, int] = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400}
# A week of one sample a minute.
MAX_SAMPLES = 10_080
CONFIDENCE: Final = 0.95
# Below this share of its column's square a pivot is noise: the rows do not separate the terms.
MIN_PIVOT: Final = 1e-12
# A further term that reduces the mean squared error by less explains rounding errors.
MIN_GAIN: Final = 1e-18
_Vector = list[float]
# Largest AR(1) coefficient of an estimate.
LARGEST_PHI: Final = 0.85
# Standard error of a median of normal values, in that of their mean.
MEDIAN_ERROR: Final = 1.2533
# Noise of logarithms below it is rounding, and has no autocorrelation or pattern.
ROUNDING_NOISE = 1e-9
# Share of the largest figure within which two figures are equal.
_EQUAL = 1e-9
MAD_TO_SIGMA = 1.4826
# Values further from the center are left out of the second step, in spreads of the first one; the standard
# deviation of normal values within these limits is that share of their own.
CUT = 2.5
_CUT_SIGMA = 0.9546
# Degrees of freedom of Student's distribution among which a tail is chosen.
DEGREES = (5.0, 7.0, 10.0, 15.0, 30.0, 100.0)
# Fewer values do not show their tail.
LEAST_TAIL = 100


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation of order statistics (Hyndman and Fan 1996, type 7).

    Args:
        ordered: Samples in ascending order; at least one.
        share: From 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def student_quantile(share: float, degrees: float) -> float:
    """Return a quantile of Student's distribution (Abramowitz and Stegun, expansion 26.7.5).

    Args:
        share: From 0 to 1, both excluded.
        degrees: Degrees of freedom; below 1 counts as 1.
    """
    z, n = statistics.NormalDist().inv_cdf(share), max(1.0, degrees)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def student_tail(t: float, degrees: float) -> float:
    """Return the probability of a value above t in Student's distribution.

    Source: Abramowitz and Stegun, 26.7.1 and 26.5.8, the continued fraction of the incomplete beta function,
    evaluated from its end.

    Args:
        t: Any number.
        degrees: Degrees of freedom, at least 1.
    """
    if t < 0:
        return 1 - student_tail(-t, degrees)
    a, b, x = degrees / 2, 0.5, degrees / (degrees + t * t)
    if x > (a + 1) / (a + b + 2):
        # The fraction converges for the other tail of the beta distribution.
        return 0.5 - _beta_part(b, a, 1 - x) / 2
    return _beta_part(a, b, x) / 2


def _beta_part(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function, for x of at most (a + 1) / (a + b + 2)."""
    if x <= 0:
        return 0.0
    fraction = 1.0
    for m in range(_FRACTION_TERMS, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        fraction = 1 + even / (1 + odd / fraction)
    first = -(a + b) * x / (a + 1)
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(whole + a * math.log(x) + b * math.log1p(-x)) / a / (1 + first / fraction)


class RollingSample(NamedTuple):
    """A cost: UTC in ns, its value, and whether others used the device."""

    time_ns: int
    value: float
    is_contended: bool = False


@dataclass(frozen=True, slots=True)
class Rolled:
    """A window's summary.

    Attributes:
        median: Median of the samples.
        iqr: Interquartile range of the samples.
        coverage: Share of the window's expected samples that are present, at most 1.
        samples: Number of samples.
    """

    median: float
    iqr: float
    coverage: float
    samples: int


@dataclass(init=False)
class RollingWindows:
    """The last samples of one series, at most MAX_SAMPLES of them; immutable.

    Args:
        every_s: Expected seconds between samples, from which coverage is computed.
        samples: UTC in ns and value of each sample, oldest first.
    """

    every_s: float
    times_ns: array[int]
    values: array[float]

    def __init__(self, every_s: float, samples: Iterable[tuple[int, float]] = ()) -> None:
        self.every_s = every_s
        kept = deque(samples, maxlen=MAX_SAMPLES)
        self.times_ns = array("q", (time_ns for time_ns, _ in kept))
        self.values = array("d", (value for _, value in kept))

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the last sample; 0 before the first."""
        return self.times_ns[-1] if self.times_ns else 0

    def with_sample(self, time_ns: int, value: float) -> RollingWindows:
        """Return the windows after a sample, which is not older than the newest one."""
        samples = zip(self.times_ns, self.values, strict=True)
        return RollingWindows(self.every_s, (*samples, (time_ns, value)))

    def summaries(self, now_ns: int) -> dict[str, Rolled]:
        """Return each window that ends at UTC now_ns and contains a sample, by its WINDOWS_S name."""
        found = {}
        for name, window_s in WINDOWS_S.items():
            since_ns = now_ns - window_s * NS_PER_S
            samples = zip(self.times_ns, self.values, strict=True)
            ordered = sorted(value for time_ns, value in samples if since_ns < time_ns <= now_ns)
            if ordered:
                expected = max(1.0, min(window_s / self.every_s, MAX_SAMPLES))
                found[name] = Rolled(
                    median=quantile(ordered, 0.5),
                    iqr=quantile(ordered, 0.75) - quantile(ordered, 0.25),
                    coverage=min(1.0, len(ordered) / expected),
                    samples=len(ordered),
                )
        return found


@dataclass(frozen=True, slots=True)
class RollingCosts:
    """The costs of a probe; contended ones count only in a window that has no others.

    Attributes:
        undisturbed: Costs measured without another process on the device.
        contended: Costs measured beside other work.
    """

    undisturbed: RollingWindows
    contended: RollingWindows

    @classmethod
    def of(cls, every_s: float, samples: Iterable[RollingSample] = ()) -> RollingCosts:
        """Return the rolling costs of samples, oldest first, one every so many seconds."""
        parts: dict[bool, list[tuple[int, float]]] = {False: [], True: []}
        for sample in samples:
            parts[sample.is_contended].append((sample.time_ns, sample.value))
        return cls(RollingWindows(every_s, parts[False]), RollingWindows(every_s, parts[True]))

    @property
    def newest_ns(self) -> int:
        """UTC in ns of the last sample; 0 before the first."""
        return max(self.undisturbed.newest_ns, self.contended.newest_ns)

    def with_sample(self, sample: RollingSample) -> RollingCosts:
        """Return the rolling costs after a sample, which is not older than the newest one."""
        time_ns, value, is_contended = sample
        if is_contended:
            return replace(self, contended=self.contended.with_sample(time_ns, value))
        return replace(self, undisturbed=self.undisturbed.with_sample(time_ns, value))

    def summaries(self, now_ns: int) -> dict[str, Rolled]:
        """Return each window that ends at UTC now_ns and contains a sample, by its WINDOWS_S name."""
        found = {**self.contended.summaries(now_ns), **self.undisturbed.summaries(now_ns)}
        return {name: found[name] for name in WINDOWS_S if name in found}


class ConfidenceInterval(NamedTuple):
    """A figure with its interval of 95 %."""

    value: float
    low: float
    high: float


class Regression(NamedTuple):
    """Coefficients, and the covariance of those above zero."""

    values: _Vector
    active: tuple[int, ...]
    covariance: list[_Vector]
    degrees: int

    def interval(self, factors: _Vector) -> ConfidenceInterval:
        """Return a sum of coefficients, each times a factor, with its interval."""
        value = math.fsum(factor * x for factor, x in zip(factors, self.values, strict=True))
        own = [factors[term] for term in self.active]
        variance = math.fsum(
            a * b * self.covariance[i][j] for i, a in enumerate(own) for j, b in enumerate(own)
        )
        quantile = student_quantile((1 + CONFIDENCE) / 2, self.degrees)
        half = quantile * math.sqrt(max(0.0, variance))
        return ConfidenceInterval(*(max(0.0, x) for x in (value, value - half, value + half)))


def nonnegative_fit(
    rows: Sequence[_Vector], totals: Sequence[float], kept: Collection[int] = ()
) -> Regression:
    """Return the non-negative least squares of the relative errors, by trying each set of terms.

    The terms are few: the best of the sets whose unrestricted solution is above zero is the
    solution (the Karush-Kuhn-Tucker conditions hold for no other of them).

    Args:
        rows: What the coefficients are multiplied with, in each row; more rows than coefficients.
        totals: The sum of each row, above zero.
        kept: Terms that stay in the solution, also below zero, so that they have an interval.

    Raises:
        ValueError: There is no solution.
    """
    terms = len(rows[0])
    scaled = [[x / total for x in row] for row, total in zip(rows, totals, strict=True)]
    scales = [max(abs(row[term]) for row in scaled) or 1.0 for term in range(terms)]
    scaled = [[x / scale for x, scale in zip(row, scales, strict=True)] for row in scaled]
    best: tuple[float, tuple[int, ...], _Vector, list[_Vector]] | None = None
    for size in range(1, terms + 1):
        for active in combinations(range(terms), size):
            if not set(kept) <= set(active):
                continue
            inverse = inverse_of(
                [[math.fsum(row[i] * row[j] for row in scaled) for j in active] for i in active]
            )
            if inverse is None:
                continue
            sums = [math.fsum(row[i] for row in scaled) for i in active]
            own = [math.fsum(a * b for a, b in zip(line, sums, strict=True)) for line in inverse]
            if any(x < 0 and term not in kept for term, x in zip(active, own, strict=True)):
                continue
            error = math.fsum(
                (1 - math.fsum(row[i] * x for i, x in zip(active, own, strict=True))) ** 2
                for row in scaled
            )
            if best is None or error < best[0] - MIN_GAIN * len(rows):
                best = error, active, own, inverse
    if best is None:
        raise ValueError("the windows have no solution above zero")
    error, active, own, inverse = best
    degrees = len(rows) - len(active)
    values = [0.0] * terms
    for term, x in zip(active, own, strict=True):
        values[term] = x / scales[term]
    covariance = [
        [error / degrees * x / (scales[i] * scales[j]) for j, x in zip(active, line, strict=True)]
        for i, line in zip(active, inverse, strict=True)
    ]
    return Regression(values, active, covariance, degrees)


def inverse_of(matrix: list[_Vector]) -> list[_Vector] | None:
    """Return the inverse of a symmetric matrix by elimination; None if it is singular."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        if abs(rows[pivot][column]) <= MIN_PIVOT * matrix[column][column]:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        rows[column] = [x / head for x in rows[column]]
        for i in range(size):
            if i != column:
                factor = rows[i][column]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[column], strict=True)]
    return [row[size:] for row in rows]


def first_least(indices: Iterable[int], figure: Callable[[int], float]) -> int:
    """Return the first index with the smallest figure, but for rounding; at least one index."""
    figures = {index: figure(index) for index in indices}
    limit = min(figures.values()) + _EQUAL * max(map(abs, figures.values()))
    return next(index for index, found in figures.items() if found <= limit)


def spread_of(values: Sequence[float], center: float | None = None) -> float:
    """Return the standard deviation of the bulk of some values, in two steps.

    The median absolute deviation, which half of the values may not move, then the standard deviation of
    the values within 2.5 of it, corrected for those left out: as robust, and nearly as precise as a
    standard deviation (Rousseeuw and Leroy, "Robust Regression and Outlier Detection", 1987, reweighted
    least squares).

    Args:
        values: At least one.
        center: Known center; None for the median.
    """
    middle = statistics.median(values) if center is None else center
    distances = [abs(value - middle) for value in values]
    first = MAD_TO_SIGMA * statistics.median(distances)
    kept = [distance for distance in distances if distance <= CUT * first]
    return math.sqrt(math.fsum(distance * distance for distance in kept) / len(kept)) / _CUT_SIGMA


def tail_degrees(scores: Sequence[float]) -> float:
    """Return the degrees of freedom of Student's distribution that the lower half of some scores follows.

    Faults make a GPU slower, so that the other half shows the tail of healthy ones (the empirical null of
    Efron, "Large-scale simultaneous hypothesis testing", 2004). Compared is the ratio of the 95 % and the
    50 % quantile.

    Args:
        scores: Values in units of their spread, centered at 0.
    """
    lower = sorted(-score for score in scores if score < 0)
    if len(lower) < LEAST_TAIL:
        return DEGREES[-1]
    ratio = quantile(lower, 0.95) / max(quantile(lower, 0.5), 1e-9)
    return next((df for df in reversed(DEGREES) if _ratio(df) >= ratio), DEGREES[0])


@cache
def _ratio(degrees: float) -> float:
    return student_quantile(0.975, degrees) / student_quantile(0.75, degrees)


def decision_interval(reference: float, run_length: float) -> float:
    """Return the threshold h of a one-sided CUSUM of white noise for a mean time to a false alarm.

    Args:
        reference: The reference value k, in standard deviations; positive.
        run_length: The mean number of values until a false alarm.

    Returns:
        h in standard deviations, from Siegmund's approximation
        ARL = (exp(2kb) - 2kb - 1) / (2k^2) with b = h + 1.166 (Siegmund, "Sequential Analysis",
        1985, ch. II), to 1/64 of a standard deviation of k.
    """
    reference = max(1, round(reference * 64)) / 64
    wanted = 2 * reference * reference * run_length
    exponent = math.log(wanted + 1)
    for _ in range(20):  # exponent = ln(wanted + 1 + exponent): the iteration converges fast
        exponent = math.log(wanted + 1 + exponent)
    return max(1.0, exponent / (2 * reference) - _OVERSHOOT)


def noise_of(values: Sequence[float]) -> tuple[float, float]:
    """Estimate standard deviation and AR(1) coefficient from differences, robust to a slow pattern.

    For AR(1) noise the variance of differences at lag one is 2 s^2 (1 - phi), at lag two
    2 s^2 (1 - phi^2); their ratio is 1 + phi.
    """
    lag1 = MAD_TO_SIGMA * statistics.median(abs(b - a) for a, b in pairwise(values))
    lag2 = MAD_TO_SIGMA * statistics.median(
        abs(b - a) for a, b in zip(values, values[2:], strict=False)
    )
    if lag1 < ROUNDING_NOISE:
        return 0.0, 0.0
    phi = min(LARGEST_PHI, max(0.0, (lag2 / lag1) ** 2 - 1))
    return lag1 / math.sqrt(2 * (1 - phi)), phi


def autocorrelation_of(residuals: Sequence[float], noise: float) -> float:
    """Estimate the AR(1) coefficient as the autocorrelation of the clipped values.

    It is more exact than `noise_of`, and too low where the noise is slow; the larger of both is
    on the side of fewer false alarms.

    Args:
        residuals: Values without a pattern.
        noise: Their standard deviation.
    """
    limit = 3 * noise
    clipped = [max(-limit, min(limit, value)) for value in residuals]
    square = math.fsum(value * value for value in clipped)
    product = math.fsum(b * a for a, b in pairwise(clipped))
    return min(LARGEST_PHI, max(0.0, product / square)) if square else 0.0
