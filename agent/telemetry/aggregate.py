"""Folds a device's samples into the fields of the `device` series, interval by interval."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from agent.model import NS_PER_S, FieldValue, Reading, present
from agent.telemetry.sample import CounterMethod, CounterReading, Sample

# A longer gap between two samples, in s, is not bridged when power is integrated.
MAX_BRIDGED_S = 30.0


# The fields that are means, which a sample is asked for every second.
MEANS: Final = ("power_w", "util_pct", "mem_util_pct", "sm_clock_mhz", "mem_clock_mhz")


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    there = _present(values)
    return sum(there) / len(there) if there else None


def _advance(before: float | None, after: float | None) -> float | None:
    """How far a running total advanced; None where it is absent or fell back."""
    return None if before is None or after is None or after < before else after - before


def _counted(total: str, base: Sample | None, last: Sample | None) -> float | None:
    """How far a running total advanced in an interval, where it was read at both ends."""
    if base is None or last is None or last is base:
        return None
    return _advance(getattr(base, total), getattr(last, total))


class Aggregator:
    """One device's fold; intervals follow each other without a gap.

    An interval runs from the last sample of the one before (or from its own first) to its own
    last, so that the energies of all intervals add up.

    Args:
        device: Name of the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._samples: list[Sample] = []
        # The last sample of the interval before, and the last one that was whole.
        self._before: Sample | None = None
        self._whole: Sample | None = None
        self._counter: CounterReading | None = None

    def restart(self, counter: CounterReading | None) -> None:
        """Begins anew after a pause, so that nothing is counted across it.

        Args:
            counter: The energy counter at the new beginning, where there is one.
        """
        self._samples = []
        self._before = self._whole = None
        self._counter = counter

    def add(self, *samples: Sample) -> None:
        """Takes the next samples."""
        self._samples += samples

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
        samples = self._samples
        if not samples:
            return None
        first, last = self._before or samples[0], samples[-1]
        columns = dict(zip(Sample._fields, zip(*samples, strict=True), strict=True))
        energy_j, energy_method = self._energy(counter, method)
        # Running totals are not in quick samples: they advance from one whole sample to another.
        whole = [sample for sample in samples if not sample.is_quick]
        base = self._whole or (whole[0] if whole else None)
        self._whole = whole[-1] if whole else self._whole
        fields: dict[str, FieldValue | None] = {
            **{name: _mean(columns[name]) for name in MEANS},
            "power_max_w": max(
                _present(columns["power_w"] + columns["power_instant_w"]), default=None
            ),
            "energy_j": energy_j,
            "energy_method": energy_method,
            "energy_suspect": suspect,
            "dram_energy_j": _counted("dram_j", base, self._whole),
            "mem_used_bytes": last.mem_used_bytes,
            "mem_total_bytes": last.mem_total_bytes,
            "temp_c": max(_present(columns["temp_c"]), default=None),
            "throttle_power_s": _counted("throttle_power_s", base, self._whole),
            "throttle_thermal_s": _counted("throttle_thermal_s", base, self._whole),
            "ecc_uncorrected": last.ecc_uncorrected,
            "processes": None if last.pids is None else len(last.pids),
        }
        reading = Reading(self._device, first.t_ns, last.t_ns, present(fields))
        if counter is not None:
            self._counter = counter
        elif energy_method is not None:
            # The interval was counted by polls: a later counter reading must not count it again.
            self._counter = None
        self._before, self._samples = last, []
        return reading

    def _energy(
        self, counter: CounterReading | None, method: CounterMethod | None
    ) -> tuple[float | None, str | None]:
        if counter is not None and self._counter is not None and method is not None:
            energy_j = _advance(self._counter.energy_j, counter.energy_j)
            # A counter that stands still is as wrong as one that fell back: power is never 0 W.
            if energy_j:
                return energy_j, method
        polled_j = self._polled_j()
        if polled_j:
            # A polled total of the modelled power is no better than the model.
            return polled_j, method if method in ("rapl", "modelled") else "poll"
        return None, None

    def _polled_j(self) -> float:
        """The energy of the interval by its powers, with the trapezoidal rule."""
        before = [] if self._before is None else [self._before]
        return sum(
            (after.t_ns - first.t_ns) / NS_PER_S * (first.power_w + after.power_w) / 2
            for first, after in pairwise([*before, *self._samples])
            if first.power_w is not None
            and after.power_w is not None
            and after.t_ns - first.t_ns <= MAX_BRIDGED_S * NS_PER_S
        )
