"""The metrics of an NVIDIA GPU, each with the ways to read it, best first.

A way returns fields of `costprobe.adapters.sensors.protocol.sample.Sample`, except
`reasons` (see ThrottleClock) and the two sets of processes, which the sensor merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pynvml

from costprobe.adapters.sensors.child.nvml import Call, Values, Way, known, number
from costprobe.adapters.sensors.child.nvml_processes import PROCESS_LISTS
from costprobe.core.records import NS_PER_S

WHOLE_PCT: Final = 100
UNSIGNED_INT: Final = 0xFFFFFFFF

# nvml.h: clocks event reasons. Boards without the two finer bits set HW_SLOWDOWN alone; it counts
# as thermal, which is more frequent than the fast power trigger that also sets it.
REASON_SW_POWER_CAP: Final = 0x04
REASON_HW_SLOWDOWN: Final = 0x08
REASON_SW_THERMAL: Final = 0x20
REASON_HW_THERMAL: Final = 0x40
REASON_HW_POWER_BRAKE: Final = 0x80
POWER_REASONS: Final = REASON_SW_POWER_CAP | REASON_HW_POWER_BRAKE
THERMAL_REASONS: Final = REASON_SW_THERMAL | REASON_HW_THERMAL


def _share_pct(value: int) -> float | None:
    """A share of time in percent; None for a value that is none."""
    return float(value) if value <= WHOLE_PCT else None


def _utilization(call: Call, handle: object) -> Values:
    rates = call("nvmlDeviceGetUtilizationRates", handle)
    gpu_pct, memory_pct = number(rates, "gpu"), number(rates, "memory")
    return {"util_pct": _share_pct(gpu_pct), "mem_util_pct": _share_pct(memory_pct)}


def _memory(info: Any) -> Values:  # noqa: ANN401 - pynvml has no types
    return {
        "mem_used_bytes": known(info.used, bits=64),
        "mem_total_bytes": known(info.total, bits=64),
    }


def _memory_v2(call: Call, handle: object) -> Values:
    # Version 2 excludes the driver's reserved memory from `used`.
    info = call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    return _memory(info)


def _memory_v1(call: Call, handle: object) -> Values:
    info = call("nvmlDeviceGetMemoryInfo", handle)
    return _memory(info)


def _celsius(temperature: int) -> Values:
    # One function returns a signed integer, the other an unsigned one.
    value = known(temperature & UNSIGNED_INT)
    return {"temp_c": None if value is None else float(temperature)}


def _temperature_v(call: Call, handle: object) -> Values:
    return _celsius(call("nvmlDeviceGetTemperatureV", handle, pynvml.NVML_TEMPERATURE_GPU))


def _temperature(call: Call, handle: object) -> Values:
    return _celsius(call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU))


def _clock_mhz(call: Call, handle: object, clock: int) -> float | None:
    clock_mhz = known(call("nvmlDeviceGetClockInfo", handle, clock))
    return None if clock_mhz is None else float(clock_mhz)


def _sm_clock(call: Call, handle: object) -> Values:
    return {"sm_clock_mhz": _clock_mhz(call, handle, pynvml.NVML_CLOCK_SM)}


def _mem_clock(call: Call, handle: object) -> Values:
    return {"mem_clock_mhz": _clock_mhz(call, handle, pynvml.NVML_CLOCK_MEM)}


def _power_limit(call: Call, handle: object) -> Values:
    # The lowest of all limits in force, in mW (nvml.h): that of the operator, and of the board.
    milliwatts = known(call("nvmlDeviceGetEnforcedPowerLimit", handle))
    return {"power_limit_w": None if not milliwatts else milliwatts / 1000}


def _violated_s(call: Call, handle: object, policy: int) -> float | None:
    # nvmlViolationTime_t.violationTime is in ns (nvml.h), cumulative since the driver was loaded.
    status = call("nvmlDeviceGetViolationStatus", handle, policy)
    time_ns = known(status.violationTime, bits=64)
    return None if time_ns is None else time_ns / NS_PER_S


def _violations(call: Call, handle: object) -> Values:
    return {
        "throttle_power_s": _violated_s(call, handle, pynvml.NVML_PERF_POLICY_POWER),
        "throttle_thermal_s": _violated_s(call, handle, pynvml.NVML_PERF_POLICY_THERMAL),
    }


def _event_reasons(call: Call, handle: object) -> Values:
    return {"reasons": int(call("nvmlDeviceGetCurrentClocksEventReasons", handle))}


def _throttle_reasons(call: Call, handle: object) -> Values:
    return {"reasons": int(call("nvmlDeviceGetCurrentClocksThrottleReasons", handle))}


def _ecc(call: Call, handle: object) -> Values:
    uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    count = call("nvmlDeviceGetTotalEccErrors", handle, uncorrected, pynvml.NVML_VOLATILE_ECC)
    return {"ecc_uncorrected": known(count, bits=64)}


def _pids(field: str, symbol: str, call: Call, handle: object) -> Values:
    return {field: call(symbol, handle)}


def _process_ways(field: str, kind: str) -> tuple[Way, ...]:
    """The ways to list the processes of a kind: by the newest version that the driver has."""
    symbols = [symbol for symbol in PROCESS_LISTS if symbol.startswith(f"nvmlDeviceGet{kind}")]
    return tuple(partial(_pids, field, symbol) for symbol in symbols)


# The ways to read each metric; those of power depend on the board (nvidia_power.py).
WAYS: Final[Mapping[str, tuple[Way, ...]]] = {
    "power": (),
    "utilization": (_utilization,),
    "memory": (_memory_v2, _memory_v1),
    "temperature": (_temperature_v, _temperature),
    "sm_clock": (_sm_clock,),
    "mem_clock": (_mem_clock,),
    "power_limit": (_power_limit,),
    "throttle": (_violations, _event_reasons, _throttle_reasons),
    "ecc": (_ecc,),
    "compute_processes": _process_ways("compute_pids", "Compute"),
    "mps_processes": _process_ways("mps_pids", "MPSCompute"),
    "graphics_processes": _process_ways("graphics_pids", "Graphics"),
}
# What lists the processes that use a device, and what a full sample reads.
PROCESSES: Final = ("compute_processes", "mps_processes", "graphics_processes")
FULL: Final = tuple(metric for metric in WAYS if metric != "graphics_processes")

# What changes within a second, so that its mean or maximum needs every sample. Other metrics
# change slowly, or are running totals that matter at the ends of an interval only.
QUICK: Final = ("power", "utilization", "sm_clock")

# Metrics that a MIG device has of its own, and metrics that only a whole board has.
OF_A_SLICE: Final = frozenset({"memory", "compute_processes"})
BOARD_ONLY: Final = frozenset({"power", "utilization", "mps_processes", "graphics_processes"})


def is_counted(way: Way | None) -> bool:
    """Whether the driver counts throttled time; otherwise each sample must read the reasons.

    Args:
        way: The way to read `throttle` that is left.
    """
    return way is None or way is _violations


class ThrottleClock:
    """Throttled seconds, summed from the current reasons where the driver does not count them.

    A reason that is set at a sample counts from the sample before, for at most two seconds, so
    that a pause in sampling is not counted as throttling.
    """

    _MAX_STEP_S = 2.0

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._power_s = 0.0
        self._thermal_s = 0.0

    def add(self, t_ns: int, reasons: int) -> Values:
        """Add the reasons that are set at an instant; return the fields of seconds so far."""
        since_ns = t_ns if self._last_ns is None else self._last_ns
        step_s = min(self._MAX_STEP_S, (t_ns - since_ns) / NS_PER_S)
        self._last_ns = t_ns
        by_power = bool(reasons & POWER_REASONS)
        unnamed = bool(reasons & REASON_HW_SLOWDOWN) and not by_power
        self._power_s += step_s * by_power
        self._thermal_s += step_s * (bool(reasons & THERMAL_REASONS) or unnamed)
        return {"throttle_power_s": self._power_s, "throttle_thermal_s": self._thermal_s}
