"""Readings of one device: a sample of its metrics, and its energy counter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

CounterMethod = Literal["counter", "rapl", "modelled"]


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """A device's running total of energy at an instant.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns, the middle of the call that read it.
        energy_j: Joules since some instant; falls only when the counter was reset.
        method: What counts: the device, RAPL, or a model.
    """

    t_ns: int
    energy_j: float
    method: CounterMethod = "counter"


class Sample(NamedTuple):
    """One sample of a device's metrics; a metric that the device lacks is None.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns at which it was taken.
        power_w: Power in W, averaged over about the last second where the driver does that.
        power_instant_w: Instantaneous power in W, for the maximum.
        util_pct: Share of time in which the device computed, in percent.
        mem_util_pct: Share of time in which its memory was read or written, in percent.
        mem_used_bytes: Memory in use in bytes.
        mem_total_bytes: Memory of the device in bytes.
        temp_c: Temperature in degrees Celsius.
        sm_clock_mhz: Clock of the compute units in MHz.
        mem_clock_mhz: Clock of the memory in MHz.
        power_limit_w: Power limit in force in W, the lowest of all.
        throttle_power_s: Seconds throttled by a power limit, counted since some instant.
        throttle_thermal_s: Seconds throttled by temperature, counted since some instant.
        ecc_uncorrected: Uncorrected memory errors since the driver was loaded.
        pids: Processes that compute on the device.
        counter: The energy counter, if the sample read it.
        dram_j: Joules of the host's memory since some instant; part of no other figure.
        is_quick: Only what changes within a second was read; the rest is None.
        is_averaged: `power_w` is the driver's average over the last second.
    """

    t_ns: int
    power_w: float | None = None
    power_instant_w: float | None = None
    util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_used_bytes: int | None = None
    mem_total_bytes: int | None = None
    temp_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_limit_w: float | None = None
    throttle_power_s: float | None = None
    throttle_thermal_s: float | None = None
    ecc_uncorrected: int | None = None
    pids: tuple[int, ...] | None = None
    counter: EnergyReading | None = None
    dram_j: float | None = None
    is_quick: bool = False
    is_averaged: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """The reason why an energy is unknown."""

    reason: str
