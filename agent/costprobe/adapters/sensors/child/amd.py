"""The sensors of AMD's boards and their partitions, read through AMD SMI (libamd_smi.so).

The library is called by ctypes. PyPI's `amdsmi` is a copy of AMD's wrapper by others (ml-energy/amdsmi), of
one version of the library: its import resolves every function of that version, and fails with another.

Structures are those of amdsmi.h (ROCm/rocm-systems, projects/amdsmi), as far as the libraries 25 to 27 have
them in common: each was compared in the wrappers of ROCm 6.4.4 and 7.0.2, and in the headers of 26.1 and of a
later 26; the changes of 27 are those of its CHANGELOG.md, which is also the source of what is said of earlier
versions. They differ in 24 and before (power, name and process): such a library is refused, and one after 27.

The library has power, energy, clocks, temperature and throttling of a whole board only. On a board of two
dies (MI250, MI250X) it has power and energy of both dies on one of them, and 0 on the other (checkIfSecondaryDie
in rocm_smi.py). A partition of a board is a device of the library in the same socket; the first one also stands
for the board.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from costprobe.adapters.sensors.child.bounds import BOARD_TIMES, UNKNOWN_MAX_W
from costprobe.adapters.sensors.child.sensor import (
    AMD,
    PASSING,
    Call,
    MetricReader,
    Sensor,
    SensorContext,
    ThrottleClock,
    Values,
    Way,
    pci_board,
    quarantining,
)
from costprobe.adapters.sensors.messages import EnergyReading, Reaction, Sample, SensorFault
from costprobe.core.outside import one_line
from costprobe.core.records import NS_PER_S, Device, EnergyScope

LIBRARY: Final = "libamd_smi.so"
DEFAULT_ROCM: Final = "/opt/rocm"
# The first number of its version: the library's year before 26, from then on its ABI. ROCm 6.4 has 25, ROCm 7 has
# 26, ROCm 10 has 27.
SUPPORTED: Final = (25, 26, 27)
ROCM_10: Final = 27
VERSION: Final = "amdsmi_get_lib_version"
# amdsmi.h: AMDSMI_INIT_AMD_GPUS.
INIT_GPUS: Final = 2
MEMORY_OF_GPU: Final = 0
CLOCK_GFX: Final = 0
CLOCK_MEMORY: Final = 4
TEMPERATURE_EDGE: Final = 0
TEMPERATURE_HOTSPOT: Final = 1
TEMPERATURE_NOW: Final = 0
# Memory of what the library fills in: more than twice its largest structure, because it writes the whole of
# one, of which a later version may have a larger one.
ROOM_BYTES: Final = 1 << 14
TEXT_BYTES: Final = 256
UW_PER_W: Final = 1_000_000
DEVICES_MAX: Final = 1024
PROCESSES_FIRST: Final = 64
PROCESSES_MAX: Final = 4096

# amdsmi.h: amdsmi_status_t.
NOT_SUPPORTED: Final = 2
OUT_OF_RESOURCES: Final = 15
_FIRST_NAMES = (
    *("INVAL", "NOT_SUPPORTED", "NOT_YET_IMPLEMENTED", "FAIL_LOAD_MODULE", "FAIL_LOAD_SYMBOL"),
    *("DRM_ERROR", "API_FAILED", "TIMEOUT", "RETRY", "NO_PERMISSION", "INTERRUPT", "IO"),
    *("ADDRESS_FAULT", "FILE_ERROR", "OUT_OF_RESOURCES", "INTERNAL_EXCEPTION"),
)
NAMES: Final[Mapping[int, str]] = {
    **dict(enumerate(_FIRST_NAMES, 1)),
    18: "INIT_ERROR",
    30: "BUSY",
    31: "NOT_FOUND",
    32: "NOT_INIT",
    34: "DRIVER_NOT_LOADED",
    40: "NO_DATA",
    43: "UNEXPECTED_DATA",
    52: "FILE_NOT_FOUND",
    54: "AMDGPU_RESTART_ERR",
    0xFFFFFFFF: "UNKNOWN_ERROR",
}
# As in nvml.py, the reaction depends on the code alone; other codes are temporary.
REACTIONS: Final[Mapping[str, Reaction]] = {
    **dict.fromkeys(
        (
            *("INVAL", "NOT_SUPPORTED", "NOT_YET_IMPLEMENTED", "NO_DATA", "NO_PERMISSION"),
            *("FAIL_LOAD_SYMBOL", "UNEXPECTED_DATA", "FILE_NOT_FOUND"),
        ),
        Reaction.ABSENT,
    ),
    **dict.fromkeys(("NOT_FOUND", "AMDGPU_RESTART_ERR"), Reaction.QUARANTINE),
    **dict.fromkeys(("NOT_INIT", "DRIVER_NOT_LOADED"), Reaction.RESTART),
}
HINTS: Final[Mapping[str, str]] = {
    "LIBRARY_NOT_FOUND": f"install AMD SMI (package amd-smi-lib of ROCm 6.4 or later), or set ROCM_PATH to the"
    f" folder that has lib/{LIBRARY}",
    "DRIVER_NOT_LOADED": "load it with `modprobe amdgpu`",
    "NO_PERMISSION": "let the user of this process open /dev/kfd and the devices in /dev/dri: add it to the group"
    " render, and to video where that owns them",
    "AMDGPU_RESTART_ERR": "the driver resets the board: look for amdgpu's messages in `dmesg`",
}
NO_DRIVER: Final = frozenset({"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED"})
# PCI: AMD, and the classes of Instinct boards. Those of displays are of integrated GPUs, too.
PCI_VENDOR: Final = "0x1002"
PCI_CLASSES: Final = ("0x0380", "0x1200")
PCI_DISPLAYS: Final = "0x03"
# An integrated GPU, which shares the host's memory and serves no model, has less memory of its own.
LEAST_BYTES: Final = 4 << 30

# Linux, drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h: SMU_THROTTLER_*, the power limits (PPT, SPL, FPPT, SPPT)
# and the temperatures, up to PROCHOT.
POWER_THROTTLERS: Final = 0xFF
THERMAL_THROTTLERS: Final = 0xFFFF << 32
# The device that a process of ROCm has: the UUID of a whole board, or a number from 0. It is then HIP's first,
# whatever this process has in HIP_VISIBLE_DEVICES.
SELECTOR: Final = "ROCR_VISIBLE_DEVICES={} HIP_VISIBLE_DEVICES=0"
# PCI devices of which power and energy cover more: a module of two dies (MI250X, MI250), and one with a CPU
# (MI300A). Source: libdrm, data/amdgpu.ids.
OF_A_MODULE: Final = frozenset({0x7408, 0x740C, 0x74A0})


class _Version(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_uint32 * 4), ("build", ctypes.c_char_p))


class _Bdf(ctypes.Structure):
    """amdsmi_bdf_t: bits of the function, the device, the bus and the domain."""

    _fields_ = (("value", ctypes.c_uint64),)

    @property
    def address(self) -> str:
        """The PCI address, as "0000:0c:00.0"."""
        value = int(self.value)
        bus, slot, function = value >> 8 & 0xFF, value >> 3 & 0x1F, value & 0x7
        return f"{value >> 16:04x}:{bus:02x}:{slot:02x}.{function}"


class _Asic(ctypes.Structure):
    _fields_ = (
        ("market_name", ctypes.c_char * TEXT_BYTES),
        ("vendor_id", ctypes.c_uint32),
        ("vendor_name", ctypes.c_char * TEXT_BYTES),
        ("subvendor_id", ctypes.c_uint32),
        ("device_id", ctypes.c_uint64),
        ("rev_id", ctypes.c_uint32),
        ("asic_serial", ctypes.c_char * TEXT_BYTES),
    )


class _Board(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_char * TEXT_BYTES)
        for name in ("model_number", "product_serial", "fru_id", "product_name")
    )


class _Enumeration(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("render", "card", "hsa_id", "hip_id"))


class _Power(ctypes.Structure):
    """amdsmi_power_info_t in W: now on MI300 and later, averaged on older boards and Radeon."""

    _fields_ = (
        ("socket_power", ctypes.c_uint64),
        ("current_socket_power", ctypes.c_uint32),
        ("average_socket_power", ctypes.c_uint32),
    )


class _PowerCap(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("power_cap", "default", "dpm", "least", "most")
    )


class _Activity(ctypes.Structure):
    _fields_ = (("gfx", ctypes.c_uint32), ("umc", ctypes.c_uint32), ("mm", ctypes.c_uint32))


class _Clock(ctypes.Structure):
    _fields_ = (("clk", ctypes.c_uint32),)


class _Errors(ctypes.Structure):
    _fields_ = (("correctable", ctypes.c_uint64), ("uncorrectable", ctypes.c_uint64))


class _Violations(ctypes.Structure):
    """amdsmi_violation_status_t: counts of the firmware's steps, of all and of those that were limited."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("reference_us", "at_ns", "steps", "prochot", "ppt", "socket", "vr", "hbm")
    )


