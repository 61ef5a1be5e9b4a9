"""The sensors of one NVIDIA GPU, or of a MIG device that is a part of it, read through NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from agent.clock import Clock, utc_ns
from agent.model import Device, EnergyScope
from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.gpu_metrics import (
    BOARD_ONLY,
    METRICS,
    OF_A_PART,
    QUICK,
    TOTAL_POWER_SAMPLES,
    ThrottleClock,
    Values,
    is_counted,
    sample_powers,
    ways_of_a_device,
)
from agent.telemetry.gpu_reader import Calls, GpuReader, gpu_reader
from agent.telemetry.nvml import Library, fault_of, nvml_call
from agent.telemetry.sample import CounterMethod, CounterReading, Noted, Sample

# A transient error is told when it has lasted for this many samples.
TELL_TRANSIENT_AFTER: Final = 3
# The reading of a counter that took longer than the counter's own step is worth less than it says.
COUNTER_READ_MAX_NS: Final = 100_000_000

UNINITIALIZED: Final = 1
NOT_FOUND: Final = 6
PART_BY_NUMBER: Final = "nvmlDeviceGetMigDeviceHandleByIndex"

Tell = Callable[[SensorFault], None]


def part_name(board: str, number: int) -> str:
    """The name of a MIG device on this host."""
    return f"{board}.mig{number}"


def _with_pids(values: Values) -> Values:
    """Both sets of processes as one."""
    pids = [values.pop(key) for key in ("compute_pids", "mps_pids") if key in values]
    if pids:
        values["pids"] = tuple(sorted(set().union(*pids)))
    return values


class GpuSensor:
    """One GPU; see `agent.telemetry.sample.Sensor` for the contract.

    A MIG device has a memory and processes of its own. Clock, heat and energy are its board's, for
    NVML tells no others; power and energy stand in the board's row of the series alone, so that
    sums over the rows hold.

    Args:
        index: NVML index of the board.
        library: The process's NVML, initialized.
        clock: Gives the time of each reading.
        tell: Is given the faults that do not end a sample, once each.
        number: Number of the MIG device on the board; None for the board itself.
    """

    idle_below_pct = 0.0

    def __init__(
        self, index: int, library: Library, clock: Clock, tell: Tell, number: int | None = None
    ) -> None:
        self.name = f"gpu{index}" if number is None else part_name(f"gpu{index}", number)
        self.call = ""
        self.counter_method: CounterMethod | None = "counter"
        self.energy_scope: EnergyScope = "device" if number is None else "parent"
        self._index = index
        self._number = number
        self._library = library
        self._clock = clock
        self._tell = tell
        self._uuid: str | None = None
        self._uninitialized = False
        self._forget()

    def _forget(self) -> None:
        self._handle: Any = None
        self._part: Any = None
        self._part_uuid = ""
        self._generation = self._library.generation
        self._ways = ways_of_a_device()
        self._reader: GpuReader | None = None
        self._failing: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._throttle = ThrottleClock()
        self._tells_who_is_busy = True
        self._buffers_samples = True
        self._samples_seen_us = 0

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
            return self._found()
        except SensorFault as fault:
            if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
                raise SensorFault(
                    fault.call, fault.code, Reaction.QUARANTINE, fault.detail
                ) from fault
            raise

    def _found(self) -> Device:
        """The device behind the handle of the board."""
        uuid = str(self._uuid)
        if self._number is None:
            model = str(self._nvml("nvmlDeviceGetName", self._handle))
            memory_bytes = self._read("memory").get("mem_total_bytes")
            return Device(self.name, "gpu", uuid, model, self._index, memory_bytes)
        self._part = self._nvml(PART_BY_NUMBER, self._handle, self._number)
        self._part_uuid = str(self._nvml("nvmlDeviceGetUUID", self._part))
        return Device(
            self.name,
            "mig",
            self._part_uuid,
            str(self._nvml("nvmlDeviceGetName", self._part)),
            self._index,
            self._read("memory").get("mem_total_bytes"),
            parent=f"gpu{self._index}",
            slices=int(self._nvml("nvmlDeviceGetAttributes_v2", self._part).gpuInstanceSliceCount),
            slices_of=int(self._nvml("nvmlDeviceGetMaxMigDeviceCount", self._handle)),
        )

    def parts(self) -> list[int]:
        """Numbers of the MIG devices on this board; empty on one that is not divided.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if self._number is not None:
            return []
        try:
            current, _ = self._nvml("nvmlDeviceGetMigMode", self._handle)
            if not current:
                return []
            count = int(self._nvml("nvmlDeviceGetMaxMigDeviceCount", self._handle))
            return [number for number in range(count) if self._has_part(number)]
        except SensorFault as fault:
            if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
                return []
            raise

    def _has_part(self, number: int) -> bool:
        try:
            self._nvml(PART_BY_NUMBER, self._handle, number)
        except SensorFault as fault:
            if fault.reaction is Reaction.ABSENT:
                return False
            raise
        return True

    def sample(self) -> Sample:
        """Reads every metric that the GPU supports.

        Raises:
            SensorFault: The library or the whole GPU is concerned, or nothing at all is supported.
        """
        reader = self._reader
        if reader is not None and not self._failing.keys() & METRICS.keys():
            reader.begin()
            if self._all_work(reader.quick) and self._all_work(reader.rest):
                quick = reader.noted(self._clock.monotonic_ns()).sample()
                if quick.is_averaged:
                    return quick._replace(**_with_pids(reader.rest_values()), is_quick=False)
        # What is wrong is found out one by one.
        sample = self._sampled(METRICS)
        is_usual = sample.is_averaged and self._failing.keys().isdisjoint(QUICK)
        self._reader = gpu_reader(self._ways, self._handle) if is_usual else None
        return sample

    def quick_sample(self) -> Sample | Noted:
        """Reads what changes within a second, and the limiters where the driver does not count.

        Raises:
            SensorFault: The library or the whole GPU is concerned, or nothing at all is supported.
        """
        reader = self._reader
        if reader is not None and self._all_work(reader.quick):
            return reader.noted(self._clock.monotonic_ns())
        # Until the next whole sample that works.
        self._reader = None
        metrics = QUICK if is_counted(self._ways["throttle"]) else (*QUICK, "throttle")
        return self._sampled(metrics, is_quick=True)

    def _all_work(self, calls: Calls) -> bool:
        """Calls the library's own functions, up to one that fails."""
        if self._generation != self._library.generation:
            return False
        for name, call, arguments in calls:
            self.call = name
            if call(*arguments):
                return False
        return True

    def _sampled(self, metrics: Iterable[str], *, is_quick: bool = False) -> Sample:
        if self._generation != self._library.generation:
            # Another GPU's thread initialized the library again: this handle is of the old one.
            raise fault_of(self.call, UNINITIALIZED, "the library was initialized again")
        self._look_for_itself()
        values: Values = {}
        for metric in metrics:
            if self._number is None or metric not in BOARD_ONLY:
                values |= self._read(metric)
        if not values and not any(self._ways.values()):
            detail = "the driver answers nothing about this GPU"
            raise SensorFault(self.call, "NOT_SUPPORTED", Reaction.QUARANTINE, detail)
        t_ns = self._clock.monotonic_ns()
        if "reasons" in values:
            values.update(self._throttle.add(t_ns, values.pop("reasons")))
        return Sample(t_ns=t_ns, is_quick=is_quick, **_with_pids(values))

    def _look_for_itself(self) -> None:
        """A MIG device that was destroyed is gone, and one in its place is another.

        Raises:
            SensorFault: It is gone, or the library or the whole GPU is concerned.
        """
        if self._number is None:
            return
        try:
            part = self._nvml(PART_BY_NUMBER, self._handle, self._number)
            if str(self._nvml("nvmlDeviceGetUUID", part)) != self._part_uuid:
                raise fault_of(self.call, NOT_FOUND, "another MIG device took its place")
        except SensorFault as fault:
            if fault.reaction is Reaction.ABSENT:
                raise SensorFault(
                    fault.call, fault.code, Reaction.QUARANTINE, fault.detail
                ) from fault
            if fault.reaction is not Reaction.TRANSIENT:
                raise

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
        """Reads the power in W: the driver's average of the last second where there is one.

        The sensor behind the power of the moment looks 25 of 100 ms on some boards (Yang et al.,
        "Part-time Power Measurements", 2023), and misses what happens in between.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        watts: float | None = self._read("power").get("power_w")
        return watts

    def read_samples(self) -> list[tuple[int, float]] | None:
        """Reads the driver's buffer of past power.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if not self._buffers_samples:
            return None
        arguments = (TOTAL_POWER_SAMPLES, self._samples_seen_us)
        try:
            kind, samples = self._nvml("nvmlDeviceGetSamples", self._handle, *arguments)
        except SensorFault as fault:
            if fault.code == "NOT_FOUND":  # none since the last one seen
                return []
            if fault.reaction is Reaction.ABSENT:
                self._buffers_samples = False
                return None
            if fault.reaction is Reaction.TRANSIENT:
                return []
            raise
        offset_ns = self._clock.time_ns() - self._clock.monotonic_ns()
        powers = sample_powers(kind, samples, self._samples_seen_us)
        if powers:
            self._samples_seen_us = powers[-1][0]
        return [(time_us * 1000 - offset_ns, watts) for time_us, watts in powers]

    def busy_pids(self, since_ns: int) -> frozenset[int] | None:
        """Processes that kept the multiprocessors busy, by the driver's own samples.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        found = self.util_by_pid_pct(since_ns)
        return None if found is None else frozenset(pid for pid, pct in found.items() if pct > 0)

    def util_by_pid_pct(self, since_ns: int) -> dict[int, float] | None:
        """How busy each process kept the multiprocessors, by the driver's own samples.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if not self._tells_who_is_busy:
            return None
        since_us = utc_ns(self._clock, since_ns) // 1000
        try:
            samples = self._nvml("nvmlDeviceGetProcessUtilization", self._handle, since_us)
        except SensorFault as fault:
            if fault.code == "NOT_FOUND":  # no sample since then: nobody was
                return {}
            if fault.reaction is Reaction.ABSENT:
                self._tells_who_is_busy = False
                return None
            if fault.reaction is Reaction.TRANSIENT:
                return None
            raise
        found: dict[int, list[float]] = {}
        for sample in samples:
            # Some drivers give figures beyond all of the time.
            found.setdefault(int(sample.pid), []).append(min(100.0, float(sample.smUtil)))
        return {pid: sum(values) / len(values) for pid, values in found.items()}

    def _read(self, metric: str) -> Values:
        """One metric by the best way left; empty where it is absent, now or for ever."""
        ways = self._ways[metric]
        handle = self._part if self._part is not None and metric in OF_A_PART else self._handle
        while ways:
            try:
                values = ways[0](self._nvml, handle)
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
