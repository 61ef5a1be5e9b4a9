"""The metrics of an NVIDIA GPU, each with the ways to read it, best first.

A way that the driver or the device does not support is not tried again; a metric with no way left
is absent. A way returns fields of `costprobe.adapters.sensors.protocol.sample.Sample`, except
`reasons` (see ThrottleClock) and the two sets of processes, which the sensor merges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pynvml

from costprobe.adapters.sensors.child.nvml import fault_of
from costprobe.core.records import NS_PER_S

# nvml.h: NVML_FI_DEV_POWER_AVERAGE (over 1 s) and NVML_FI_DEV_POWER_INSTANT, both in mW.
FIELD_POWER_AVERAGE: Final = 185
FIELD_POWER_INSTANT: Final = 186
POWER_FIELDS: Final = (FIELD_POWER_AVERAGE, FIELD_POWER_INSTANT)
VALUE_TYPE_UNSIGNED_INT: Final = 1
# The bytes of a value that hold an unsigned int, on the little-endian hosts of NVIDIA's GPUs.
LOWER_HALF: Final = 0xFFFFFFFF
NOT_SUPPORTED: Final = 3

# nvml.h: clocks event reasons. Boards without the two finer bits set HW_SLOWDOWN alone; it counts
# as thermal, which is more frequent than the fast power trigger that also sets it.
REASON_SW_POWER_CAP: Final = 0x04
REASON_HW_SLOWDOWN: Final = 0x08
REASON_SW_THERMAL: Final = 0x20
REASON_HW_THERMAL: Final = 0x40
REASON_HW_POWER_BRAKE: Final = 0x80
POWER_REASONS: Final = REASON_SW_POWER_CAP | REASON_HW_POWER_BRAKE
THERMAL_REASONS: Final = REASON_SW_THERMAL | REASON_HW_THERMAL

Values = dict[str, Any]
Call = Callable[..., Any]
Way = Callable[[Call, object], Values]


# pynvml's structures check each value that is read for text to decode, which took a quarter of the
# time of reading utilization. This bypasses the check.
number = object.__getattribute__


def watts_of(value_type: int, code: int, value: int) -> float | None:
    """The power in W that an nvmlFieldValue_t holds; None where the driver returned an error."""
    if code:
        return None
    # No working board draws 0 W: zero means that no sensor fills the field.
    return (value & LOWER_HALF if value_type == VALUE_TYPE_UNSIGNED_INT else value) / 1000 or None


class _PowerFields:
    """Power by NVML's field values; each device has its own memory for them."""

    def __init__(self) -> None:
        self._memory = (pynvml.c_nvmlFieldValue_t * len(POWER_FIELDS))()
        self._fields = tuple(self._memory)
        for field, field_id in zip(self._fields, POWER_FIELDS, strict=True):
            field.fieldId = field_id
        self._values = tuple(field.value for field in self._fields)

    def __call__(self, call: Call, handle: object) -> Values:
        call("nvmlDeviceGetFieldValues", handle, self._memory)
        watts: list[float | None] = []
        worst = 0
        for field, value in zip(self._fields, self._values, strict=True):
            code = number(field, "nvmlReturn")
            worst = code or worst
            watts.append(watts_of(number(field, "valueType"), code, value.ullVal))
        average_w, instant_w = watts
        if average_w is None and instant_w is None:
            raise fault_of("nvmlDeviceGetFieldValues", worst or NOT_SUPPORTED)
        return {
            "power_w": instant_w if average_w is None else average_w,
            "power_instant_w": average_w if instant_w is None else instant_w,
            "is_averaged": average_w is not None,
        }


def _power_usage(call: Call, handle: object) -> Values:
    watts = call("nvmlDeviceGetPowerUsage", handle) / 1000 or None
    return {"power_w": watts, "power_instant_w": watts}


def _utilization(call: Call, handle: object) -> Values:
    rates = call("nvmlDeviceGetUtilizationRates", handle)
    gpu_pct, memory_pct = number(rates, "gpu"), number(rates, "memory")
    return {"util_pct": float(gpu_pct), "mem_util_pct": float(memory_pct)}


def _memory_v2(call: Call, handle: object) -> Values:
    # Version 2 excludes the driver's reserved memory from `used`.
    info = call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    return {"mem_used_bytes": int(info.used), "mem_total_bytes": int(info.total)}


def _memory_v1(call: Call, handle: object) -> Values:
    info = call("nvmlDeviceGetMemoryInfo", handle)
    return {"mem_used_bytes": int(info.used), "mem_total_bytes": int(info.total)}