class _Metrics(ctypes.Structure):
    """amdsmi_gpu_metrics_t as far as indep_throttle_status, of 25 and 26."""

    _fields_ = (("rest", ctypes.c_ubyte * 112), ("throttlers", ctypes.c_uint64))


class _Metrics27(ctypes.Structure):
    """The same of 27, where two counters before it have 64 bits in place of 32."""

    _fields_ = (("rest", ctypes.c_ubyte * 120), ("throttlers", ctypes.c_uint64))


class _Process(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * TEXT_BYTES),
        ("pid", ctypes.c_uint32),
        ("mem", ctypes.c_uint64),
        ("engine_usage", ctypes.c_ubyte * 64),
        ("gtt_mem", ctypes.c_uint64),
        ("cpu_mem", ctypes.c_uint64),
        ("vram_mem", ctypes.c_uint64),
        ("rest", ctypes.c_ubyte * 344),
    )


# The counts of _Violations: all steps, those limited by power, and those by each thermal cause.
COUNTS: Final = ("steps", "ppt", "prochot", "socket", "vr", "hbm")
NO_COUNT: Final = (1 << 64) - 1


def fault_of(function: str, status: int, words: str = "") -> SensorFault:
    """The fault for a status other than success."""
    code = NAMES.get(status, f"CODE_{status}")
    detail = "; ".join(filter(None, (words, HINTS.get(code, ""))))
    return SensorFault(function, code, REACTIONS.get(code, Reaction.TRANSIENT), detail)


