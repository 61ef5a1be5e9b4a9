"""The sensors of NVIDIA's GPUs, read through NVML."""

from __future__ import annotations

from costprobe.adapters.sensors.child.metric_reader import MAY_PASS
from costprobe.adapters.sensors.child.nvidia_device import NvmlDevice
from costprobe.adapters.sensors.child.nvidia_mig import MIG_BY_NUMBER, NO_MIG_DEVICE, MigSensor
from costprobe.adapters.sensors.child.nvml import NO_DRIVER, Library, nvml_setting
from costprobe.adapters.sensors.child.sensor import Report, Sensor, SensorContext
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.core.clock import Clock
from costprobe.core.records import Device


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
    context.versions.update(driver.versions)
    for unread in driver.faults:
        context.report("", unread)
    return [
        NvidiaSensor(index, library, context.clock, context.report)
        for index in range(driver.gpu_count)
    ]


class NvidiaSensor(NvmlDevice):
    """One GPU, a whole board.

    Args:
        index: NVML index of the board.
        library: The process's NVML, initialized.
        clock: Clock of the readings.
        report: Called once with each fault that does not end a sample.
    """

    def __init__(self, index: int, library: Library, clock: Clock, report: Report) -> None:
        super().__init__(f"gpu{index}", index, library, clock, report)

    def _reset(self) -> None:
        super()._reset()
        self._is_divided: bool | None = None

    def _describe(self, uuid: str) -> Device:
        model = str(self._nvml("nvmlDeviceGetName", self._handle))
        memory_bytes = self._read("memory").get("mem_total_bytes")
        mode = nvml_setting(self._nvml, "nvmlDeviceGetPersistenceMode", self._handle)
        is_persistent = None if mode is None else bool(mode)
        return Device(self.name, "gpu", uuid, model, memory_bytes, is_persistent=is_persistent)

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
            if fault.reaction in (Reaction.ABSENT, Reaction.TRANSIENT):
                return None
            raise
        return [
            MigSensor(self._index, self._library, self._clock, self._report, number)
            for number in numbers
        ]

    def _is_in_mig_mode(self) -> bool:
        """Whether the board is in MIG mode now.

        Raises:
            SensorFault: As any call of NVML.
        """
        try:
            current, _ = self._nvml("nvmlDeviceGetMigMode", self._handle)
        except SensorFault as fault:
            if fault.reaction is not Reaction.ABSENT or fault.code in MAY_PASS:
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
