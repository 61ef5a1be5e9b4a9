"""The contract of a sensor, which a vendor's code implements.

See docs/contributing/sensors.md for the rules in full and an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from costprobe.adapters.sensors.protocol.faults import SensorFault
from costprobe.adapters.sensors.protocol.messages import SensorSettings
from costprobe.adapters.sensors.protocol.sample import EnergyReading, Sample
from costprobe.core.clock import Clock
from costprobe.core.records import Device, EnergyScope

# Reports a fault of a named device that does not end its sample.
Report = Callable[[str, SensorFault], None]


class Sensor(ABC):
    """Reads one device: `discover`, then `sample` and `read_energy` for as long as they work.

    Each sensor is called from one thread of its own. Any method may block in a driver, which a
    watchdog limits, and may raise `SensorFault`, whose `reaction` determines what the caller does. After a
    fault that ends sampling, `discover` is called again.

    Attributes:
        name: Identifies the device on this host; opaque to all other code. A slice's name is its
            board's name, a dot and the name of the slice.
        call: The driver's function or the file that was accessed last, for the report of a hang.
        parent: Name of the board that a slice is a part of; empty for any other device.
        energy_scope: What its power and energy cover, both the same.
        is_fallback: The device is sampled only until another is found.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.call = ""
        self.parent = ""
        self.energy_scope: EnergyScope = "device"
        self.is_fallback = False

    @abstractmethod
    def discover(self) -> Device:
        """Find the device and describe it; discard the capabilities of an earlier one of this name.

        Raises:
            SensorFault: The device cannot be used now.
        """

    @abstractmethod
    def sample(self, *, quick: bool = False) -> Sample:
        """Read every metric that the device supports; an unsupported one is None.

        Args:
            quick: Only what changes within a second is needed; a sensor may read everything, and
                sets `Sample.is_quick` where it does not.

        Raises:
            SensorFault: The whole device is concerned.
        """

    @abstractmethod
    def read_energy(self) -> EnergyReading | None:
        """Read the device's running total of energy; None where there is none, or not now.

        The difference of two readings is the energy between two instants.

        Raises:
            SensorFault: The whole device is concerned.
        """

    def slices(self) -> Sequence[Sensor] | None:
        """Return the sensors of the slices that the board is divided into now; None if unknown."""
        return ()

    def change_energy_scope(self) -> bool:
        """Read power and energy in another scope, as they disagree in this one; False for none."""
        return False

    def read_power_w(self) -> float | None:
        """Read the power alone in W, averaged by the driver where it does that."""
        return None

    def read_power_samples(self) -> list[tuple[int, float]] | None:
        """Return the power that the driver buffered since the last call; None if it buffers none.

        Returns:
            (CLOCK_MONOTONIC ns, W), oldest first.
        """
        return None

    def util_by_pid_pct(self, since_ns: int) -> dict[int, float] | None:  # noqa: ARG002 - the contract's
        """Return each process's share of the time since a CLOCK_MONOTONIC ns, in percent.

        None where the driver does not report it.
        """
        return None


@dataclass(frozen=True, slots=True)
class SensorContext:
    """The arguments of a sensor factory.

    Attributes:
        settings: The configured settings.
        clock: The host's clocks.
        report: Reports a fault that does not end a sample.
        found: Sensors of the factories before this one.
        versions: A factory adds the versions of its driver, by name.
        is_complete: False while another driver fails, so that its devices are unknown.
    """

    settings: SensorSettings
    clock: Clock
    report: Report
    found: Sequence[Sensor] = ()
    versions: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True


# Returns one sensor for each device of a vendor, without accessing the devices themselves; raises a
# SensorFault where the driver fails. Without a sensor it is called again from time to time.
SensorFactory = Callable[[SensorContext], Sequence[Sensor]]
SensorTable = Mapping[str, SensorFactory]
