"""Aggregation of a device's samples to the fields of the `device` series, by interval."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from costprobe.adapters.sensors.protocol.sample import CounterMethod, EnergyReading, Sample
from costprobe.core.records import NS_PER_S, EnergyScope, FieldValue, Reading, present

# Power is not integrated across a longer gap between two samples, in s.
MAX_BRIDGED_S = 30.0
# A counter reading that follows its sample this closely is of the same instant: the counter itself
# lags by up to 100 ms.
TOGETHER_NS: Final = 10_000_000


# The fields that are means over the samples.
MEANS: Final = ("power_w", "util_pct", "mem_util_pct", "sm_clock_mhz", "mem_clock_mhz")


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    present = _present(values)
    return sum(present) / len(present) if present else None


def _advance(before: float | None, after: float | None) -> float | None:
    """The advance of a running total; None where it is absent or decreased."""
    return None if before is None or after is None or after < before else after - before


def _counted(total: str, base: Sample | None, last: Sample | None) -> float | None:
    """The advance of a running total in an interval, if it was read at both ends."""
    if base is None or last is None or last is base:
        return None
    return _advance(getattr(base, total), getattr(last, total))


def _since_j(counter: EnergyReading, sample: Sample) -> float:
    """The energy in J from a counter reading to a sample by its power; negative if that is earlier."""
    gap_ns = sample.t_ns - counter.t_ns
    return 0.0 if abs(gap_ns) < TOGETHER_NS else (sample.power_w or 0.0) * gap_ns / NS_PER_S


class Aggregator:
    """Aggregates one device; intervals follow each other without a gap.

    An interval runs from the last sample of the one before (or from its own first) to its own
    last. Each instant is counted in one interval, by the counter or by polls: the energies of all
    intervals add up to the counter's advance, whichever of them were polled.

    Args:
        device: Name of the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._samples: list[Sample] = []
        # The last sample of the interval before, and the last full one.
        self._before: Sample | None = None
        self._full: Sample | None = None
        # The last counter reading that an interval was counted by, and the energy that intervals
        # have counted beyond it: negative if they have not counted up to it.
        self._counter: EnergyReading | None = None
        self._beyond_j = 0.0
        self._method: CounterMethod = "counter"

    def restart(self, counter: EnergyReading | None) -> None:
        """Start again after a pause, so that nothing is counted across it.

        Args:
            counter: The energy counter now, if there is one.
        """
        self._samples = []
        self._before = self._full = None
        self._counter, self._beyond_j = counter, 0.0
        if counter is not None:
            self._method = counter.method

    def add(self, *samples: Sample) -> None:
        """Add the next samples."""
        self._samples += samples

    def close(
        self,
        counter: EnergyReading | None = None,
        *,
        suspect: bool | None = None,
        scope: EnergyScope = "device",
    ) -> Reading | None:
        """End the interval and return its reading; None if it has no sample.

        Args:
            counter: The energy counter at the end, if there is one.
            suspect: Whether the device's energy sensors contradict each other; None if unknown.
            scope: What power and energy cover.
        """
        samples = self._samples
        if not samples:
            return None
        first, last = self._before or samples[0], samples[-1]
        columns = dict(zip(Sample._fields, zip(*samples, strict=True), strict=True))
        energy_j, energy_method = self._energy(counter)
        # Quick samples have no running totals: these advance from one full sample to the next.
        full = [sample for sample in samples if not sample.is_quick]
        base = self._full or (full[0] if full else None)
        self._full = full[-1] if full else self._full
        fields: dict[str, FieldValue | None] = {
            **{name: _mean(columns[name]) for name in MEANS},
            "power_max_w": max(
                _present(columns["power_w"] + columns["power_instant_w"]), default=None
            ),
            "energy_j": energy_j,
            "energy_method": energy_method,
            "energy_suspect": suspect,
            "energy_scope": None if scope == "device" else scope,
            "dram_energy_j": _counted("dram_j", base, self._full),
            "mem_used_bytes": last.mem_used_bytes,
            "mem_total_bytes": last.mem_total_bytes,
            "temp_c": max(_present(columns["temp_c"]), default=None),
            "power_limit_w": last.power_limit_w,
            "throttle_power_s": _counted("throttle_power_s", base, self._full),
            "throttle_thermal_s": _counted("throttle_thermal_s", base, self._full),
            "ecc_uncorrected": last.ecc_uncorrected,
            "processes": None if last.pids is None else len(last.pids),
        }
        reading = Reading(self._device, first.t_ns, last.t_ns, present(fields))
        self._before, self._samples = last, []
        return reading

    def _energy(self, counter: EnergyReading | None) -> tuple[float | None, str | None]:
        """The energy of the interval in J, by the counter if it advanced, else by polls."""
        last = self._samples[-1]
        if counter is not None:
            self._method = counter.method
        if self._before is None and self._counter is not None:
            # Energy before the first sample is not part of any interval.
            self._beyond_j = _since_j(self._counter, self._samples[0])
        base = self._counter
        if counter is not None and (base is None or counter.energy_j < base.energy_j):
            # The first reading, or the first after a reset: polls count up to the last sample.
            self._counter, self._beyond_j = counter, _since_j(counter, last)
        elif counter is not None and base is not None and counter.energy_j > base.energy_j:
            # A reading may be up to 0.2 s older than the last sample, or later after a stall.
            since_j = _since_j(counter, last)
            energy_j = counter.energy_j - base.energy_j - self._beyond_j + since_j
            if energy_j > 0:
                self._counter, self._beyond_j = counter, since_j
                return energy_j, counter.method
        # A counter that did not advance has not been updated yet, or is defective: power is never 0 W.
        polled_j = self._polled_j()
        if self._counter is base:
            self._beyond_j += polled_j
        if polled_j:
            # The power of such a sample is computed from the counter, so polling is not a second method.
            return polled_j, "poll" if self._method == "counter" else self._method
        return None, None

    def _polled_j(self) -> float:
        """The energy of the interval in J by its powers, with the trapezoidal rule."""
        before = [] if self._before is None else [self._before]
        return sum(
            (after.t_ns - first.t_ns) / NS_PER_S * (first.power_w + after.power_w) / 2
            for first, after in pairwise([*before, *self._samples])
            if first.power_w is not None
            and after.power_w is not None
            and after.t_ns - first.t_ns <= MAX_BRIDGED_S * NS_PER_S
        )
