"""Folds a device's samples into the fields of the `device` series, interval by interval."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from agent.model import NS_PER_S, FieldValue, Reading, present
from agent.telemetry.sample import CounterMethod, CounterReading, Sample

# A longer gap between two samples, in s, is not bridged when power is integrated.
MAX_BRIDGED_S = 30.0


# The fields that are means, which a sample is asked for every second.
MEANS: Final = ("power_w", "util_pct", "mem_util_pct", "sm_clock_mhz", "mem_clock_mhz")
_of_means = attrgetter(*MEANS)


class _Mean:
    """The sum and the number of what is there."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0


def _larger(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _advance(before: float | None, after: float | None) -> float | None:
    """How far a running total advanced; None where it is absent or fell back."""
    return None if before is None or after is None or after < before else after - before


class Aggregator:
    """One device's fold; intervals follow each other without a gap.

    An interval runs from the last sample of the one before (or from its own first) to its own
    last, so that the energies of all intervals add up.

    Args:
        device: Name of the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._last: Sample | None = None
        self._whole: Sample | None = None
        self._counter: CounterReading | None = None
        self._begin()

    def _begin(self) -> None:
        # Running totals are not in quick samples: they advance from one whole sample to another.
        self._base = self._whole
        self._first: Sample | None = self._last
        self._samples = 0
        self._means = tuple(_Mean() for _ in MEANS)
        self._power_max_w: float | None = None
        self._temp_max_c: float | None = None
        self._polled_j: float | None = None

    def restart(self, counter: CounterReading | None) -> None:
        """Begins anew after a pause, so that nothing is counted across it.

        Args:
            counter: The energy counter at the new beginning, where there is one.
        """
        self._last = self._whole = None
        self._counter = counter
        self._begin()

    def add(self, sample: Sample) -> None:
        """Takes the next sample."""
        for mean, value in zip(self._means, _of_means(sample), strict=True):
            if value is not None:
                mean.sum += value
                mean.count += 1
        self._power_max_w = _larger(
            self._power_max_w, _larger(sample.power_w, sample.power_instant_w)
        )
        self._temp_max_c = _larger(self._temp_max_c, sample.temp_c)
        last = self._last
        if last is not None and last.power_w is not None and sample.power_w is not None:
            step_s = (sample.t_ns - last.t_ns) / NS_PER_S
            if step_s <= MAX_BRIDGED_S:
                trapezoid_j = step_s * (last.power_w + sample.power_w) / 2
                self._polled_j = (self._polled_j or 0.0) + trapezoid_j
        if self._first is None:
            self._first = sample
        if not sample.is_quick:
            self._whole = sample
            self._base = self._base or sample
        self._last = sample
        self._samples += 1

    def close(
        self,
        counter: CounterReading | None = None,
        method: CounterMethod | None = None,
        *,
        suspect: bool | None = None,
    ) -> Reading | None:
        """Ends the interval and gives its reading; None where it held no sample.

        Args:
            counter: The energy counter at the end, where there is one.
            method: What that counter is.
            suspect: Whether the device's energy sensors contradict each other, where that is known.
        """
        first, last = self._first, self._last
        if not self._samples or first is None or last is None:
            return None
        energy_j, energy_method = self._energy(counter, method)
        means = {
            name: mean.sum / mean.count if mean.count else None
            for name, mean in zip(MEANS, self._means, strict=True)
        }
        fields: dict[str, FieldValue | None] = {
            **means,
            "power_max_w": self._power_max_w,
            "energy_j": energy_j,
            "energy_method": energy_method,
            "energy_suspect": suspect,
            "dram_energy_j": self._counted("dram_j"),
            "mem_used_bytes": last.mem_used_bytes,
            "mem_total_bytes": last.mem_total_bytes,
            "temp_c": self._temp_max_c,
            "throttle_power_s": self._counted("throttle_power_s"),
            "throttle_thermal_s": self._counted("throttle_thermal_s"),
            "ecc_uncorrected": last.ecc_uncorrected,
            "processes": None if last.pids is None else len(last.pids),
        }
        reading = Reading(self._device, first.t_ns, last.t_ns, present(fields))
        if counter is not None:
            self._counter = counter
        elif energy_method is not None:
            # The interval was counted by polls: a later counter reading must not count it again.
            self._counter = None
        self._begin()
        return reading

    def _counted(self, total: str) -> float | None:
        """How far a running total advanced in the interval, where it was read at both ends."""
        base, whole = self._base, self._whole
        if base is None or whole is None or whole is base:
            return None
        return _advance(getattr(base, total), getattr(whole, total))

    def _energy(
        self, counter: CounterReading | None, method: CounterMethod | None
    ) -> tuple[float | None, str | None]:
        if counter is not None and self._counter is not None and method is not None:
            energy_j = _advance(self._counter.energy_j, counter.energy_j)
            # A counter that stands still is as wrong as one that fell back: power is never 0 W.
            if energy_j:
                return energy_j, method
        if self._polled_j:
            # A polled total of the modelled power is no better than the model.
            return self._polled_j, method if method in ("rapl", "modelled") else "poll"
        return None, None
