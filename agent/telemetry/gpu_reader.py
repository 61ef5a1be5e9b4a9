"""Reads an NVIDIA GPU by the library's own functions, into memory that is kept.

pynvml makes the memory of each call anew, and looks at each value that is taken from it. Eight
boards are read every second for ever: for those whose metrics are read by one of the first ways of
`agent.telemetry.gpu_metrics` this does the same in less than half of the time. It knows of no faults:
where a call fails the ways find out what is wrong.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pynvml

from agent.model import NS_PER_S
from agent.telemetry.gpu_metrics import (
    METRICS,
    POWER_FIELDS,
    QUICK,
    Values,
    Way,
    is_counted,
    number,
    watts_of,
)
from agent.telemetry.nvml import raw_function
from agent.telemetry.sample import Noted, Sample

# More processes than on a board are read by their way.
PROCESSES_MAX: Final = 16


class _Quick(ctypes.Structure):
    """What QUICK names, as three functions of NVML write it."""

    _fields_ = (
        ("power", pynvml.c_nvmlFieldValue_t * len(POWER_FIELDS)),
        ("rates", pynvml.c_nvmlUtilization_t),
        ("sm_mhz", ctypes.c_uint),
    )


# The same in terms of `struct`: of each power its type, its error and its value (nvml.h,
# nvmlFieldValue_t), then two rates and the clock.
_QUICK_LAYOUT: Final = struct.Struct("<24xIiQ24xIiQIII")


class _Temperature(ctypes.Structure):
    """nvmlTemperature_v1_t of nvml.h, which older releases of pynvml lack."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("sensor", ctypes.c_uint),
        ("temperature", ctypes.c_int),
    )


# nvml.h: NVML_STRUCT_VERSION(Temperature, 1).
TEMPERATURE_V1: Final = ctypes.sizeof(_Temperature) | 1 << 24


class _Processes(ctypes.Structure):
    """How many there are, and which."""

    _fields_ = (
        ("count", ctypes.c_uint),
        ("found", pynvml.c_nvmlProcessInfo_v2_t * PROCESSES_MAX),
    )


class _Rest(ctypes.Structure):
    """What the other metrics are written to."""

    _fields_ = (
        ("memory", pynvml.c_nvmlMemory_v2_t),
        ("temperature", _Temperature),
        ("temp_c", ctypes.c_uint),
        ("mem_mhz", ctypes.c_uint),
        ("power_held", pynvml.c_nvmlViolationTime_t),
        ("heat_held", pynvml.c_nvmlViolationTime_t),
        ("ecc", ctypes.c_ulonglong),
        ("compute", _Processes),
        ("mps", _Processes),
    )


class _Raw(NamedTuple):
    """A way of a metric by the library's own functions.

    Attributes:
        calls: The functions with their arguments behind the board; text is a member of _Rest.
        values: What they have written.
    """

    calls: tuple[tuple[str, tuple[int | str, ...]], ...]
    values: Callable[[Any], Values]


def _held_s(times: object) -> float:
    # nvmlViolationTime_t.violationTime is in ns (nvml.h).
    return float(number(times, "violationTime")) / NS_PER_S


def _memory_of(rest: Any) -> Values:  # noqa: ANN401 - ctypes makes its members
    return {
        "mem_used_bytes": int(number(rest.memory, "used")),
        "mem_total_bytes": int(number(rest.memory, "total")),
    }


def _throttle_of(rest: Any) -> Values:  # noqa: ANN401 - ctypes makes its members
    return {
        "throttle_power_s": _held_s(rest.power_held),
        "throttle_thermal_s": _held_s(rest.heat_held),
    }


def _pids_of(processes: Any) -> set[int]:  # noqa: ANN401 - ctypes makes its members
    found = processes.found
    return {int(number(found[index], "pid")) for index in range(processes.count)}


