"""Bounds of a device's readings, by physics and by its own limits: impossible ones are discarded.

Every reading passes this file, whichever driver or kernel file it is from. A value lies in a range;
a running total advances no faster than the device can draw or time can pass. A total that
decreased, jumped or stood still begins anew: it falls, so that no difference spans the gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from costprobe.adapters.sensors.messages import EnergyReading, Power, Reaction, Sample, SensorFault
from costprobe.core.records import NS_PER_S

# The highest power is this many times the board's highest limit: for some ms a load exceeds it.
BOARD_TIMES: Final = 3
# The highest power of a device whose limit is unknown, and of a processor package, in W.
UNKNOWN_MAX_W: Final = 2000.0
# A counter may publish late what it counted meanwhile, in s.
PUBLISHED_LATE_S: Final = 1.0
# A total that begins anew falls by this much, more than any advances between two uses of it.
FALL: Final = 1e9
# An energy counter that did not advance in this many readings, each this long after the one
# before, stands still.
STILL_READINGS: Final = 5
STILL_APART_NS: Final = NS_PER_S // 2
STANDS_STILL: Final = (
    f"the energy counter did not advance in {STILL_READINGS} readings: power is integrated instead"
)
SUSPECT_MAX: Final = 100

POWERS: Final = frozenset({"power_w", "power_instant_w", "power_limit_w"})
# The lowest and highest value of each field; None: `Bounds.max_w`, or the memory of the device.
RANGES: Final[Mapping[str, tuple[float, float | None]]] = {
    **dict.fromkeys(sorted(POWERS), (0.0, None)),
    "util_pct": (0.0, 100.0),
    "mem_util_pct": (0.0, 100.0),
    "mem_total_bytes": (1.0, 2.0**50),
    "mem_used_bytes": (0.0, None),
    "temp_c": (-60.0, 150.0),
    "sm_clock_mhz": (0.0, 10_000.0),
    "mem_clock_mhz": (0.0, 100_000.0),
}
# The most by which each running total advances in a second; None: `Bounds.max_w`.
RATES: Final[Mapping[str, float | None]] = {
    "throttle_power_s": 1.0,
    "throttle_thermal_s": 1.0,
    "dram_j": None,
    "energy_j": None,
}
# Readings without which the energy of a row or a window is suspect.
OF_ENERGY: Final = frozenset({"power_w", "power_instant_w", "energy_j"})
UNITS: Final = {"w": "W", "j": "J", "s": "s", "pct": "%", "c": "°C", "mhz": "MHz", "bytes": "bytes"}


class RunningTotal:
    """A counter as a total that falls where its advance is unknown.

    Attributes:
        still_readings: Readings in a row in which it did not advance.
    """

    def __init__(self) -> None:
        self.still_readings = 0
        self._last: tuple[int, float] | None = None
        self._shift = 0.0

    def advance(self, t_ns: int, value: float) -> tuple[float, float]:
        """Take a reading; return the advance since the one before, and the s that passed.

        Args:
            t_ns: CLOCK_MONOTONIC ns of the reading.
            value: What the counter shows.
        """
        before_ns, before = self._last or (t_ns, value)
        if self._last is None or value != before:
            self.still_readings = 0
        elif t_ns - before_ns >= STILL_APART_NS:
            self.still_readings += 1
        else:
            return 0.0, (t_ns - before_ns) / NS_PER_S
        self._last = (t_ns, value)
        if value < before:
            self.fall(value - before)
        return value - before, (t_ns - before_ns) / NS_PER_S

    def fall(self, advance: float = 0.0) -> None:
        """Begin anew: discard the last advance of the counter."""
        self._shift -= advance + FALL

    def restart(self) -> None:
        """Compare the next reading with none before."""
        self.still_readings, self._last = 0, None

    def of(self, value: float) -> float:
        """The total when the counter shows a value."""
        return value + self._shift


class Bounds:
    """Discards the impossible readings of a device, and has a fault for each kind of them, once.

    Attributes:
        max_w: The highest power that is possible, in W; set by the device's sensor.
        counter_is_still: The energy counter stands still; a sensor that has another one reads that.
        impossible: The running totals that have jumped; a sensor that has another way reads that.
        suspect_ns: When the last readings of power or energy were discarded, in CLOCK_MONOTONIC ns.
    """

    def __init__(self) -> None:
        self.max_w = UNKNOWN_MAX_W
        self.counter_is_still = False
        self.impossible: set[str] = set()
        self._totals = {name: RunningTotal() for name in RATES}
        self._method = ""
        self._reported: set[str] = set()
        self._faults: list[SensorFault] = []
        self.suspect_ns: deque[int] = deque(maxlen=SUSPECT_MAX)

    def admitted(self, t_ns: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """These fields of a sample without the impossible ones; running totals are not judged."""
        admitted = dict(values)
        for name, value in values.items():
            if value is None or name not in RANGES:
                continue
            low, high = RANGES[name]
            if high is None:
                high = self.max_w if name in POWERS else values.get("mem_total_bytes") or value
            if not low <= value <= high:
                self._discard(t_ns, name, f"{_shown(name, value)} was read", low, high)
                del admitted[name]
        return admitted

    def sample(self, sample: Sample) -> Sample:
        """A sample without what is impossible; each sample of the device, in order, once."""
        found = {name: getattr(sample, name) for name in RANGES}
        changes: dict[str, Any] = dict.fromkeys(
            found.keys() - self.admitted(sample.t_ns, found).keys()
        )
        for name in RATES:
            value = getattr(sample, name, None)
            if value is not None:
                changes[name] = self._total(name, sample.t_ns, value)
        if sample.counter is not None:
            changes["counter"] = self.energy(sample.counter)
        return sample._replace(**changes) if changes else sample

    def energy(self, reading: EnergyReading | None) -> EnergyReading | None:
        """A reading of the energy counter, each once; None while the counter stands still."""
        if reading is None:
            return None
        total = self._totals["energy_j"]
        if reading.method != (self._method or reading.method):
            total.fall()  # totals of two methods have no difference
        self._method = reading.method
        energy_j = self._total("energy_j", reading.t_ns, reading.energy_j)
        was_still = self.counter_is_still
        self.counter_is_still = total.still_readings >= STILL_READINGS
        if self.counter_is_still and not was_still:
            total.fall()
            if reading.method == "counter":  # the sensor of the CPUs reports what follows on RAPL
                self._report("STANDS_STILL", "energy_j", STANDS_STILL)
        return None if self.counter_is_still else reading._replace(energy_j=energy_j)

    def powers(self, powers_w: Sequence[tuple[int, float]]) -> list[Power]:
        """Readings of the power, each (CLOCK_MONOTONIC ns, W), without the impossible ones."""
        return [
            Power(t_ns, power_w)
            for t_ns, power_w in powers_w
            if self.admitted(t_ns, {"power_w": power_w})
        ]

    def restart(self) -> None:
        """Begin again after a time in which totals may have advanced by any amount."""
        for total in self._totals.values():
            total.restart()

    def take_faults(self) -> list[SensorFault]:
        """The faults since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def _total(self, name: str, t_ns: int, value: float) -> float:
        total, rate = self._totals[name], RATES[name]
        advance, passed_s = total.advance(t_ns, value)
        most = (self.max_w if rate is None else rate) * (passed_s + PUBLISHED_LATE_S)
        if not advance <= most:
            counted = f"{_shown(name, advance)} were counted in {passed_s:.1f} s"
            self._discard(t_ns, name, counted, 0.0, most)
            self.impossible.add(name)
            total.fall(advance)
        return total.of(value)

    def _discard(self, t_ns: int, name: str, what: str, low: float, high: float) -> None:
        if name in OF_ENERGY:
            self.suspect_ns.append(t_ns)
        detail = f"{what}, and {low:g} to {_shown(name, high)} is possible; it was discarded"
        self._report("IMPOSSIBLE", name.replace("_instant", ""), detail)

    def _report(self, code: str, name: str, detail: str) -> None:
        if f"{code} {name}" not in self._reported:
            self._reported.add(f"{code} {name}")
            self._faults.append(SensorFault(name, code, Reaction.TRANSIENT, detail))


def _shown(name: str, value: float) -> str:
    return f"{value:,.10g} {UNITS[name.rpartition('_')[2]]}"
