"""What the sensors of NVIDIA's boards and of MIG devices have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final

from costprobe.adapters.sensors.child.metric_reader import MetricReader
from costprobe.adapters.sensors.child.nvidia_metrics import (
    FULL,
    PROCESSES,
    QUICK,
    WAYS,
    ThrottleClock,
    is_counted,
)
from costprobe.adapters.sensors.child.nvidia_power import (
    SAMPLES_OF_SCOPE,
    WHOLE_GPU,
    PowerScope,
    sample_powers,
    scopes_of,
)
from costprobe.adapters.sensors.child.nvml import Call, Library, Values, fault_of, nvml_call
from costprobe.adapters.sensors.child.nvml_processes import ListedProcesses, process_util_pct
from costprobe.adapters.sensors.child.sensor import Report, Sensor
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.adapters.sensors.protocol.sample import EnergyReading, Sample
from costprobe.core.clock import Clock, utc_ns
from costprobe.core.records import Device

# A counter reading that took longer than the counter's own step has no exact time.
COUNTER_READ_MAX_NS: Final = 100_000_000

UNINITIALIZED: Final = 1
PIDS: Final = ("compute_pids", "mps_pids")


class NvmlDevice(Sensor):
    """A device on a board that NVML finds by its index.

    Args:
        name: Name of the device.
        index: NVML index of the board.
        library: The process's NVML, initialized.
        clock: Clock of the readings.
        report: Called once with each fault that does not end a sample.
    """

    def __init__(
        self, name: str, index: int, library: Library, clock: Clock, report: Report
    ) -> None:
        super().__init__(name)
        self._index = index
        self._library = library
        self._clock = clock
        self._report = report
        self._uuid: str | None = None
        self._uninitialized = False
        self._reset()

    def _reset(self) -> None:
        self._handle: Any = None
        self._generation = self._library.generation
        self._metrics = MetricReader(self.name, self._report, WAYS, self._clock)
        self._throttle = ThrottleClock()
        self._listed = ListedProcesses()
        self._samples_seen_us = 0
        self._scopes: list[PowerScope] = [WHOLE_GPU]
        self._scopes_are_known = False
        self._support_all()

    def _support_all(self) -> None:
        """Try again what was not supported, in the first of the scopes."""
        scope = self._scopes[0]
        self.energy_scope = scope.covers
        self._metrics.support({**WAYS, "power": scope.power_ways()})
        self._counter: Callable[[Call, object], float | None] | None = scope.counter()
        self._has_process_use = True
        self._has_power_samples = True

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
            self._find_scopes()
            return self._describe(self._uuid)
        except SensorFault as fault:
            raise quarantining(fault) from fault

    def _find_scopes(self) -> None:
        try:
            self._scopes = scopes_of(self._nvml, self._handle)
            self._scopes_are_known = True
        except SensorFault as fault:
            if fault.reaction not in (Reaction.ABSENT, Reaction.TRANSIENT):
                raise
        self._support_all()

    def change_energy_scope(self) -> bool:
        """Read power and energy in the next scope, if the board has one that was not tried."""
        if not self._scopes_are_known:
            self._find_scopes()
            return self._scopes != [WHOLE_GPU]
        if len(self._scopes) == 1:
            return False
        self._scopes = self._scopes[1:]
        self._support_all()
        return True

    @abstractmethod
    def _describe(self, uuid: str) -> Device:
        """Describe the device, on the board of this UUID.

        Raises:
            SensorFault: It cannot be used.
        """

    def _check(self) -> None:
        """Check that the device is still the one that was discovered.

        Raises:
            SensorFault: It is gone, or the library or the whole GPU is concerned.
        """

    def _has(self, metric: str) -> bool:  # noqa: ARG002 - a MIG device lacks some
        """Whether the driver has a metric for devices of this kind."""
        return True

    def _handle_of(self, metric: str) -> object:  # noqa: ARG002 - a MIG device has two
        """The handle by which a metric is read."""
        return self._handle

    def sample(self, *, quick: bool = False) -> Sample:
        """Read every metric that the GPU supports.

        Args:
            quick: Only QUICK, and the throttle reasons where the driver does not count their time.

        Raises:
            SensorFault: The library or the whole GPU is concerned, or nothing at all is supported.
        """
        if not quick:
            return self._read_all(FULL, is_quick=False)
        metrics = QUICK if is_counted(self._metrics.best("throttle")) else (*QUICK, "throttle")
        return self._read_all(metrics, is_quick=True)

    def _read_all(self, metrics: Iterable[str], *, is_quick: bool) -> Sample:
        if self._generation != self._library.generation:
            # Another GPU's thread initialized the library again, which made this handle invalid.
            raise fault_of(self.call, UNINITIALIZED, "the library was initialized again")
        self._check()
        if self._clock.monotonic_ns() >= self._metrics.retry_ns:
            self._support_all()
        values: Values = {}
        for metric in metrics:
            if self._has(metric):
                values |= self._read(metric)
        if not values and not self._metrics.has_any():
            detail = "the driver supports no metric of this GPU"
            raise SensorFault(self.call, "NOT_SUPPORTED", Reaction.QUARANTINE, detail)
        t_ns = self._clock.monotonic_ns()
        if "reasons" in values:
            values.update(self._throttle.add(t_ns, values.pop("reasons")))
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
        if self._counter is None:
            return None
        before_ns = self._clock.monotonic_ns()
        try:
            energy_j = self._counter(self._nvml, self._handle)
        except SensorFault as fault:
            if self._metrics.is_absent("energy", fault):
                self._counter = None
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
        if not self._has_power_samples:
            return None
        arguments = (SAMPLES_OF_SCOPE[self._scopes[0].power_scope], self._samples_seen_us)
        try:
            kind, samples = self._nvml("nvmlDeviceGetSamples", self._handle, *arguments)
        except SensorFault as fault:
            if fault.code == "NOT_FOUND":  # none since the last one seen
                return []
            if fault.reaction is Reaction.ABSENT:
                self._metrics.retry_later(fault)
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
                self._metrics.retry_later(fault)
                self._has_process_use = False
                return None
            if fault.reaction is Reaction.TRANSIENT:
                return None
            raise
        by_pid = process_util_pct(samples)
        if not self._listed.have_all(by_pid):
            lists = [self._read(metric) for metric in PROCESSES]
            pids = {pid for values in lists for listed in values.values() for pid in listed}
            self._listed.add(self._clock.monotonic_ns(), pids)
        return self._listed.known(by_pid)

    def _read(self, metric: str) -> Values:
        """Read one metric by its best supported way; empty if it is absent, temporarily or permanently."""
        return self._metrics.read(metric, self._nvml, self._handle_of(metric))


def quarantining(fault: SensorFault) -> SensorFault:
    """Return the fault with the reaction QUARANTINE: the device cannot be used without this call."""
    if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
        return SensorFault(fault.call, fault.code, Reaction.QUARANTINE, fault.detail)
    return fault
