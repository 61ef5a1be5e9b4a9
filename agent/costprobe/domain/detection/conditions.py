"""The conditions of a device and its probe on both sides of a change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# Smallest difference in its own standard errors. Conditions are autocorrelated: more than
# LEAST_INDEPENDENT runs do not reduce the error further.
NOISE_ERRORS = 4.0
LEAST_INDEPENDENT = 4


@dataclass(frozen=True, slots=True)
class SignalSample:
    """A signal over the runs of a period.

    Attributes:
        mean: Mean; of a yes or no its share.
        spread: Standard deviation.
        count: Number of runs.
    """

    mean: float
    spread: float = 0.0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a device and its probe over a period; None if unknown.

    Attributes:
        software: Versions and hashes of what was measured, and under BOARD the identity of the
            device.
        batch: Items per forward pass.
        sm_clock_mhz: Clock of the streaming multiprocessors.
        throttled_power_pct: Share of the time throttled by the power limit, in percent.
        throttled_thermal_pct: Share of the time throttled by temperature, in percent.
        temp_c: Highest temperature.
        contended_share: Share of the runs during which another process used the device.
        ecc_uncorrected: Uncorrected memory errors since the driver was loaded.
        mem_used_share: Share of the device's memory in use.
        mem_clock_mhz: Clock of the memory.
        power_limit_w: Power limit in force.
        tokens_in: Input tokens of a request.
        tokens_out: Output tokens of a request.
    """

    software: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    batch: int | None = None
    sm_clock_mhz: SignalSample | None = None
    throttled_power_pct: SignalSample | None = None
    throttled_thermal_pct: SignalSample | None = None
    temp_c: SignalSample | None = None
    contended_share: SignalSample | None = None
    ecc_uncorrected: int | None = None
    mem_used_share: SignalSample | None = None
    mem_clock_mhz: SignalSample | None = None
    power_limit_w: SignalSample | None = None
    tokens_in: SignalSample | None = None
    tokens_out: SignalSample | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The conditions on both sides of a change.

    Attributes:
        before: Conditions before.
        after: Conditions after.
        sign: 1 for a deterioration, -1 for an improvement; 0 if signals may move either way, as for
            energy, which rises with a higher and with a lower clock.
    """

    before: Conditions
    after: Conditions
    sign: int = 1

    def move(self, signal: str, least: float, direction: int = 1) -> tuple[float, float] | None:
        """Return a signal before and after if it moved significantly.

        Args:
            signal: Name of a SignalSample of Conditions.
            least: Smallest difference that counts.
            direction: 1 if the signal rises with a deterioration, -1 if it falls.
        """
        before, after = getattr(self.before, signal), getattr(self.after, signal)
        if before is None or after is None:
            return None
        difference = after.mean - before.mean
        if abs(difference) < max(least, _noise(before, after)):
            return None
        if self.sign and difference * self.sign * direction < 0:
            return None
        return before.mean, after.mean


def _noise(before: SignalSample, after: SignalSample) -> float:
    """Return the difference of two means that noise may cause."""
    # A short period shows less of the noise.
    spread = before.spread if before.count > after.count else max(before.spread, after.spread)
    counts = [min(sample.count, LEAST_INDEPENDENT) for sample in (before, after)]
    return NOISE_ERRORS * spread * math.sqrt(math.fsum(1 / count for count in counts) / 2)
