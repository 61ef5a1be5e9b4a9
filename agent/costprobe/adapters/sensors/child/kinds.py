"""The table of sensors: a vendor is one file and one line here."""

from __future__ import annotations

from typing import Final

from costprobe.adapters.sensors.child.amd import amd_sensors
from costprobe.adapters.sensors.child.cpu import cpu_sensors
from costprobe.adapters.sensors.child.nvidia import nvidia_sensors
from costprobe.adapters.sensors.child.sensor import SensorTable

# In order: the CPUs follow the accelerators, and are by default sampled only without them.
SENSORS: Final[SensorTable] = {
    "nvidia": nvidia_sensors,
    "amd": amd_sensors,
    "cpu": cpu_sensors,
}
