"""Sensors of Acme accelerators, read from their driver's files."""

from pathlib import Path

from costprobe.adapters.sensors.child.sensor import Sensor, SensorContext
from costprobe.adapters.sensors.messages import EnergyReading, Sample
from costprobe.core.clock import Clock
from costprobe.core.records import Device


def acme_sensors(context: SensorContext) -> list[Sensor]:
    """One sensor for each card; none where the driver is not loaded."""
    if not context.settings.gpus:
        return []
    cards = sorted((Path(context.settings.sysfs_root) / "sys/class/acme").glob("card*"))
    return [AcmeSensor(card, context.clock) for card in cards]


class AcmeSensor(Sensor):
    """One card.

    Args:
        folder: The driver's files of the card.
        clock: Gives the time of each reading.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(f"acme{folder.name.removeprefix('card')}")
        self._folder = folder
        self._clock = clock

    def discover(self) -> Device:
        """Describe the card.

        Raises:
            OSError: The card is gone.
        """
        return Device(self.name, "gpu", self._read("serial"), self._read("model"))

    def sample(self, *, quick: bool = False) -> Sample:
        """Read power and utilization; two files are read quickly.

        Raises:
            OSError: The card is gone.
        """
        power_w = int(self._read("power_uw")) / 1e6
        busy_pct = float(self._read("busy_percent"))
        return Sample(self._clock.monotonic_ns(), power_w, power_w, busy_pct)

    def read_energy(self) -> EnergyReading:
        """Read the card's energy counter in J since the driver was loaded.

        Raises:
            OSError: The card is gone.
        """
        energy_j = int(self._read("energy_uj")) / 1e6
        return EnergyReading(self._clock.monotonic_ns(), energy_j)

    def _read(self, name: str) -> str:
        self.call = str(self._folder / name)
        return (self._folder / name).read_text().strip()
