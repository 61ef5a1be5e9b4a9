"""What a sensor of one device gives, whatever the device is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from agent.model import Device, EnergyScope

CounterMethod = Literal["counter", "rapl", "modelled"]


@dataclass(frozen=True, slots=True)
class CounterReading:
    """A device's running total of energy at an instant.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns, the middle of the call that read it.
        energy_j: Joules since some instant; falls only when the counter was reset.
    """

    t_ns: int
    energy_j: float


class Sample(NamedTuple):
    """One reading of a device; a metric that the device lacks is None.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns at which it was taken.
        power_w: Power in W, averaged over about the last second where the driver does that.
        power_instant_w: Power of the moment in W, for the maximum.
        util_pct: Share of time in which the device computed, in percent.
        mem_util_pct: Share of time in which its memory was read or written, in percent.
        mem_used_bytes: Memory in use in bytes.
        mem_total_bytes: Memory of the device in bytes.
        temp_c: Temperature in degrees Celsius.
        sm_clock_mhz: Clock of the compute units in MHz.
        mem_clock_mhz: Clock of the memory in MHz.
        throttle_power_s: Seconds held back by a power limit, counted since some instant.
        throttle_thermal_s: Seconds held back by heat, counted since some instant.
        ecc_uncorrected: Uncorrected memory errors since the driver was loaded.
        pids: Processes that compute on the device.
        counter: The energy counter, where a sample reads it anyway.
        dram_j: Joules of the host's memory since some instant, apart from all else.
        is_quick: Whether only what changes within a second was read; the rest is None.
        is_averaged: Whether `power_w` is the driver's average over the last second.
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
    throttle_power_s: float | None = None
    throttle_thermal_s: float | None = None
    ecc_uncorrected: int | None = None
    pids: tuple[int, ...] | None = None
    counter: CounterReading | None = None
    dram_j: float | None = None
    is_quick: bool = False
    is_averaged: bool = False


class Noted(NamedTuple):
    """A reading as the driver left it in memory, to be understood when it is needed.

    Once a second the processor has forgotten how: many that are understood together cost less.

    Attributes:
        t_ns: CLOCK_MONOTONIC ns at which it was taken.
        memory: What the driver wrote.
        understand: Makes the sample of these two.
    """

    t_ns: int
    memory: bytes
    understand: Callable[[int, bytes], Sample]

    def sample(self) -> Sample:
        """The reading that it is."""
        return self.understand(self.t_ns, self.memory)


class Sensor(Protocol):
    """Reads one device; open it first, and again after any error that closed it.

    Every method may hang in the driver, and raises `agent.telemetry.faults.SensorFault` for a fault
    that concerns more than one metric.

    Attributes:
        name: Short name of the device on this host.
        call: The driver's function that was called last, for the report of a hang.
        counter_method: What its energy counter is; None where it has none.
        energy_scope: "parent" where its energy is the whole board's, of which it is a part.
        idle_below_pct: Utilization in percent at or below which nothing runs on it.
    """

    name: str
    call: str
    counter_method: CounterMethod | None
    energy_scope: EnergyScope
    idle_below_pct: float

    def open(self) -> Device:
        """Finds the device, forgetting what an earlier one of this name did not support.

        Initializes the driver's library again first where a call said that it is not.
        """
        ...

    def sample(self) -> Sample:
        """Reads every metric that the device supports."""
        ...

    def quick_sample(self) -> Sample | Noted:
        """Reads what changes within a second; all, where that costs no more."""
        ...

    def read_counter(self) -> CounterReading | None:
        """Reads the energy counter; None where there is none, or not now."""
        ...

    def read_power_w(self) -> float | None:
        """Reads the power alone, in W: averaged where the driver does that, for it misses nothing."""
        ...

    def read_samples(self) -> list[tuple[int, float]] | None:
        """Power that the driver has buffered since the last call, as (CLOCK_MONOTONIC ns, W).

        None where the driver buffers none.
        """
        ...

    def parts(self) -> list[int]:
        """Numbers of the MIG devices that the board is divided into; empty for all else."""
        ...

    def busy_pids(self, since_ns: int) -> frozenset[int] | None:
        """Processes that worked on the device since a CLOCK_MONOTONIC ns; None if not known."""
        ...

    def util_by_pid_pct(self, since_ns: int) -> dict[int, float] | None:
        """Share of time since a CLOCK_MONOTONIC ns that each process kept the device busy, in percent.

        None where that is not known.
        """
        ...