_CLOCK, _HELD = "nvmlDeviceGetClockInfo", "nvmlDeviceGetViolationStatus"
_ECC = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
# For each of the first ways of METRICS the same by the library's own functions.
_RAW: Final[Mapping[str, tuple[_Raw, ...]]] = {
    "memory": (_Raw((("nvmlDeviceGetMemoryInfo_v2", ("memory",)),), _memory_of),),
    "temperature": (
        _Raw(
            (("nvmlDeviceGetTemperatureV", ("temperature",)),),
            lambda rest: {"temp_c": float(rest.temperature.temperature)},
        ),
        _Raw(
            (("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU, "temp_c")),),
            lambda rest: {"temp_c": float(rest.temp_c)},
        ),
    ),
    "mem_clock": (
        _Raw(
            ((_CLOCK, (pynvml.NVML_CLOCK_MEM, "mem_mhz")),),
            lambda rest: {"mem_clock_mhz": float(rest.mem_mhz)},
        ),
    ),
    "throttle": (
        _Raw(
            (
                (_HELD, (pynvml.NVML_PERF_POLICY_POWER, "power_held")),
                (_HELD, (pynvml.NVML_PERF_POLICY_THERMAL, "heat_held")),
            ),
            _throttle_of,
        ),
    ),
    "ecc": (
        _Raw(
            (("nvmlDeviceGetTotalEccErrors", (*_ECC, "ecc")),),
            lambda rest: {"ecc_uncorrected": int(rest.ecc)},
        ),
    ),
    "compute_processes": (
        _Raw(
            (("nvmlDeviceGetComputeRunningProcesses_v3", ("compute.count", "compute.found")),),
            lambda rest: {"compute_pids": _pids_of(rest.compute)},
        ),
    ),
    "mps_processes": (
        _Raw(
            (("nvmlDeviceGetMPSComputeRunningProcesses_v3", ("mps.count", "mps.found")),),
            lambda rest: {"mps_pids": _pids_of(rest.mps)},
        ),
    ),
}


def _raw_way(metric: str, left: Sequence[Way]) -> _Raw | None:
    """The raw way for the one that a metric is read by; none where there is no such.

    Raises:
        LookupError: It has no raw sister.
    """
    if not left:
        return None
    return _RAW[metric][METRICS[metric].index(left[0])]


def _reference(memory: ctypes.Structure, member: str) -> object:
    """A pointer to a member, or to a member of a member, of a structure."""
    *outer, last = member.split(".")
    for name in outer:
        memory = getattr(memory, name)
    return ctypes.byref(memory, getattr(type(memory), last).offset)


Calls = tuple[tuple[str, Callable[..., int], tuple[object, ...]], ...]


class GpuReader:
    """Reads one board.

    Args:
        ways: Those of each metric that are left of METRICS.
        handle: The board's, of which each function was called before.

    Attributes:
        quick: The functions that read what QUICK names, by their names and with their arguments;
            each gives 0 where it worked.
        rest: Those that read all else.

    Raises:
        LookupError: A metric is read by a way that is not known here.
        AttributeError: The library lacks a function.
    """

    def __init__(self, ways: Mapping[str, Sequence[Way]], handle: object) -> None:
        self._quick, self._rest = _Quick(), _Rest()
        for field, field_id in zip(self._quick.power, POWER_FIELDS, strict=True):
            field.fieldId = field_id
        self._rest.memory.version = pynvml.nvmlMemory_v2
        self._rest.temperature.version = TEMPERATURE_V1
        self._rest.temperature.sensor = pynvml.NVML_TEMPERATURE_GPU
        self.quick: Calls = tuple(
            (name, raw_function(name), (handle, *arguments, _reference(self._quick, member)))
            for name, arguments, member in (
                ("nvmlDeviceGetFieldValues", (len(POWER_FIELDS),), "power"),
                ("nvmlDeviceGetUtilizationRates", (), "rates"),
                (_CLOCK, (pynvml.NVML_CLOCK_SM,), "sm_mhz"),
            )
        )
        raws = [raw for metric in _RAW if (raw := _raw_way(metric, ways[metric])) is not None]
        self._values = [raw.values for raw in raws]
        self.rest: Calls = tuple(
            (name, raw_function(name), (handle, *map(self._argument, arguments)))
            for raw in raws
            for name, arguments in raw.calls
        )

    def _argument(self, value: int | str) -> object:
        return _reference(self._rest, value) if isinstance(value, str) else value

    def begin(self) -> None:
        """Says how much room there is, before `rest` is called."""
        self._rest.compute.count = self._rest.mps.count = PROCESSES_MAX

    def noted(self, t_ns: int) -> Noted:
        """What `quick` has written, at an instant in CLOCK_MONOTONIC ns."""
        return Noted(t_ns, bytes(self._quick), _quick_sample)

    def rest_values(self) -> Values:
        """What `rest` has written: fields of a Sample, and the two sets of processes."""
        values: Values = {}
        for found in self._values:
            values |= found(self._rest)
        return values


def _quick_sample(t_ns: int, memory: bytes) -> Sample:
    """The sample that the bytes of a `_Quick` hold."""
    kind, code, average, kind_now, code_now, instant, gpu_pct, memory_pct, sm_mhz = (
        _QUICK_LAYOUT.unpack_from(memory)
    )
    average_w, instant_w = watts_of(kind, code, average), watts_of(kind_now, code_now, instant)
    return Sample(
        t_ns,
        instant_w if average_w is None else average_w,
        average_w if instant_w is None else instant_w,
        float(gpu_pct),
        float(memory_pct),
        sm_clock_mhz=float(sm_mhz),
        is_quick=True,
        is_averaged=average_w is not None,
    )


def gpu_reader(ways: Mapping[str, Sequence[Way]], handle: object) -> GpuReader | None:
    """A GpuReader, for a board whose metrics are read by ways that it knows; else None.

    Args:
        ways: Those of each metric that are left of METRICS.
        handle: Is passed on.
    """
    # A device has memory of its own for the fields of power: its way is made of what METRICS names.
    of_power = METRICS["power"][0]
    by_fields = isinstance(of_power, type) and any(
        isinstance(way, of_power) for way in ways["power"][:1]
    )
    others_are_first = all(
        ways[metric][:1] == [METRICS[metric][0]] for metric in QUICK if metric != "power"
    )
    if not (by_fields and others_are_first and is_counted(ways["throttle"])):
        return None
    try:
        return GpuReader(ways, handle)
    except (LookupError, AttributeError):
        return None
