"""The sensors of NVIDIA GPUs and of their MIG devices, read through NVML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from costprobe.adapters.sensors.child.nvidia_metrics import (
    BOARD_ONLY,
    METRICS,
    OF_A_SLICE,
    QUICK,
    TOTAL_POWER_SAMPLES,
    ThrottleClock,
    Values,
    is_counted,
    sample_powers,
    ways_of_a_device,
)
from costprobe.adapters.sensors.child.nvml import NO_DRIVER, Library, fault_of, nvml_call
from costprobe.adapters.sensors.child.sensor import Report, Sensor, SensorContext
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.adapters.sensors.protocol.sample import EnergyReading, Sample
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.records import Device

# A transient error is reported once it has lasted for this many samples.
REPORT_TRANSIENT_AFTER: Final = 3
# A counter reading that took longer than the counter's own step has no exact time.
COUNTER_READ_MAX_NS: Final = 100_000_000

UNINITIALIZED: Final = 1
NOT_FOUND: Final = 6
MIG_BY_NUMBER: Final = "nvmlDeviceGetMigDeviceHandleByIndex"


def nvidia_sensors(context: SensorContext) -> list[Sensor]:
    """One sensor for each NVIDIA GPU of the host; none where no driver is loaded.

    Raises:
        SensorFault: NVML cannot be initialized.
    """
    if not context.settings.gpus:
        return []
    library = Library()
    try:
        driver = library.open()
    except SensorFault as fault:
        if fault.code in NO_DRIVER:
            return []
        raise
    context.versions["driver_version"] = driver.driver_version
    context.versions["nvml_version"] = driver.nvml_version
    return [
        NvidiaSensor(index, library, context.clock, context.report)
        for index in range(driver.gpu_count)
    ]


def _with_pids(values: Values) -> Values:
    """Replace both sets of processes by their union."""
    pids = [values.pop(key) for key in ("compute_pids", "mps_pids") if key in values]
    if pids:
        values["pids"] = tuple(sorted(set().union(*pids)))
    return values


class NvidiaSensor(Sensor):
    """One GPU, or a MIG device on it.

    A MIG device has memory and processes of its own. NVML has clock, temperature, power and energy
    of the whole board only; power and energy are in the board's row alone, so that sums over rows
    are correct.

    Args:
        index: NVML index of the board.
        library: The process's NVML, initialized.
        clock: Gives the time of each reading.
        report: Is called with each fault that does not end a sample, once.
        number: Number of the MIG device on the board; None for the board itself.
    """

    def __init__(
        self, index: int, library: Library, clock: Clock, report: Report, number: int | None = None
    ) -> None:
        super().__init__(f"gpu{index}" if number is None else f"gpu{index}.mig{number}")
        self._index = index
        self._number = number
        self._library = library
        self._clock = clock
        self._report = report
        self._uuid: str | None = None
        self._uninitialized = False
        self._reset()

    def _reset(self) -> None:
        self._handle: Any = None
        self._mig_handle: Any = None
        self._mig_uuid = ""
        self._generation = self._library.generation
        self._ways = ways_of_a_device()
        self._failing: dict[str, int] = {}
        self._reported: set[tuple[str, str]] = set()
        self._throttle = ThrottleClock()
        self._has_counter = True
        self._has_process_use = True
        self._has_power_samples = True
        self._samples_seen_us = 0

    def _nvml(self, function: str, *args: Any) -> Any:  # noqa: ANN401 - pynvml has no types
        self.call = function
        try:
            return nvml_call(function, *args)
        except SensorFault as fault:
            self._uninitialized |= fault.reaction is Reaction.REINIT
            raise

    def discover(self) -> Device:
        """Find the GPU; by its UUID once that is known, because indices move when a GPU is lost.

        Initializes the library again first where a call reported that it is not initialized.

        Raises:
            SensorFault: The GPU cannot be used; an error that concerns one call only counts as
                reason for quarantine here.
        """
        if self._uninitialized:
            self._library.reopen(self._generation)
            self._uninitialized = False
        self._reset()
        try:
            if self._uuid is None:
                self._handle = self._nvml("nvmlDeviceGetHandleByIndex", self._index)
                self._uuid = str(self._nvml("nvmlDeviceGetUUID", self._handle))
            else:
                self._handle = self._nvml("nvmlDeviceGetHandleByUUID", self._uuid)
            return self._describe(self._uuid)
        except SensorFault as fault:
            raise _quarantining(fault) from fault

    def _describe(self, uuid: str) -> Device:
        if self._number is None:
            model = str(self._nvml("nvmlDeviceGetName", self._handle))
            memory_bytes = self._read("memory").get("mem_total_bytes")
            return Device(self.name, "gpu", uuid, model, memory_bytes)
        self._mig_handle = self._nvml(MIG_BY_NUMBER, self._handle, self._number)
        self._mig_uuid = str(self._nvml("nvmlDeviceGetUUID", self._mig_handle))
        attributes = self._nvml("nvmlDeviceGetAttributes_v2", self._mig_handle)
        return Device(
            self.name,
            "mig",
            self._mig_uuid,
            str(self._nvml("nvmlDeviceGetName", self._mig_handle)),
            self._read("memory").get("mem_total_bytes"),
            parent=f"gpu{self._index}",
            # Those of its GPU instance are shared by all compute instances on it.
            slices=int(attributes.computeInstanceSliceCount),
            slices_of=int(self._nvml("nvmlDeviceGetMaxMigDeviceCount", self._handle)),
        )

    def slices(self) -> list[Sensor]:
        """Return a sensor for each MIG device on this board; none on a board without MIG.

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
            numbers = [number for number in range(count) if self._has_mig_device(number)]
        except SensorFault as fault:
            if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
                return []
            raise
        return [
            NvidiaSensor(self._index, self._library, self._clock, self._report, number)
            for number in numbers
        ]

    def _has_mig_device(self, number: int) -> bool:
        try:
            self._nvml(MIG_BY_NUMBER, self._handle, number)
        except SensorFault as fault:
            if fault.reaction is Reaction.ABSENT:
                return False
            raise
        return True

    def sample(self, *, quick: bool = False) -> Sample:
        """Read every metric that the GPU supports.

        Args:
            quick: Only QUICK, and the throttle reasons where the driver does not count their time.

        Raises:
            SensorFault: The library or the whole GPU is concerned, or nothing at all is supported.
        """
        if not quick:
            return self._read_all(METRICS)
        metrics = QUICK if is_counted(self._ways["throttle"]) else (*QUICK, "throttle")
        return self._read_all(metrics)._replace(is_quick=True)

    def _read_all(self, metrics: Iterable[str]) -> Sample:
        if self._generation != self._library.generation:
            # Another GPU's thread initialized the library again, which made this handle invalid.
            raise fault_of(self.call, UNINITIALIZED, "the library was initialized again")
        self._check_mig_device()
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
        return Sample(t_ns=t_ns, **_with_pids(values))

    def _check_mig_device(self) -> None:
        """Check that the MIG device still exists: another one may have taken its number.

        Raises:
            SensorFault: It is gone, or the library or the whole GPU is concerned.
        """
        if self._number is None:
            return
        try:
            handle = self._nvml(MIG_BY_NUMBER, self._handle, self._number)
            if str(self._nvml("nvmlDeviceGetUUID", handle)) != self._mig_uuid:
                raise fault_of(self.call, NOT_FOUND, "another MIG device took its place")
        except SensorFault as fault:
            if fault.reaction is not Reaction.TRANSIENT:
                raise _quarantining(fault) from fault

    def read_energy(self) -> EnergyReading | None:
        """Read the energy counter (Volta and later), in J since the driver was loaded.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if not self._has_counter:
            return None
        before_ns = self._clock.monotonic_ns()
        try:
            millijoules = self._nvml("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        except SensorFault as fault:
            if fault.reaction is Reaction.ABSENT:
                self._has_counter = False
                self._report_denied("energy", fault)
                return None
            if fault.reaction is Reaction.TRANSIENT:
                self._count_transient("energy", fault)
                return None
            raise
        self._failing.pop("energy", None)
        after_ns = self._clock.monotonic_ns()
        if after_ns - before_ns > COUNTER_READ_MAX_NS:
            return None
        return EnergyReading((before_ns + after_ns) // 2, millijoules / 1000)

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
        if not self._has_power_samples:
            return None
        arguments = (TOTAL_POWER_SAMPLES, self._samples_seen_us)
        try:
            kind, samples = self._nvml("nvmlDeviceGetSamples", self._handle, *arguments)
        except SensorFault as fault:
            if fault.code == "NOT_FOUND":  # none since the last one seen
                return []
            if fault.reaction is Reaction.ABSENT:
                self._has_power_samples = False
                return None
            if fault.reaction is Reaction.TRANSIENT:
                return []
            raise
        offset_ns = self._clock.time_ns() - self._clock.monotonic_ns()
        powers = sample_powers(kind, samples, self._samples_seen_us)
        if powers:
            self._samples_seen_us = powers[-1][0]
        return [(time_us * 1000 - offset_ns, watts) for time_us, watts in powers]

    def util_by_pid_pct(self, since_ns: int) -> dict[int, float] | None:
        """Return how busy each process kept the multiprocessors, by the driver's own samples.

        Raises:
            SensorFault: The library or the whole GPU is concerned.
        """
        if not self._has_process_use:
            return None
        since_us = utc_ns(self._clock, since_ns) // 1000
        try:
            samples = self._nvml("nvmlDeviceGetProcessUtilization", self._handle, since_us)
        except SensorFault as fault:
            if fault.code == "NOT_FOUND":  # no sample since then: no process was busy
                return {}
            if fault.reaction is Reaction.ABSENT:
                self._has_process_use = False
                return None
            if fault.reaction is Reaction.TRANSIENT:
                return None
            raise
        found: dict[int, list[float]] = {}
        for sample in samples:
            # Some drivers report more than 100 %.
            found.setdefault(int(sample.pid), []).append(min(100.0, float(sample.smUtil)))
        return {pid: sum(values) / len(values) for pid, values in found.items()}

    def _read(self, metric: str) -> Values:
        """Read one metric by the best way left; empty where it is absent, now or permanently."""
        ways = self._ways[metric]
        is_own = self._mig_handle is not None and metric in OF_A_SLICE
        handle = self._mig_handle if is_own else self._handle
        while ways:
            try:
                values = ways[0](self._nvml, handle)
            except SensorFault as fault:
                if fault.reaction is Reaction.ABSENT:
                    ways.pop(0)
                    self._report_denied(metric, fault)
                    continue
                if fault.reaction is Reaction.TRANSIENT:
                    self._count_transient(metric, fault)
                    return {}
                raise
            self._failing.pop(metric, None)
            return values
        return {}

    def _report_denied(self, metric: str, fault: SensorFault) -> None:
        """Report an absent metric only where an operator can change that."""
        if fault.detail and fault.code in ("NO_PERMISSION", "CORRUPTED_INFOROM"):
            self._report_once(metric, fault)

    def _count_transient(self, metric: str, fault: SensorFault) -> None:
        self._failing[metric] = self._failing.get(metric, 0) + 1
        if self._failing[metric] == REPORT_TRANSIENT_AFTER:
            self._report_once(metric, fault)

    def _report_once(self, metric: str, fault: SensorFault) -> None:
        if (metric, fault.code) not in self._reported:
            self._reported.add((metric, fault.code))
            self._report(self.name, fault)


def _quarantining(fault: SensorFault) -> SensorFault:
    """The fault of a device that cannot be used without what failed."""
    if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
        return SensorFault(fault.call, fault.code, Reaction.QUARANTINE, fault.detail)
    return fault
