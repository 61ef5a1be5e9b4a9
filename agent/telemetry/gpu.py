"""The sensors of one NVIDIA GPU, read through NVML.

Each metric is a list of ways to read it, best first. A way that the driver or the device does
not have is never tried again; a metric with no way left is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pynvml

from agent.clock import Clock
from agent.model import NS_PER_S, Device
from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.nvml import Library, fault_of, nvml_call
from agent.telemetry.sample import CounterMethod, CounterReading, Sample

# nvml.h: NVML_FI_DEV_POWER_AVERAGE (over 1 s) and NVML_FI_DEV_POWER_INSTANT, both in mW.
FIELD_POWER_AVERAGE: Final = 185
FIELD_POWER_INSTANT: Final = 186
VALUE_TYPE_UNSIGNED_INT: Final = 1
NOT_SUPPORTED: Final = 3
UNINITIALIZED: Final = 1

# nvml.h: clocks event reasons. HW_SLOWDOWN alone is what boards without the two finer bits say;
# it stands for heat there, of which a fast power trigger is the rarer sister.
REASON_SW_POWER_CAP: Final = 0x04
REASON_HW_SLOWDOWN: Final = 0x08
REASON_SW_THERMAL: Final = 0x20
REASON_HW_THERMAL: Final = 0x40
REASON_HW_POWER_BRAKE: Final = 0x80
POWER_REASONS: Final = REASON_SW_POWER_CAP | REASON_HW_POWER_BRAKE
THERMAL_REASONS: Final = REASON_SW_THERMAL | REASON_HW_THERMAL

# A transient error is told when it has lasted for this many samples.
TELL_TRANSIENT_AFTER: Final = 3
# The reading of a counter that took longer than the counter's own step is worth less than it says.
COUNTER_READ_MAX_NS: Final = 100_000_000

Values = dict[str, Any]
Call = Callable[..., Any]
Way = Callable[[Call, object], Values]
Tell = Callable[[SensorFault], None]


def _power_fields(call: Call, handle: object) -> Values:
    fields = call("nvmlDeviceGetFieldValues", handle, [FIELD_POWER_AVERAGE, FIELD_POWER_INSTANT])
    watts: list[float | None] = []
    worst = 0
    for field in fields:
        if field.nvmlReturn != 0:
            worst = field.nvmlReturn
            watts.append(None)
            continue
        value = field.value
        unsigned_int = field.valueType == VALUE_TYPE_UNSIGNED_INT
        # No board that answers draws 0 W: a zero here is a field without a sensor behind it.
        watts.append((value.uiVal if unsigned_int else value.ullVal) / 1000 or None)
    average_w, instant_w = watts
    if average_w is None and instant_w is None:
        raise fault_of("nvmlDeviceGetFieldValues", worst or NOT_SUPPORTED)
    return {
        "power_w": instant_w if average_w is None else average_w,
        "power_instant_w": average_w if instant_w is None else instant_w,
    }


def _power_usage(call: Call, handle: object) -> Values:
    watts = call("nvmlDeviceGetPowerUsage", handle) / 1000
    return {"power_w": watts, "power_instant_w": watts}


def _utilization(call: Call, handle: object) -> Values:
    rates = call("nvmlDeviceGetUtilizationRates", handle)
    return {"util_pct": float(rates.gpu), "mem_util_pct": float(rates.memory)}


def _memory_v2(call: Call, handle: object) -> Values:
    # Version 2 keeps what the driver reserves for itself out of `used`.
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


METRICS: Final[Mapping[str, tuple[Way, ...]]] = {
    "power": (_power_fields, _power_usage),
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


class _ThrottleClock:
    """Seconds held back, summed from the reasons of the moment where the driver does not count.

    A reason that holds at a sample is taken to have held since the sample before, for at most
    two seconds of it, so that a pause in sampling is not counted as throttling.
    """

    _MAX_STEP_S = 2.0

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._power_s = 0.0
        self._thermal_s = 0.0

    def add(self, t_ns: int, reasons: int) -> Values:
        since_ns = t_ns if self._last_ns is None else self._last_ns
        step_s = min(self._MAX_STEP_S, (t_ns - since_ns) / NS_PER_S)
        self._last_ns = t_ns
        by_power = bool(reasons & POWER_REASONS)
        unnamed = bool(reasons & REASON_HW_SLOWDOWN) and not by_power
        self._power_s += step_s * by_power
        self._thermal_s += step_s * (bool(reasons & THERMAL_REASONS) or unnamed)
        return {"throttle_power_s": self._power_s, "throttle_thermal_s": self._thermal_s}


class GpuSensor:
    """One GPU; see `agent.telemetry.sample.Sensor` for the contract.

    Args:
        index: NVML index.
        library: The process's NVML, initialized.
        clock: Gives the time of each reading.
        tell: Is given the faults that do not end a sample, once each.
    """

    idle_below_pct = 0.0

    def __init__(self, index: int, library: Library, clock: Clock, tell: Tell) -> None:
        self.name = f"gpu{index}"
        self.call = ""
        self.counter_method: CounterMethod | None = "counter"
        self._index = index
        self._library = library
        self._clock = clock
        self._tell = tell
        self._uuid: str | None = None
        self._uninitialized = False
        self._forget()

    def _forget(self) -> None:
        self._handle: Any = None
        self._generation = self._library.generation
        self._ways = {metric: list(ways) for metric, ways in METRICS.items()}
        self._failing: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._throttle = _ThrottleClock()

    def _nvml(self, function: str, *args: Any) -> Any:  # noqa: ANN401 - pynvml has no types
        self.call = function
        try:
            return nvml_call(function, *args)
        except SensorFault as fault:
            self._uninitialized |= fault.reaction is Reaction.REINIT
            raise

    def open(self) -> Device:
        """Finds the GPU by its UUID once that is known, because indices move when one is lost.

        Initializes the library again first where a call said that it is not.

        Raises:
            SensorFault: The GPU is not usable; anything that is not supported here is reason to
                leave it alone.
        """
        if self._uninitialized:
            self._library.reopen(self._generation)
            self._uninitialized = False
        self._forget()
        self.counter_method = "counter"
        try:
            if self._uuid is None:
                self._handle = self._nvml("nvmlDeviceGetHandleByIndex", self._index)
                self._uuid = str(self._nvml("nvmlDeviceGetUUID", self._handle))
            else:
                self._handle = self._nvml("nvmlDeviceGetHandleByUUID", self._uuid)
            model = str(self._nvml("nvmlDeviceGetName", self._handle))
            memory = self._read("memory").get("mem_total_bytes")
        except SensorFault as fault:
            if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
                raise SensorFault(
                    fault.call, fault.code, Reaction.QUARANTINE, fault.detail
                ) from fault
            raise
        return Device(self.name, "gpu", self._uuid, model, self._index, memory)

    def sample(self) -> Sample:
        """Reads every metric that the GPU supports.

        Raises:
            SensorFault: The library or the whole GPU is concerned, or nothing at all is supported.
        """
        if self._generation != self._library.generation:
            # Another GPU's thread initialized the library again: this handle is of the old one.
            raise fault_of(self.call, UNINITIALIZED, "the library was initialized again")
        values: Values = {}
        for metric in METRICS:
            values.update(self._read(metric))
        if not any(self._ways.values()):
            detail = "the driver answers nothing about this GPU"
            raise SensorFault(self.call, "NOT_SUPPORTED", Reaction.QUARANTINE, detail)
        t_ns = self._clock.monotonic_ns()
        if "reasons" in values:
            values.update(self._throttle.add(t_ns, values.pop("reasons")))
        pids = [values.pop(key) for key in ("compute_pids", "mps_pids") if key in values]
        if pids:
            values["pids"] = tuple(sorted(set().union(*pids)))
        return Sample(t_ns=t_ns, **values)

    def read_counter(self) -> CounterReading | None:
        """Reads the energy counter (Volta and later), in J since the driver was loaded.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if self.counter_method is None:
            return None
        before_ns = self._clock.monotonic_ns()
        try:
            millijoules = self._nvml("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        except SensorFault as fault:
            if fault.reaction is Reaction.ABSENT:
                self.counter_method = None
                self._tell_once("energy", fault)
                return None
            if fault.reaction is Reaction.TRANSIENT:
                self._count_transient("energy", fault)
                return None
            raise
        self._failing.pop("energy", None)
        after_ns = self._clock.monotonic_ns()
        if after_ns - before_ns > COUNTER_READ_MAX_NS:
            return None
        return CounterReading((before_ns + after_ns) // 2, millijoules / 1000)

    def read_power_w(self) -> float | None:
        """Reads the power of the moment in W.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        watts: float | None = self._read("power").get("power_instant_w")
        return watts

    def _read(self, metric: str) -> Values:
        """One metric by the best way left; empty where it is absent, now or for ever."""
        ways = self._ways[metric]
        while ways:
            try:
                values = ways[0](self._nvml, self._handle)
            except SensorFault as fault:
                if fault.reaction is Reaction.ABSENT:
                    ways.pop(0)
                    self._tell_once(metric, fault)
                    continue
                if fault.reaction is Reaction.TRANSIENT:
                    self._count_transient(metric, fault)
                    return {}
                raise
            self._failing.pop(metric, None)
            return values
        return {}

    def _tell_once(self, metric: str, fault: SensorFault) -> None:
        """Absence is the device's nature and not told, unless an operator can do something."""
        if fault.detail and fault.code in ("NO_PERMISSION", "CORRUPTED_INFOROM"):
            self._tell_first(metric, fault)

    def _count_transient(self, metric: str, fault: SensorFault) -> None:
        self._failing[metric] = self._failing.get(metric, 0) + 1
        if self._failing[metric] == TELL_TRANSIENT_AFTER:
            self._tell_first(metric, fault)

    def _tell_first(self, metric: str, fault: SensorFault) -> None:
        if (metric, fault.code) not in self._told:
            self._told.add((metric, fault.code))
            self._tell(fault)
