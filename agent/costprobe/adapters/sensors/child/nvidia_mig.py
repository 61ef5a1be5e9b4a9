"""The sensor of a MIG device: a compute instance on a board in MIG mode."""

from __future__ import annotations

from typing import Any, Final

from costprobe.adapters.sensors.child.nvidia_device import NvmlDevice, quarantining
from costprobe.adapters.sensors.child.nvidia_metrics import BOARD_ONLY, OF_A_SLICE
from costprobe.adapters.sensors.child.nvml import Library, nvml_setting
from costprobe.adapters.sensors.child.sensor import Report
from costprobe.adapters.sensors.protocol.faults import Reaction, SensorFault
from costprobe.core.clock import Clock
from costprobe.core.records import Device

MIG_BY_NUMBER: Final = "nvmlDeviceGetMigDeviceHandleByIndex"
# What MIG_BY_NUMBER returns where there is no such MIG device, or no MIG mode any more.
NO_MIG_DEVICE: Final = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "NOT_SUPPORTED"})


class MigSensor(NvmlDevice):
    """A MIG device.

    It has memory and processes of its own. NVML has clock, temperature, power and energy of the
    whole board only; power and energy are in the board's row alone, so that sums over rows are
    correct.

    Args:
        index: NVML index of the board.
        library: The process's NVML, initialized.
        clock: Clock of the readings.
        report: Called once with each fault that does not end a sample.
        number: Number of the MIG device on the board.
    """

    def __init__(
        self, index: int, library: Library, clock: Clock, report: Report, number: int
    ) -> None:
        super().__init__(f"gpu{index}.mig{number}", index, library, clock, report)
        self.parent = f"gpu{index}"
        self._number = number
        self._mig_handle: Any = None
        self._mig_uuid = ""

    def _describe(self, uuid: str) -> Device:  # noqa: ARG002 - that is the board's
        self._mig_handle = self._mig_device()
        self._mig_uuid = str(self._nvml("nvmlDeviceGetUUID", self._mig_handle))
        try:
            return self._described()
        except SensorFault as fault:
            if fault.code in NO_MIG_DEVICE:
                # Destroyed since its handle was read, or a call that the driver does not support.
                self._check()
            raise

    def _described(self) -> Device:
        attributes = self._nvml("nvmlDeviceGetAttributes_v2", self._mig_handle)
        return Device(
            self.name,
            "mig",
            self._mig_uuid,
            str(self._nvml("nvmlDeviceGetName", self._mig_handle)),
            self._read("memory").get("mem_total_bytes"),
            parent=self.parent,
            # Those of its GPU instance are shared by all compute instances on it.
            slices=int(attributes.computeInstanceSliceCount),
            slices_of=int(self._nvml("nvmlDeviceGetMaxMigDeviceCount", self._handle)),
            gpu_instance=nvml_setting(self._nvml, "nvmlDeviceGetGpuInstanceId", self._mig_handle),
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
            uuid = str(self._nvml("nvmlDeviceGetUUID", self._mig_device()))
        except SensorFault as fault:
            if fault.reaction is Reaction.TRANSIENT:
                return
            if fault.code in NO_MIG_DEVICE:
                raise _gone(fault.call, fault.code) from fault
            raise quarantining(fault) from fault
        if uuid != self._mig_uuid:
            raise _gone(self.call, "NOT_FOUND")

    def _has(self, metric: str) -> bool:
        return metric not in BOARD_ONLY

    def _handle_of(self, metric: str) -> object:
        return self._mig_handle if metric in OF_A_SLICE else self._handle


def _gone(call: str, code: str) -> SensorFault:
    return SensorFault(call, code, Reaction.GONE, "the MIG device was destroyed")
