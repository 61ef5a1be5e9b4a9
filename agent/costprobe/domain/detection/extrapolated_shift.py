"""Shifts of efficiency while the load, or the mix, is one that was not observed before.

There the load model continues with the slope at its edge. What that is wrong by is not a new number in
every block but a smooth curve of the load: zero at the edge, with an uncertain slope that wanders (the
prior of a smoothing spline; Wahba, "Improper priors, spline smoothing and the problem of guarding
against model errors in regression", 1978). A shift of efficiency jumps at an instant at whatever load.
Both are estimated together by generalized least squares, and the shift counts if it is large in its
standard errors (a generalized likelihood ratio over the start of the shift). Blocks at known loads count
fully, those beyond by what they say about the shift in spite of the unknown curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

# Blocks after the start of a shift.
LEAST_AFTER = 3
# A shift in standard errors that counts, and a residual beside it that is an outlier.
SHIFT_ERRORS = 5.0
OUTLYING = 4.5
# A shift without any one of the blocks: a block in which the load jumps is an outlier.
LONE_ERRORS = 3.5
_LEAST_VARIANCE = 1e-12


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