def _temperature_v(call: Call, handle: object) -> Values:
    temperature = call("nvmlDeviceGetTemperatureV", handle, pynvml.NVML_TEMPERATURE_GPU)
    return {"temp_c": float(temperature)}


def _temperature(call: Call, handle: object) -> Values:
    temperature = call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU)
    return {"temp_c": float(temperature)}


def _sm_clock(call: Call, handle: object) -> Values:
    return {"sm_clock_mhz": float(call("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM))}


def _mem_clock(call: Call, handle: object) -> Values:
    return {"mem_clock_mhz": float(call("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM))}


def _violations(call: Call, handle: object) -> Values:
    # nvmlViolationTime_t.violationTime is in ns (nvml.h), cumulative since the driver was loaded.
    function = "nvmlDeviceGetViolationStatus"
    power = call(function, handle, pynvml.NVML_PERF_POLICY_POWER)
    thermal = call(function, handle, pynvml.NVML_PERF_POLICY_THERMAL)
    return {
        "throttle_power_s": power.violationTime / NS_PER_S,
        "throttle_thermal_s": thermal.violationTime / NS_PER_S,
    }


def _event_reasons(call: Call, handle: object) -> Values:
    return {"reasons": int(call("nvmlDeviceGetCurrentClocksEventReasons", handle))}


def _throttle_reasons(call: Call, handle: object) -> Values:
    return {"reasons": int(call("nvmlDeviceGetCurrentClocksThrottleReasons", handle))}


def _ecc(call: Call, handle: object) -> Values:
    uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    count = call("nvmlDeviceGetTotalEccErrors", handle, uncorrected, pynvml.NVML_VOLATILE_ECC)
    return {"ecc_uncorrected": int(count)}


def _compute_processes(call: Call, handle: object) -> Values:
    found = call("nvmlDeviceGetComputeRunningProcesses", handle)
    return {"compute_pids": {int(process.pid) for process in found}}


def _mps_processes(call: Call, handle: object) -> Values:
    found = call("nvmlDeviceGetMPSComputeRunningProcesses", handle)
    return {"mps_pids": {int(process.pid) for process in found}}


METRICS: Final[Mapping[str, tuple[Way | type[_PowerFields], ...]]] = {
    "power": (_PowerFields, _power_usage),
    "utilization": (_utilization,),
    "memory": (_memory_v2, _memory_v1),
    "temperature": (_temperature_v, _temperature),
    "sm_clock": (_sm_clock,),
    "mem_clock": (_mem_clock,),
    "throttle": (_violations, _event_reasons, _throttle_reasons),
    "ecc": (_ecc,),
    "compute_processes": (_compute_processes,),
    "mps_processes": (_mps_processes,),
}


def ways_of_a_device() -> dict[str, list[Way]]:
    """The ways to read each metric, as lists from which one device removes those it lacks."""
    return {
        metric: [way() if isinstance(way, type) else way for way in ways]
        for metric, ways in METRICS.items()
    }


# What changes within a second, so that its mean or maximum needs every sample. Other metrics
# change slowly, or are running totals that matter at the ends of an interval only.
QUICK: Final = ("power", "utilization", "sm_clock")

# Metrics that a MIG device has of its own, and metrics that only a whole board has.
OF_A_SLICE: Final = frozenset({"memory", "compute_processes"})
BOARD_ONLY: Final = frozenset({"power", "utilization", "mps_processes"})

# nvml.h: NVML_TOTAL_POWER_SAMPLES, in mW.
TOTAL_POWER_SAMPLES: Final = 0


def sample_powers(value_type: int, samples: Iterable[Any], seen_us: int) -> list[tuple[int, float]]:
    """The driver's new buffered samples as (UTC us, W), oldest first.

    Args:
        value_type: Which member of the union holds the value.
        samples: The result of nvmlDeviceGetSamples.
        seen_us: UTC us of the last one read before; 0 for none.
    """
    found = []
    for sample in samples:
        value = sample.sampleValue
        unsigned_int = value_type == VALUE_TYPE_UNSIGNED_INT
        milliwatts = value.uiVal if unsigned_int else value.ullVal
        # An unused slot holds zeros.
        if int(sample.timeStamp) > seen_us and milliwatts:
            found.append((int(sample.timeStamp), milliwatts / 1000))
    return sorted(found)


def is_counted(ways: Sequence[Way]) -> bool:
    """Whether the driver counts throttled time; otherwise each sample must read the reasons.

    Args:
        ways: The ways to read `throttle` that are left.
    """
    return not ways or ways[0] is _violations


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
