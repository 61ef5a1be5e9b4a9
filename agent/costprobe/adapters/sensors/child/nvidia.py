"""The sensors of NVIDIA's boards and MIG devices, read through NVML: metrics, power, energy.

Each metric has the ways to read it, best first. A way returns fields of
`costprobe.adapters.sensors.messages.Sample`, except `reasons` (see ThrottleClock) and the two
sets of processes, which the sensor merges.

All ways to read the power and energy of a board are in one scope. On a module, a board with a CPU
of its own such as GH200, NVML has power of the GPU alone and of the module. Its energy counter
(nvmlDeviceGetTotalEnergyConsumption) covers the module on GH200 (ml-energy/zeus, pull request
172). Field values name their scope (nvml.h, NVML_POWER_SCOPE_*).

A MIG device is a compute instance on a board in MIG mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pynvml

from costprobe.adapters.sensors.child.bounds import BOARD_TIMES, UNKNOWN_MAX_W
from costprobe.adapters.sensors.child.nvml import (
    NO_DEVICE,
    NO_DEVICE_DETAIL,
    NO_DRIVER,
    PROCESS_LISTS,
    VALUE_TYPE_UNSIGNED_INT,
    ListedProcesses,
    expected_gpu,
    fault_of,
    known,
    number,
    nvml_call,
    nvml_text,
    open_driver,
    package_fault,
    process_util_pct,
    start_fault,
)
from costprobe.adapters.sensors.child.sensor import (
    AMD,
    PASSING,
    Call,
    MetricReader,
    Report,
    Sensor,
    SensorContext,
    ThrottleClock,
    Values,
    Way,
    quarantining,
)
from costprobe.adapters.sensors.messages import EnergyReading, Reaction, Sample, SensorFault
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.records import NS_PER_S, Device, EnergyScope

# nvml.h: clocks event reasons. Boards without the two finer bits set HW_SLOWDOWN alone; it counts
# as thermal, which is more frequent than the fast power trigger that also sets it.
REASON_SW_POWER_CAP: Final = 0x04
REASON_HW_SLOWDOWN: Final = 0x08
REASON_SW_THERMAL: Final = 0x20
REASON_HW_THERMAL: Final = 0x40
REASON_HW_POWER_BRAKE: Final = 0x80
POWER_REASONS: Final = REASON_SW_POWER_CAP | REASON_HW_POWER_BRAKE
THERMAL_REASONS: Final = REASON_SW_THERMAL | REASON_HW_THERMAL


def _float(value: int) -> float | None:
    """An unsigned value that NVML returned; None where it is not available."""
    return None if known(value) is None else float(value)


def _utilization(call: Call, handle: object) -> Values:
    rates = call("nvmlDeviceGetUtilizationRates", handle)
    gpu_pct, memory_pct = number(rates, "gpu"), number(rates, "memory")
    return {"util_pct": _float(gpu_pct), "mem_util_pct": _float(memory_pct)}


def _memory(versions: tuple[int, ...], call: Call, handle: object) -> Values:
    info = call("nvmlDeviceGetMemoryInfo", handle, *versions)
    return {
        "mem_used_bytes": known(info.used, bits=64),
        "mem_total_bytes": known(info.total, bits=64),
    }


def _number(
    field: str, function: str, *args: int, bits: int = 32, kind: Callable[[int], float] = float
) -> Way:
    """The way to read a field that is one number."""

    def read(call: Call, handle: object) -> Values:
        value: int = call(function, handle, *args)
        # Some functions return a signed integer.
        is_known = known(value & (1 << bits) - 1, bits) is not None
        return {field: kind(value) if is_known else None}

    return read


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


def _reasons(function: str, call: Call, handle: object) -> Values:
    return {"reasons": int(call(function, handle))}


def _pids(field: str, symbol: str, call: Call, handle: object) -> Values:
    return {field: call(symbol, handle)}


def _process_ways(field: str, kind: str) -> tuple[Way, ...]:
    """The ways to list the processes of a kind: by the newest version that the driver has."""
    symbols = [symbol for symbol in PROCESS_LISTS if symbol.startswith(f"nvmlDeviceGet{kind}")]
    return tuple(partial(_pids, field, symbol) for symbol in symbols)


# The ways to read each metric, best first; those of power depend on the board (PowerScope).
WAYS: Final[Mapping[str, tuple[Way, ...]]] = {
    "power": (),
    "utilization": (_utilization,),
    # Version 2 excludes the driver's reserved memory from `used`.
    "memory": (partial(_memory, (pynvml.nvmlMemory_v2,)), partial(_memory, ())),
    "temperature": tuple(
        _number("temp_c", f"nvmlDeviceGetTemperature{version}", pynvml.NVML_TEMPERATURE_GPU)
        for version in ("V", "")
    ),
    "sm_clock": (_number("sm_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),),
    "mem_clock": (_number("mem_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),),
    "power_limit": (_power_limit,),
    "throttle": (
        _violations,
        partial(_reasons, "nvmlDeviceGetCurrentClocksEventReasons"),
        partial(_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    "ecc": (
        _number(
            "ecc_uncorrected",
            "nvmlDeviceGetTotalEccErrors",
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
            bits=64,
            kind=int,
        ),
    ),
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


# Totals that are summed from the reasons where the driver does not count them, or miscounts.
THROTTLED: Final = frozenset({"throttle_power_s", "throttle_thermal_s"})


def throttled_by(reasons: int) -> tuple[bool, bool]:
    """Whether the reasons that are set are of a power limit, and of temperature."""
    by_power = bool(reasons & POWER_REASONS)
    unnamed = bool(reasons & REASON_HW_SLOWDOWN) and not by_power
    return by_power, bool(reasons & THERMAL_REASONS) or unnamed


# nvml.h: NVML_POWER_SCOPE_GPU and NVML_POWER_SCOPE_MODULE.
SCOPE_GPU: Final = 0
SCOPE_MODULE: Final = 1
# nvml.h: NVML_FI_DEV_POWER_AVERAGE (over 1 s) and NVML_FI_DEV_POWER_INSTANT in mW, and
# NVML_FI_DEV_ENERGY in mJ.
FIELD_POWER_AVERAGE: Final = 185
FIELD_POWER_INSTANT: Final = 186
FIELD_ENERGY: Final = 191
# nvml.h: NVML_TOTAL_POWER_SAMPLES and NVML_MODULE_POWER_SAMPLES, in mW.
SAMPLES_OF_SCOPE: Final = {SCOPE_GPU: 0, SCOPE_MODULE: 7}
NOT_SUPPORTED: Final = 3
# A module draws more than its GPU; a driver that ignores the scope reports the same for both.
MODULE_LEAST_W: Final = 5.0
# Counters of two scopes differ by more than one counter can advance between two readings.
SAME_COUNTER_J: Final = 300.0


def read_fields(
    call: Call, handle: object, *fields: tuple[int, int]
) -> tuple[list[float | None], int]:
    """Read field values, each of a scope.

    Args:
        call: Calls NVML.
        handle: The device.
        fields: Pairs of a field's id and its scope.

    Returns:
        Each value in W or J, None where the driver has none; and the last code that is an error.

    Raises:
        SensorFault: The call failed.
    """
    memory = (pynvml.c_nvmlFieldValue_t * len(fields))()
    for value, (field_id, scope) in zip(memory, fields, strict=True):
        value.fieldId, value.scopeId = field_id, scope
    call("nvmlDeviceGetFieldValues", handle, memory)
    codes = [number(value, "nvmlReturn") for value in memory]
    values = [
        value_of(number(value, "valueType"), code, value.value.ullVal)
        for value, code in zip(memory, codes, strict=True)
    ]
    return values, next(filter(None, reversed(codes)), 0)


def value_of(value_type: int, code: int, value: int) -> float | None:
    """The W or J that an nvmlFieldValue_t in mW or mJ holds; None for an error or no value."""
    if code:
        return None
    bits = 32 if value_type == VALUE_TYPE_UNSIGNED_INT else 64
    # The power of a working board is never 0 W: zero means that the field is not supported.
    milli = known(value & (1 << bits) - 1, bits)
    return None if not milli else milli / 1000


def _power_fields(scope: int, call: Call, handle: object) -> Values:
    """The power of a scope in W; a fault where the driver has neither field."""
    fields = ((FIELD_POWER_AVERAGE, scope), (FIELD_POWER_INSTANT, scope))
    (average_w, instant_w), code = read_fields(call, handle, *fields)
    if average_w is None and instant_w is None:
        raise fault_of("nvmlDeviceGetFieldValues", code or NOT_SUPPORTED)
    return {
        "power_w": instant_w if average_w is None else average_w,
        "power_instant_w": average_w if instant_w is None else instant_w,
    }


def _power_usage(call: Call, handle: object) -> Values:
    milliwatts = known(call("nvmlDeviceGetPowerUsage", handle))
    watts = None if not milliwatts else milliwatts / 1000
    return {"power_w": watts, "power_instant_w": watts}


def _counter_j(scope: int | None, call: Call, handle: object) -> float | None:
    """The energy counter of a scope, or the one that has none, in J."""
    if scope is None:
        total_mj = known(call("nvmlDeviceGetTotalEnergyConsumption", handle), bits=64)
        return None if total_mj is None else total_mj / 1000
    (energy_j,), code = read_fields(call, handle, (FIELD_ENERGY, scope))
    if code:
        raise fault_of("nvmlDeviceGetFieldValues", code)
    return energy_j


class PowerScope(NamedTuple):
    """What of a board power and energy are read of.

    Attributes:
        covers: "module" where that includes the module's CPU and memory.
        power_scope: NVML_POWER_SCOPE_* of the power.
        energy_scope: The same of the energy's field; None: the counter that has no scope.
    """

    covers: EnergyScope
    power_scope: int
    energy_scope: int | None = None


# A board that is no module has one scope, and counters without one.
WHOLE_GPU: Final = PowerScope("device", SCOPE_GPU)


def scopes_of(call: Call, handle: object) -> list[PowerScope]:
    """The scopes in which power and energy can be read, the most probable first.

    That of the GPU where NVML counts the GPU's energy apart from the module's; otherwise that of
    the module, whose counter is the one without a scope on GH200. If the self-test finds that
    power and counter disagree, the next one applies.

    Raises:
        SensorFault: The call failed.
    """
    fields = (FIELD_POWER_INSTANT, FIELD_POWER_AVERAGE, FIELD_ENERGY)
    scopes = (SCOPE_GPU, SCOPE_MODULE)
    powers, _ = read_fields(call, handle, *((field, scope) for field in fields for scope in scopes))
    gpu_w, module_w = powers[0] or powers[2], powers[1] or powers[3]
    gpu_j, module_j = powers[4:]
    if module_w is None or module_w - (gpu_w or 0.0) < MODULE_LEAST_W:
        return [WHOLE_GPU]
    module = PowerScope("module", SCOPE_MODULE, None if module_j is None else SCOPE_MODULE)
    if gpu_w is None:
        return [module]
    if gpu_j is None:
        return [module, WHOLE_GPU]
    gpu = PowerScope("device", SCOPE_GPU, SCOPE_GPU)
    has_own = module_j is None or abs(module_j - gpu_j) > SAME_COUNTER_J
    return [gpu, module] if has_own else [module, gpu]


def sample_powers(value_type: int, samples: Iterable[Any], seen_us: int) -> list[tuple[int, float]]:
    """The driver's new buffered samples as (UTC us, W), oldest first.

    Args:
        value_type: Which member of the union holds the value.
        samples: The result of nvmlDeviceGetSamples.
        seen_us: UTC us of the last one read before; 0 for none.
    """
    powers = []
    for sample in samples:
        value = sample.sampleValue
        unsigned_int = value_type == VALUE_TYPE_UNSIGNED_INT
        milliwatts = known(value.uiVal) if unsigned_int else known(value.ullVal, bits=64)
        # An unused slot holds zeros.
        if int(sample.timeStamp) > seen_us and milliwatts:
            powers.append((int(sample.timeStamp), milliwatts / 1000))
    return sorted(powers)


# A counter reading that took longer than the counter's own step has no exact time.
COUNTER_READ_MAX_NS: Final = 100_000_000

# The model of a device whose name is empty.
UNNAMED: Final = "NVIDIA GPU"
PIDS: Final = ("compute_pids", "mps_pids")


class NvidiaSensor(Sensor):
    """One GPU, a whole board that NVML finds by its index.

    Args:
        index: NVML index of the board.
        clock: Clock of the readings.
        report: Called once with each fault that does not end a sample.
        name: Name of the device, if it is a part of the board.
    """

    def __init__(self, index: int, clock: Clock, report: Report, name: str = "") -> None:
        super().__init__(name or f"gpu{index}")
        self._index = index
        self._clock = clock
        self._report = report
        # The board's UUID, once it is known.
        self._uuid = ""
        # The metrics that a device of this kind lacks, and those that it has by another handle.
        self._lacking: Collection[str] = ()
        self._handles: dict[str, object] = {}
        self._reset()

    def _reset(self) -> None:
        self._handle: Any = None
        self._metrics = MetricReader(self.name, self._report, WAYS)
        self._throttle = ThrottleClock()
        self._listed = ListedProcesses()
        self._samples_seen_us = 0
        self._is_divided: bool | None = None
        self._scopes: list[PowerScope] = [WHOLE_GPU]
        self._support_all()

    def _support_all(self) -> None:
        """Try again what was not supported, in the first of the scopes."""
        scope = self._scopes[0]
        self.energy_scope = scope.covers
        power: list[Way] = [partial(_power_fields, scope.power_scope)]
        if scope.power_scope == SCOPE_GPU:
            power.append(_power_usage)
        self._metrics.support({**WAYS, "power": power})
        # The functions, beside the metrics, that the driver does not support.
        self._lacks: set[str] = set()

    def _nvml(self, function: str, *args: Any) -> Any:  # noqa: ANN401 - pynvml has no types
        self.call = function
        return nvml_call(function, *args)

    def _optional(self, function: str, *args: Any, none: object = None) -> Any:  # noqa: ANN401 - as above
        """What a function returns; None where the driver does not support it, or not now.

        Args:
            function: Its name.
            args: Its arguments.
            none: What to return where the driver found nothing.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if function in self._lacks:
            return None
        try:
            return self._nvml(function, *args)
        except SensorFault as fault:
            if fault.code == "NOT_FOUND":
                return none
            if fault.reaction not in PASSING:
                raise
            if fault.reaction is Reaction.ABSENT:
                self._lacks.add(function)
            return None

    def discover(self) -> Device:
        """Find the GPU; by its UUID once that is known, because indices move when a GPU is lost.

        A board whose UUID is empty is found by its index; its name on this host is its identity.

        Raises:
            SensorFault: The GPU cannot be used; an error that concerns one call only counts as
                reason for quarantine here.
        """
        self._reset()
        try:
            if self._uuid:
                self._handle = self._nvml("nvmlDeviceGetHandleByUUID", self._uuid)
            else:
                self._handle = self._nvml("nvmlDeviceGetHandleByIndex", self._index)
                self._uuid = nvml_text(self._nvml, "nvmlDeviceGetUUID", self._handle)
            self._find_scopes()
            # Bounds the readings of power by the board's highest limit, in mW (nvml.h).
            limits = self._optional("nvmlDeviceGetPowerManagementLimitConstraints", self._handle)
            highest_mw = limits and known(limits[1])
            self.bounds.max_w = BOARD_TIMES * highest_mw / 1000 if highest_mw else UNKNOWN_MAX_W
            return self._describe(self._uuid or self.name)
        except SensorFault as fault:
            raise quarantining(fault) from fault

    def _find_scopes(self) -> None:
        try:
            self._scopes = scopes_of(self._nvml, self._handle)
        except SensorFault as fault:
            if fault.reaction not in PASSING:
                raise
        self._support_all()

    def change_energy_scope(self) -> bool:
        """Read power and energy in the next scope, if the board has one that was not tried."""
        if len(self._scopes) == 1:
            return False
        self._scopes = self._scopes[1:]
        self._support_all()
        return True

    def _describe(self, uuid: str) -> Device:
        """Describe the device, on the board of this UUID."""
        model = nvml_text(self._nvml, "nvmlDeviceGetName", self._handle) or UNNAMED
        memory_bytes = self._read("memory").get("mem_total_bytes")
        mode = self._optional("nvmlDeviceGetPersistenceMode", self._handle)
        is_persistent = None if mode is None else bool(mode)
        compute_mode = self._optional("nvmlDeviceGetComputeMode", self._handle)
        return Device(
            self.name,
            "gpu",
            uuid,
            model,
            memory_bytes,
            is_persistent=is_persistent,
            is_exclusive=compute_mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        )

    def _check(self) -> None:
        """Check that the device is still the one that was discovered.

        Raises:
            SensorFault: It is gone, or the library or the whole GPU is concerned.
        """

    def sample(self, *, quick: bool = False) -> Sample:
        """Read every metric that the GPU supports.

        Args:
            quick: Only QUICK, and the throttle reasons where the driver does not count their time.

        Raises:
            SensorFault: The library or the whole GPU is concerned, or nothing at all is supported.
        """
        if not quick:
            return self._read_all(FULL, is_quick=False)
        is_counted = self._metrics.best("throttle") in (None, _violations)
        return self._read_all(QUICK if is_counted else (*QUICK, "throttle"), is_quick=True)

    def _read_all(self, metrics: Iterable[str], *, is_quick: bool) -> Sample:
        self._check()
        if self.bounds.impossible & THROTTLED:
            self._metrics.leave("throttle", _violations)
        values: Values = {}
        for metric in metrics:
            if metric not in self._lacking:
                values |= self._read(metric)
        if not values and not self._metrics.has_any():
            detail = "the driver supports no metric of this GPU"
            raise SensorFault(self.call, "NOT_SUPPORTED", Reaction.QUARANTINE, detail)
        t_ns = self._clock.monotonic_ns()
        if "reasons" in values:
            values.update(self._throttle.add(t_ns, *throttled_by(values.pop("reasons"))))
        pids = [values.pop(key) for key in PIDS if key in values]
        if pids:
            values["pids"] = tuple(sorted(set().union(*pids)))
            self._listed.add(t_ns, values["pids"])
        return Sample(t_ns=t_ns, is_quick=is_quick, **values)

    def read_energy(self) -> EnergyReading | None:
        """Read the energy counter (Volta and later), in J since the driver was loaded.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if "energy" in self._lacks:
            return None
        before_ns = self._clock.monotonic_ns()
        try:
            energy_j = _counter_j(self._scopes[0].energy_scope, self._nvml, self._handle)
        except SensorFault as fault:
            if self._metrics.is_absent("energy", fault):
                self._lacks.add("energy")
            return None
        self._metrics.works("energy")
        after_ns = self._clock.monotonic_ns()
        if energy_j is None or after_ns - before_ns > COUNTER_READ_MAX_NS:
            return None
        return EnergyReading((before_ns + after_ns) // 2, energy_j)

    def read_power_w(self) -> float | None:
        """Read the power in W: the driver's average over the last second where there is one.

        On some boards the sensor of the instantaneous power samples 25 of 100 ms (Yang et al.,
        "Part-time Power Measurements", 2023) and misses the rest.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        watts: float | None = self._read("power").get("power_w")
        return watts

    def read_power_samples(self) -> list[tuple[int, float]] | None:
        """Read the driver's buffer of past power.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        buffer, seen_us = SAMPLES_OF_SCOPE[self._scopes[0].power_scope], self._samples_seen_us
        found = self._optional("nvmlDeviceGetSamples", self._handle, buffer, seen_us, none=(0, ()))
        if found is None:
            return None
        offset_ns = self._clock.time_ns() - self._clock.monotonic_ns()
        kind, samples = found
        powers = sample_powers(kind, samples, seen_us)
        if powers:
            self._samples_seen_us = powers[-1][0]
        return [(time_us * 1000 - offset_ns, watts) for time_us, watts in powers]

    def util_by_pid_pct(self, since_ns: int) -> dict[int, float] | None:
        """Return how busy each process kept the multiprocessors, by the driver's own samples.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        since_us = utc_ns(self._clock, since_ns) // 1000
        # No sample since then: no process was busy.
        function = "nvmlDeviceGetProcessUtilization"
        found = self._optional(function, self._handle, since_us, none=())
        if found is None:
            return None
        by_pid = process_util_pct(found)
        if not self._listed.have_all(by_pid):
            lists = [self._read(metric) for metric in PROCESSES]
            pids = {pid for values in lists for listed in values.values() for pid in listed}
            self._listed.add(self._clock.monotonic_ns(), pids)
        return self._listed.known(by_pid)

    def _read(self, metric: str) -> Values:
        """Read one metric by its best supported way; empty if it is absent, temporarily or permanently."""
        return self._metrics.read(metric, self._nvml, self._handles.get(metric, self._handle))

    def slices(self) -> list[Sensor] | None:
        """Return a sensor for each MIG device on this board; none on a board without MIG mode.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        try:
            if not self._is_in_mig_mode():
                return []
            count = int(self._nvml("nvmlDeviceGetMaxMigDeviceCount", self._handle))
            numbers = [number for number in range(count) if self._has_mig_device(number)]
        except SensorFault as fault:
            if fault.reaction in PASSING:
                return None
            raise
        return [MigSensor(self._index, self._clock, self._report, number) for number in numbers]

    def _is_in_mig_mode(self) -> bool:
        """Whether the board is in MIG mode now.

        Raises:
            SensorFault: As any call of NVML.
        """
        try:
            current, _ = self._nvml("nvmlDeviceGetMigMode", self._handle)
        except SensorFault as fault:
            if fault.code not in NO_MIG:
                raise
            current = 0
        was_divided, self._is_divided = self._is_divided, bool(current)
        if was_divided not in (None, self._is_divided):
            # The driver has utilization only of a board that is not in MIG mode.
            self._support_all()
        return self._is_divided

    def _has_mig_device(self, number: int) -> bool:
        try:
            self._nvml(MIG_BY_NUMBER, self._handle, number)
        except SensorFault as fault:
            if fault.code in NO_MIG_DEVICE:
                return False
            raise
        return True


MIG_BY_NUMBER: Final = "nvmlDeviceGetMigDeviceHandleByIndex"
# What the driver returns for a board that has no MIG mode.
NO_MIG: Final = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND"})
# What MIG_BY_NUMBER returns where there is no such MIG device, or no MIG mode any more.
NO_MIG_DEVICE: Final = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "NOT_SUPPORTED"})


class MigSensor(NvidiaSensor):
    """A MIG device.

    It has memory and processes of its own. NVML has clock, temperature, power and energy of the
    whole board only; power and energy are in the board's row alone, so that sums over rows are
    correct.

    Args:
        index: NVML index of the board.
        clock: Clock of the readings.
        report: Called once with each fault that does not end a sample.
        number: Number of the MIG device on the board.
    """

    def __init__(self, index: int, clock: Clock, report: Report, number: int) -> None:
        super().__init__(index, clock, report, f"gpu{index}.mig{number}")
        self.parent = f"gpu{index}"
        self._number = number
        self._lacking = BOARD_ONLY
        self._mig_uuid = ""

    def _describe(self, uuid: str) -> Device:  # noqa: ARG002 - that is the board's
        handle = self._mig_device()
        self._handles = dict.fromkeys(OF_A_SLICE, handle)
        self._mig_uuid = nvml_text(self._nvml, "nvmlDeviceGetUUID", handle)
        attributes = self._nvml("nvmlDeviceGetAttributes_v2", handle)
        return Device(
            self.name,
            "mig",
            self._mig_uuid or self.name,
            nvml_text(self._nvml, "nvmlDeviceGetName", handle) or UNNAMED,
            self._read("memory").get("mem_total_bytes"),
            parent=self.parent,
            # Those of its GPU instance are shared by all compute instances on it.
            slices=int(attributes.computeInstanceSliceCount),
            slices_of=int(self._nvml("nvmlDeviceGetMaxMigDeviceCount", self._handle)),
            gpu_instance=self._optional("nvmlDeviceGetGpuInstanceId", handle),
        )

    def _mig_device(self) -> object:
        """The handle of the MIG device that has the number now.

        Raises:
            SensorFault: There is none, or the library or the whole GPU is concerned.
        """
        try:
            return self._nvml(MIG_BY_NUMBER, self._handle, self._number)
        except SensorFault as fault:
            if fault.code in NO_MIG_DEVICE:
                raise _gone(fault.call, fault.code) from fault
            raise

    def _check(self) -> None:
        """Check that the MIG device still exists: another one may have taken its number.

        Raises:
            SensorFault: It is gone, or the library or the whole GPU is concerned.
        """
        try:
            uuid = nvml_text(self._nvml, "nvmlDeviceGetUUID", self._mig_device())
        except SensorFault as fault:
            if fault.reaction is Reaction.TRANSIENT:
                return
            raise quarantining(fault) from fault
        if uuid != self._mig_uuid:
            raise _gone(self.call, "NOT_FOUND")

    def slices(self) -> list[Sensor]:
        """Return none: a MIG device is not divided."""
        return []


def _gone(call: str, code: str) -> SensorFault:
    return SensorFault(call, code, Reaction.GONE, "the MIG device was destroyed")


def nvidia_sensors(context: SensorContext) -> list[Sensor]:
    """One sensor for each NVIDIA GPU of the host; none where no driver is loaded and no GPU expected.

    Raises:
        SensorFault: NVML cannot be initialized, or finds no GPU where one belongs.
    """
    if not context.settings.gpus:
        return []
    settings = context.settings
    is_known = any(not model.startswith(AMD) for model in settings.known_models)
    evidence = expected_gpu(Path(settings.sysfs_root), os.environ, is_known=is_known)
    try:
        driver = open_driver()
    except SensorFault as fault:
        if fault.code in NO_DRIVER and not evidence:
            return []
        raise start_fault(fault, evidence) from fault
    if not driver.gpu_count and evidence:
        call = "nvmlDeviceGetCount"
        none = SensorFault(call, NO_DEVICE, Reaction.TRANSIENT, NO_DEVICE_DETAIL)
        raise start_fault(none, evidence)
    context.versions.update(driver.versions)
    for reported in filter(None, (package_fault(), *driver.faults)):
        context.report("", reported)
    return [NvidiaSensor(index, context.clock, context.report) for index in range(driver.gpu_count)]