def known(value: int) -> int | None:
    """An unsigned value; None where the library has none.

    It fills in the largest number of the field, or of the 16 or 32 bits that the firmware reports.
    """
    return None if value in {0xFFFF, 0xFFFFFFFF, NO_COUNT} else int(value)


def _watts(microwatts: int) -> float | None:
    """A power limit in W; amdsmi.h documents uW for Linux, and W in the headers of 26.

    No board's limit is a million W, or one millionth of one.
    """
    value = known(microwatts)
    if not value:
        return None
    return value / UW_PER_W if value >= UW_PER_W else float(value)


def text_of(raw: bytes) -> str:
    """A text of the library as one printable line; empty where it has none."""
    text = one_line(raw.decode(errors="replace")).strip()
    return "" if text.upper() in {"N/A", "UNKNOWN", "NONE"} else text


def serial_of(text: str) -> str:
    """The serial number of a chip as 16 hexadecimal digits; empty where it has none."""
    try:
        value = int(text, 16)
    except ValueError:
        return ""
    return f"{value:016x}" if 0 < value < NO_COUNT and known(value) else ""


# Several threads may read devices at once, but the library keeps processes in one map without a lock
# (process_info_cache_map in amd_smi_gpu_device.cc).
_PROCESSES_LOCK: Final = threading.Lock()


