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
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from operator import mul
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import PlainSerializer

from costprobe.core.statistics import MAD_TO_SIGMA
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
        matrix = [
            [sum(map(mul, one, other)) for other in columns[: index + 1]]
            for index, one in enumerate(weighted)
        ]
        for index, deviation in enumerate(PRIOR):
            matrix[index][index] += variance / deviation**2
        self._root = _cholesky(matrix)
        self._scale = variance
        products = [sum(map(mul, column, efforts)) for column in weighted]
        coefficients = _backward(self._root, _forward(self._root, products))
        coefficients[1] += self._slope
        self._coefficients = coefficients

    def expected(self, features: Features) -> float:
        """Return the expected effort."""
        return math.fsum(map(mul, self._coefficients, features))

    def variance(self, features: Features) -> float:
        """Return what the expected effort may be wrong by: its variance, without the noise."""
        solved = _forward(self._root, features)
        return self._scale * math.fsum(map(mul, solved, solved))

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


def _cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the lower factor of a positive matrix, of which the lower half is given."""
    root: list[list[float]] = []
    for given in matrix:
        row: list[float] = []
        for value, former in zip(given, root, strict=False):
            row.append((value - sum(map(mul, row, former))) / former[-1])
        row.append(math.sqrt(given[-1] - sum(map(mul, row, row))))
        root.append(row)
    return root


def _forward(root: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return the solution of root * x = values."""
    solved: list[float] = []
    for row, value in zip(root, values, strict=True):
        solved.append((value - sum(map(mul, row, solved))) / row[-1])
    return solved


def _backward(root: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return the solution of root' * x = values."""
    rest = list(values)
    for index in range(len(root) - 1, -1, -1):
        row = root[index]
        rest[index] /= row[-1]
        for before in range(index):
            rest[before] -= row[before] * rest[index]
    return rest