class AmdLibrary:
    """The loaded library.

    Args:
        library: As ctypes loads it.

    Attributes:
        major: First number of its version.
        addresses: PCI address of the board that has a serial number.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.major = 0
        self.addresses: dict[str, str] = {}

    def call(self, function: str, *args: Any) -> None:  # noqa: ANN401 - as ctypes
        """Call a function.

        Raises:
            SensorFault: With the reaction to its status, or without such a function.
        """
        try:
            status = getattr(self._library, function)(*args)
        except AttributeError:
            raise fault_of(function, NOT_SUPPORTED) from None
        if status:
            raise fault_of(function, status & 0xFFFFFFFF)

    def read(self, kind: Any, function: str, *args: Any) -> Any:  # noqa: ANN401 - as ctypes
        """Return the structure or number of a ctypes kind that a function fills in, its last argument.

        Raises:
            SensorFault: As `call`.
        """
        memory = (ctypes.c_ubyte * ROOM_BYTES)()
        self.call(function, *args, memory)
        return kind.from_buffer(memory)

    def handles(self, function: str, *args: Any) -> list[ctypes.c_void_p]:  # noqa: ANN401 - as ctypes
        """Return the handles that a function lists: sockets, or the devices of one.

        Raises:
            SensorFault: As `call`.
        """
        count = ctypes.c_uint32(0)
        self.call(function, *args, ctypes.byref(count), None)
        count.value = min(count.value, DEVICES_MAX)
        found = (ctypes.c_void_p * count.value)()
        self.call(function, *args, ctypes.byref(count), found)
        return [ctypes.c_void_p(handle) for handle in found[: count.value]]

    def pids(self, handle: object) -> frozenset[int]:
        """Return the processes that compute on a device.

        Raises:
            SensorFault: As `call`.
        """
        room = PROCESSES_FIRST
        while True:
            count, found = ctypes.c_uint32(room), (_Process * room)()
            try:
                with _PROCESSES_LOCK:
                    self.call("amdsmi_get_gpu_process_list", handle, ctypes.byref(count), found)
            except SensorFault as fault:
                if fault.code != NAMES[OUT_OF_RESOURCES] or room >= PROCESSES_MAX:
                    raise
            # The count is that of all processes, whichever fit.
            if count.value <= room:
                return _users(found[: count.value])
            room = min(max(2 * room, count.value), PROCESSES_MAX)


def _users(processes: Sequence[Any]) -> frozenset[int]:
    """The processes that use the device, by its memory.

    Before ROCm 10 the library lists a process for every board that it has opened, used or not.
    """
    users = [process.pid for process in processes if process.mem or process.vram_mem]
    # This process is on it where the library reads memory by the driver of ROCm.
    return frozenset(users or [process.pid for process in processes]) - {0, os.getpid()}


def open_library(environ: Mapping[str, str]) -> AmdLibrary:
    """Load and initialize the library; found as AMD's own wrapper finds it (amdsmi_wrapper.py).

    Args:
        environ: The environment; ROCM_HOME or ROCM_PATH is the folder of ROCm.

    Raises:
        SensorFault: Also where there is no library or no driver (code in NO_DRIVER).
    """
    rocm = environ.get("ROCM_HOME") or environ.get("ROCM_PATH")
    folders = [*([rocm] if rocm else []), DEFAULT_ROCM]
    *first, last = (f"{folder}/lib/{LIBRARY}" for folder in folders)
    found, broken = None, []
    for place in (*first, LIBRARY, last):
        try:
            found = ctypes.CDLL(place)
            break
        except OSError as error:
            # Of a library that is there, the reason why it cannot be loaded.
            if not str(error).startswith(f"{place}: cannot open shared object file"):
                broken.append(str(error))
    if found is None:
        code = "LIBRARY_NOT_FOUND"
        detail = "; ".join((*broken, HINTS[code]))
        raise SensorFault(LIBRARY, code, Reaction.ABSENT, detail)
    library = AmdLibrary(found)
    library.call("amdsmi_init", ctypes.c_uint64(INIT_GPUS))
    return library


def version_of(library: AmdLibrary) -> str:
    """Return the version of the library.

    Raises:
        SensorFault: The structures of this version are not known.
    """
    version = library.read(_Version, VERSION)
    name = text_of(version.build or b"") or ".".join(map(str, version.numbers[:3]))
    library.major = int(version.numbers[0])
    if library.major not in SUPPORTED:
        detail = (
            f"{LIBRARY} {name} has structures that this version of costprobe does not know; install version"
            f" {SUPPORTED[0]} to {SUPPORTED[-1]} of AMD SMI (ROCm 6.4, 7 or 10), or set ROCM_PATH to a ROCm that has it"
        )
        raise SensorFault(VERSION, "VERSION_MISMATCH", Reaction.TRANSIENT, detail)
    return name


def _power(call: Call, handle: object) -> Values:
    power = call(_Power, "amdsmi_get_power_info", handle)
    average_w, now_w = known(power.average_socket_power), known(power.current_socket_power)
    # The power of a working board is never 0 W: the second die of a module has none.
    watts = average_w or now_w or known(power.socket_power) or None
    return {
        "power_w": None if watts is None else float(watts),
        "power_instant_w": None if watts is None else float(now_w or watts),
    }


def _utilization(call: Call, handle: object) -> Values:
    activity = call(_Activity, "amdsmi_get_gpu_activity", handle)
    gfx_pct, umc_pct = known(activity.gfx), known(activity.umc)
    return {
        "util_pct": None if gfx_pct is None else float(gfx_pct),
        "mem_util_pct": None if umc_pct is None else float(umc_pct),
    }


def memory_of(call: Call, handle: object) -> dict[str, int | None]:
    """The memory that the library has for one of its devices."""
    number = ctypes.c_uint64
    used, total = (
        known(call(number, f"amdsmi_get_gpu_memory_{what}", handle, MEMORY_OF_GPU).value)
        for what in ("usage", "total")
    )
    return {"mem_used_bytes": used, "mem_total_bytes": total or None}


def _temperature(call: Call, handle: object) -> Values:
    """The hottest place of the chip, by which it is throttled; its edge where that has no sensor."""
    for place in (TEMPERATURE_HOTSPOT, TEMPERATURE_EDGE):
        try:
            celsius = call(ctypes.c_int64, "amdsmi_get_temp_metric", handle, place, TEMPERATURE_NOW)
        except SensorFault as fault:
            if fault.reaction is not Reaction.ABSENT:
                raise
            continue
        # A place without a sensor may have 0.
        if celsius.value and known(celsius.value):
            return {"temp_c": float(celsius.value)}
    return {"temp_c": None}


def _clock(field: str, domain: int, call: Call, handle: object) -> Values:
    clock = known(call(_Clock, "amdsmi_get_clock_info", handle, domain).clk)
    return {field: None if clock is None else float(clock)}


def _power_limit(call: Call, handle: object) -> Values:
    cap = call(_PowerCap, "amdsmi_get_power_cap_info", handle, 0)
    return {"power_limit_w": _watts(cap.power_cap)}


def _errors(call: Call, handle: object) -> Values:
    errors = call(_Errors, "amdsmi_get_gpu_total_ecc_count", handle)
    return {"ecc_uncorrected": known(errors.uncorrectable)}


def _violations(call: Call, handle: object) -> Values:
    """The counts since the driver was loaded (MI300 and later); the library waits for 0.1 s in this call."""
    function = "amdsmi_get_violation_status"
    counts = call(_Violations, function, handle)
    steps, power, *thermal = (getattr(counts, name) for name in COUNTS)
    causes = [count for count in thermal if count != NO_COUNT]
    if NO_COUNT in (steps, power) or not causes:
        raise fault_of(function, NOT_SUPPORTED)
    return {"violations": (steps, power, *causes)}


def _throttlers(kind: type[ctypes.Structure], call: Call, handle: object) -> Values:
    """What limits the clock now, on boards that do not count it."""
    function = "amdsmi_get_gpu_metrics_info"
    throttlers = int(call(kind, function, handle).throttlers)
    if throttlers == NO_COUNT:
        raise fault_of(function, NOT_SUPPORTED)
    return {"throttlers": (throttlers & POWER_THROTTLERS > 0, throttlers & THERMAL_THROTTLERS > 0)}


# The ways to read each metric, best first; the sensor adds those of memory and processes.
WAYS: Final[Mapping[str, tuple[Way, ...]]] = {
    # First, because the library waits in it: the others are of the sample's instant.
    "throttle": (),
    "power": (_power,),
    "utilization": (_utilization,),
    "memory": (),
    "temperature": (_temperature,),
    "sm_clock": (partial(_clock, "sm_clock_mhz", CLOCK_GFX),),
    "mem_clock": (partial(_clock, "mem_clock_mhz", CLOCK_MEMORY),),
    "power_limit": (_power_limit,),
    "ecc": (_errors,),
    "processes": (),
}
# What changes within a second.
QUICK: Final = ("power", "utilization", "sm_clock")
# Metrics that a partition has of its own, and metrics that only a whole board has.
OF_A_SLICE: Final = frozenset({"memory", "processes"})
BOARD_ONLY: Final = frozenset({"power", "utilization"})
# A counter reading that took longer than the counter's own step has no exact time.
COUNTER_READ_MAX_NS: Final = 100_000_000


class ThrottledTime:
    """Throttled seconds from the firmware's counts: the time between two readings, by the share of limited steps.

    The causes of thermal throttling overlap: the one with the most steps counts.
    """

    def __init__(self) -> None:
        self._last: tuple[int, tuple[int, ...]] | None = None
        self._power_s = 0.0
        self._thermal_s = 0.0

    def add(self, t_ns: int, counts: tuple[int, ...]) -> Values:
        """Add the counts (all steps, those limited by power, and by each thermal cause) at CLOCK_MONOTONIC t_ns."""
        before_ns, before = self._last or (t_ns, counts)
        self._last = (t_ns, counts)
        if len(before) != len(counts):
            before_ns, before = t_ns, counts
        steps, power, *thermal = (now - then for now, then in zip(counts, before, strict=True))
        # Counts fall when the driver is loaded again.
        if steps > 0 and min(power, *thermal) >= 0:
            passed_s = (t_ns - before_ns) / NS_PER_S
            self._power_s += passed_s * min(1.0, power / steps)
            self._thermal_s += passed_s * min(1.0, max(thermal) / steps)
        return {"throttle_power_s": self._power_s, "throttle_thermal_s": self._thermal_s}


class AmdSensor(Sensor):
    """One board.

    Args:
        library: The loaded library.
        handles: The devices of the library in the board's socket: one, or one for each partition.
        address: PCI address of the board.
        context: Clock, reports and settings.
        name: Name of the device.
    """

    def __init__(
        self,
        library: AmdLibrary,
        handles: Sequence[ctypes.c_void_p],
        address: str,
        context: SensorContext,
        name: str,
    ) -> None:
        super().__init__(name)
        self._library = library
        self._handles = handles
        self._address = address
        self._context = context
        self._clock = context.clock
        # The device of the library that has the metrics OF_A_SLICE, and the metrics that there are none of.
        self._own = handles[0]
        self._lacking: frozenset[str] = frozenset()
        self._reset()

    def _reset(self) -> None:
        metrics = _Metrics27 if self._library.major >= ROCM_10 else _Metrics
        ways = {
            **WAYS,
            "throttle": (_violations, partial(_throttlers, metrics)),
            "memory": (self._memory,),
            "processes": (self._pids,),
        }
        self._metrics = MetricReader(self.name, self._context.report, ways)
        self._counted = ThrottledTime()
        self._seen = ThrottleClock()
        self._lacks_energy = False
        self._mode = ""
        # Memory of the whole board, if it is divided.
        self._board_bytes: int | None = None

    def _read_call(self, kind: Any, function: str, *args: Any) -> Any:  # noqa: ANN401 - as ctypes
        self.call = function
        return self._library.read(kind, function, *args)

    def _optional(self, kind: Any, function: str, *args: Any) -> Any:  # noqa: ANN401 - as ctypes
        """What a function returns; None where the library does not support it, or not now.

        Raises:
            SensorFault: The library or the whole board is concerned.
        """
        try:
            return self._read_call(kind, function, *args)
        except SensorFault as fault:
            if fault.reaction not in PASSING:
                raise
            return None

    def discover(self) -> Device:
        """Describe the board.

        Its identity is the serial number of its chip, as ROCm names it; without one of its own, its PCI
        address.

        Raises:
            SensorFault: The board cannot be used; an error that concerns one call only counts as
                reason for quarantine here.
        """
        self._reset()
        board = self._handles[0]
        try:
            asic = self._read_call(_Asic, "amdsmi_get_gpu_asic_info", board)
            self.energy_scope: EnergyScope = "module" if asic.device_id in OF_A_MODULE else "device"
            cap = self._optional(_PowerCap, "amdsmi_get_power_cap_info", board, 0)
            most_w = cap and _watts(cap.most)
            self.bounds.max_w = BOARD_TIMES * most_w if most_w else UNKNOWN_MAX_W
            self._mode = self._partition("compute")
            if len(self._handles) > 1:
                self._board_bytes = self._memory_of_all()
            name = text_of(asic.market_name)
            if not name and (found := self._optional(_Board, "amdsmi_get_gpu_board_info", board)):
                name = text_of(found.product_name)
            model = name if name.upper().startswith(AMD) else f"{AMD}{name or 'GPU'}"
            # Without access to /dev/dri some libraries have it in decimal.
            serial = serial_of(self._file("unique_id") or text_of(asic.asic_serial))
            if self._library.addresses.setdefault(serial, self._address) != self._address:
                serial = ""
            return self._describe(model, serial)
        except SensorFault as fault:
            raise quarantining(fault) from fault

    def _describe(self, model: str, serial: str) -> Device:
        """Describe the device, on the board of this model and serial number."""
        memory_bytes = self._read("memory").get("mem_total_bytes")
        uuid = self._board_uuid(serial)
        visible = uuid if serial else self._hip_id()
        return Device(
            self.name, "gpu", uuid, model, memory_bytes, selector=SELECTOR.format(visible)
        )

    def _file(self, name: str) -> str:
        return board_file(Path(self._context.settings.sysfs_root), self._address, name)

    def _board_uuid(self, serial: str) -> str:
        return f"GPU-{serial}" if serial else "AMD-" + re.sub(r"[:.]", "-", self._address)

    def _hip_id(self) -> int:
        """The number of the device among those of ROCm, from 0; -1, which selects none, where it is unknown."""
        found = self._optional(_Enumeration, "amdsmi_get_gpu_enumeration_info", self._own)
        number = None if found is None else known(found.hip_id)
        return -1 if number is None else number

    def _partition(self, kind: str) -> str:
        """The board's partition mode of compute (SPX, DPX, QPX, CPX) or memory (NPS1, NPS4); empty for none."""
        self.call = f"amdsmi_get_gpu_{kind}_partition"
        memory = ctypes.create_string_buffer(ROOM_BYTES)
        try:
            self._library.call(self.call, self._handles[0], memory, ctypes.c_uint32(TEXT_BYTES))
        except SensorFault as fault:
            if fault.reaction not in PASSING:
                raise
            return ""
        return text_of(memory.value)

    def sample(self, *, quick: bool = False) -> Sample:
        """Read every metric that the board supports; if quick, only QUICK.

        Raises:
            SensorFault: The library or the whole board is concerned, or nothing at all is supported.
        """
        values: Values = {}
        # What is not counted needs every sample.
        is_counted = self._metrics.best("throttle") in (None, _violations)
        quick_metrics = QUICK if is_counted else ("throttle", *QUICK)
        for metric in quick_metrics if quick else WAYS:
            if metric not in self._lacking:
                values |= self._read(metric)
        if not values and not self._metrics.has_any():
            detail = "the driver supports no metric of this GPU"
            raise SensorFault(self.call, "NOT_SUPPORTED", Reaction.QUARANTINE, detail)
        t_ns = self._clock.monotonic_ns()
        if "violations" in values:
            values |= self._counted.add(t_ns, values.pop("violations"))
        if "throttlers" in values:
            values |= self._seen.add(t_ns, *values.pop("throttlers"))
        return Sample(t_ns=t_ns, is_quick=quick, **values)

    def read_energy(self) -> EnergyReading | None:
        """Read the board's energy counter, in J since some instant; it states its own step, about 15 uJ.

        Raises:
            SensorFault: The library or the whole board is concerned.
        """
        if self._lacks_energy:
            return None
        self.call = "amdsmi_get_energy_count"
        count, step_uj, at_ns = ctypes.c_uint64(), ctypes.c_float(), ctypes.c_uint64()
        places = (ctypes.byref(count), ctypes.byref(step_uj), ctypes.byref(at_ns))
        before_ns = self._clock.monotonic_ns()
        try:
            self._library.call(self.call, self._handles[0], *places)
        except SensorFault as fault:
            self._lacks_energy = self._metrics.is_absent("energy", fault)
            return None
        self._metrics.works("energy")
        after_ns = self._clock.monotonic_ns()
        # A board without a counter, and the second die of a module, have 0.
        steps = known(count.value) or 0
        energy_j = steps * step_uj.value / 1e6
        is_late = after_ns - before_ns > COUNTER_READ_MAX_NS
        if is_late or not (math.isfinite(energy_j) and energy_j > 0):
            return None
        return EnergyReading((before_ns + after_ns) // 2, energy_j)

    def read_power_w(self) -> float | None:
        """Read the power in W.

        Raises:
            SensorFault: The library or the whole board is concerned.
        """
        watts: float | None = self._read("power").get("power_w")
        return watts

    def _read(self, metric: str) -> Values:
        """Read one metric by its best supported way; empty if it is absent, temporarily or permanently."""
        handle = self._own if metric in OF_A_SLICE else self._handles[0]
        return self._metrics.read(metric, self._read_call, handle)

    def _pids(self, _: Call, handle: object) -> Values:
        """The processes of the device; of a divided board those of all its partitions."""
        self.call = "amdsmi_get_gpu_process_list"
        lists = map(self._library.pids, [handle] if self.parent else self._handles)
        pids = tuple(sorted(frozenset().union(*lists)))
        # Before ROCm 10 the list is empty where a process of another user is on it.
        is_known = pids or self._library.major >= ROCM_10 or os.geteuid() == 0
        return {"pids": pids if is_known else None}

    def _memory(self, call: Call, handle: object) -> Values:
        """The memory of the board: of a divided one its own, or the sum over its partitions."""
        own = memory_of(call, handle)
        if len(self._handles) == 1 or own["mem_total_bytes"] == self._board_bytes:
            return own
        used = [memory_of(call, part)["mem_used_bytes"] for part in self._handles]
        return {"mem_used_bytes": _sum(used), "mem_total_bytes": self._board_bytes}

    def _memory_of_all(self) -> int | None:
        """Memory of a divided board.

        The library has the board's memory for the first of its partitions, or for each
        (rsmi_dev_memory_total_get), or the partition's: the driver's own file decides.
        """
        found = self._file("mem_info_vram_total")
        if found.isdecimal() and int(found):
            return int(found)
        totals = [memory_of(self._read_call, part)["mem_total_bytes"] for part in self._handles]
        return _sum(totals) if totals[0] == totals[-1] else totals[0]

    def slices(self) -> list[Sensor]:
        """Return a sensor for each partition of this board; none for one that is not divided.

        Raises:
            SensorFault: It was divided otherwise: the library lists devices only when it is loaded.
        """
        mode = self._partition("compute")
        if mode != self._mode and mode and self._mode:
            detail = f"the compute partition mode was changed from {self._mode} to {mode}"
            raise SensorFault(self.call, "PARTITION_CHANGED", Reaction.RESTART, detail)
        if len(self._handles) == 1:
            return []
        return [
            AmdPartition(
                self._library, self._handles, self._address, self._context, self.name, number
            )
            for number in range(len(self._handles))
        ]


class AmdPartition(AmdSensor):
    """A compute partition of a board (XCP), of which all have the same share.

    It has memory and processes of its own. Power and energy are in the board's row alone, so that sums over
    rows are correct.

    Args:
        library: The loaded library.
        handles: The devices of the library, one for each partition.
        address: PCI address of the board.
        context: Clock, reports and settings.
        board: Name of the board.
        number: Number of the partition.
    """

    def __init__(
        self,
        library: AmdLibrary,
        handles: Sequence[ctypes.c_void_p],
        address: str,
        context: SensorContext,
        board: str,
        number: int,
    ) -> None:
        super().__init__(library, handles, address, context, f"{board}.xcp{number}")
        self.parent = board
        self._number = number
        self._own = handles[number]
        self._lacking = BOARD_ONLY

    def _describe(self, model: str, serial: str) -> Device:
        mode = "/".join(filter(None, (self._mode, self._partition("memory"))))
        return Device(
            self.name,
            "mig",
            f"{self._board_uuid(serial)}-xcp{self._number}",
            f"{model} XCP {mode}".strip(),
            self._read("memory").get("mem_total_bytes"),
            parent=self.parent,
            slices=1,
            slices_of=len(self._handles),
            # Partitions share the serial number.
            selector=SELECTOR.format(self._hip_id()),
        )

    def _memory(self, call: Call, handle: object) -> Values:
        """The memory of the partition; none where the library has the board's."""
        own = memory_of(call, handle)
        board_bytes = self._board_bytes
        is_own = board_bytes is None or (own["mem_total_bytes"] or 0) < board_bytes
        return own if is_own else {"mem_used_bytes": None, "mem_total_bytes": None}

    def slices(self) -> list[Sensor]:
        """Return none: a partition is not divided."""
        return []


def _sum(parts: Sequence[int | None]) -> int | None:
    """The sum of all parts; None if one is unknown."""
    known_parts = [part for part in parts if part is not None]
    return sum(known_parts) if len(known_parts) == len(parts) else None


def board_file(root: Path, address: str, name: str) -> str:
    """What the driver has in a file of a board; empty without one.

    Args:
        root: Root of the file system that holds /sys.
        address: PCI address of the board.
        name: Name of the file.
    """
    try:
        return text_of((root / "sys/bus/pci/devices" / address / name).read_bytes()[:TEXT_BYTES])
    except OSError:
        return ""


def _driver_version(root: Path) -> str:
    """The version of amdgpu; that of Linux, where it is Linux's own."""
    try:
        found = text_of((root / "sys/module/amdgpu/version").read_bytes()[:TEXT_BYTES])
    except OSError:
        found = ""
    return found or f"of Linux {os.uname().release}"


Boards = list[tuple[str, list[ctypes.c_void_p]]]


def _boards(library: AmdLibrary, root: Path) -> Boards:
    """The PCI address of each board, and its devices of the library; without integrated GPUs."""
    boards: Boards = []
    for socket in library.handles("amdsmi_get_socket_handles"):
        handles = library.handles("amdsmi_get_processor_handles", socket)
        if not handles:
            continue
        address = library.read(_Bdf, "amdsmi_get_gpu_device_bdf", handles[0]).address
        memory = board_file(root, address, "mem_info_vram_total")
        # A processor with the memory on its package, as MI300A, has 0.
        if not (memory.isdecimal() and 0 < int(memory) < LEAST_BYTES):
            boards.append((address, handles))
    return boards


def amd_sensors(context: SensorContext) -> list[Sensor]:
    """One sensor for each AMD board of the host; none where no driver is loaded and no board expected.

    Raises:
        SensorFault: The library cannot be initialized or has an unknown version, or finds no board where one
            belongs.
    """
    settings = context.settings
    if not settings.gpus:
        return []
    root = Path(settings.sysfs_root)
    evidence = ""
    if address := pci_board(root, PCI_VENDOR, PCI_CLASSES):
        evidence = f"the PCI device {address} is an AMD accelerator"
    elif any(model.startswith(AMD) for model in settings.known_models):
        evidence = "the store has an AMD GPU of this host"
    try:
        library = open_library(os.environ)
        version = version_of(library)
        boards = _boards(library, root)
    except SensorFault as fault:
        # A host without any AMD GPU may have the library.
        is_strange = fault.code in NO_DRIVER or not pci_board(root, PCI_VENDOR, (PCI_DISPLAYS,))
        if fault.call != VERSION and is_strange and not evidence:
            return []
        raise _start_fault(fault.with_reaction(Reaction.TRANSIENT), evidence) from fault
    if not boards:
        # Initialized again, it lists the devices again.
        library.call("amdsmi_shut_down")
        if evidence:
            call, words = "amdsmi_get_socket_handles", HINTS["NO_PERMISSION"]
            none = SensorFault(call, "NO_DEVICE", Reaction.TRANSIENT, words)
            raise _start_fault(none, evidence)
        return []
    context.versions.update({"AMD driver": _driver_version(root), "AMD SMI": version})
    return [
        AmdSensor(library, handles, address, context, f"amd{index}")
        for index, (address, handles) in enumerate(boards)
    ]


def _start_fault(fault: SensorFault, evidence: str) -> SensorFault:
    """The fault of an initialization with the evidence of a board."""
    detail = f"{evidence}; without one, set gpus = false in [telemetry]" if evidence else ""
    words = "; ".join(filter(None, (fault.detail, detail)))
    return SensorFault(fault.call, fault.code, fault.reaction, words)
