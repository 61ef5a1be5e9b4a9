"""The contract of a sensor, which a vendor's code implements, and the reading of its metrics.

See docs/contributing/kinds.md for the rules in full. Each metric is read by the
best way that the driver supports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from costprobe.adapters.sensors.child.bounds import Bounds
from costprobe.adapters.sensors.messages import (
    EnergyReading,
    Reaction,
    Sample,
    SensorFault,
    SensorSettings,
)
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S, Device, EnergyScope

# Fields of a sample; a call of a driver's library; and a way to read a metric, by a call and a handle.
Values = dict[str, Any]
Call = Callable[..., Any]
Way = Callable[[Call, object], Values]

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
        bounds: What its readings can be. The caller of each method discards those beyond; a sensor
            sets the highest power, and may ask before it chooses a way to read a metric.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.call = ""
        self.parent = ""
        self.energy_scope: EnergyScope = "device"
        self.is_fallback = False
        self.bounds = Bounds()

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


# How the models of AMD's boards begin; NVIDIA's driver names its boards in many ways.
AMD: Final = "AMD "
# Drivers that hold a board for a virtual machine or a screen: the vendor's own must not see it.
OTHER_DRIVERS: Final = frozenset({"vfio-pci", "nouveau"})


def pci_board(root: Path, vendor: str, classes: tuple[str, ...]) -> str:
    """Return the PCI address of a board that its vendor's driver should find; empty if there is none.

    Args:
        root: Root of the file system that holds /sys.
        vendor: PCI vendor, as "0x10de".
        classes: Beginnings of the PCI classes of its boards.
    """
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            maker, class_ = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        driver = (device / "driver").resolve().name
        if maker == vendor and class_.startswith(classes) and driver not in OTHER_DRIVERS:
            return device.name
    return ""


class ThrottleClock:
    """Throttled seconds, summed from the present state where the driver does not count them.

    A state that is seen at a sample counts from the sample before, for at most two seconds, so
    that a pause in sampling is not counted as throttling.
    """

    _MAX_STEP_S = 2.0

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._power_s = 0.0
        self._thermal_s = 0.0

    def add(self, t_ns: int, by_power: bool, by_temperature: bool) -> Values:  # noqa: FBT001 - a state
        """Add the state at an instant; return the fields of seconds so far."""
        since_ns = t_ns if self._last_ns is None else self._last_ns
        step_s = min(self._MAX_STEP_S, (t_ns - since_ns) / NS_PER_S)
        self._last_ns = t_ns
        self._power_s += step_s * by_power
        self._thermal_s += step_s * by_temperature
        return {"throttle_power_s": self._power_s, "throttle_thermal_s": self._thermal_s}


# The reactions to a fault of one call, not of the whole device.
PASSING: Final = (Reaction.ABSENT, Reaction.TRANSIENT)


def quarantining(fault: SensorFault) -> SensorFault:
    """Return the fault with the reaction QUARANTINE: the device cannot be used without this call."""
    if fault.reaction in PASSING:
        return fault.with_reaction(Reaction.QUARANTINE)
    return fault


# A transient error is reported once it has lasted for this many samples.
REPORT_TRANSIENT_AFTER: Final = 3
# Reasons for a missing value that an operator can remove.
TO_FIX: Final = ("NO_PERMISSION", "CORRUPTED_INFOROM")
NEVER_NS: Final = 2**63 - 1


class MetricReader:
    """The ways to read each metric that one device has left, and its faults reported so far.

    A way that is not supported is not tried again; a metric with no way left is absent.

    Args:
        device: Name of the device.
        report: Called once with each fault that does not end a sample.
        ways: The ways to read each metric, best first.
    """

    def __init__(self, device: str, report: Report, ways: Mapping[str, Sequence[Way]]) -> None:
        self._device = device
        self._report = report
        self._failing: dict[str, int] = {}
        self._reported: set[tuple[str, str]] = set()
        self.support(ways)

    def support(self, ways: Mapping[str, Sequence[Way]]) -> None:
        """Try all of these ways from now on."""
        self._ways = {metric: list(supported) for metric, supported in ways.items()}

    def has_any(self) -> bool:
        """Whether the device has a way left to read anything."""
        return any(self._ways.values())

    def best(self, metric: str) -> Way | None:
        """The way by which a metric is read; None where it is absent."""
        ways = self._ways[metric]
        return ways[0] if ways else None

    def leave(self, metric: str, way: Way) -> None:
        """Do not read a metric in this way any more."""
        if way in self._ways[metric]:
            self._ways[metric].remove(way)

    def read(self, metric: str, call: Call, handle: object) -> Values:
        """Read one metric by the first way that works; empty where it is absent.

        An unexpected error costs this metric alone, as one that may pass.

        Raises:
            SensorFault: The library or the whole device is concerned.
        """
        ways = self._ways[metric]
        for way in tuple(ways):
            try:
                values = way(call, handle)
            except SensorFault as fault:
                if not self.is_absent(metric, fault):
                    break
                ways.remove(way)
            except Exception as error:  # noqa: BLE001 - text and structures from a driver
                detail = f"{type(error).__name__}: {error}"
                self.is_absent(metric, SensorFault(metric, "FAILED", Reaction.TRANSIENT, detail))
            else:
                self.works(metric)
                return values
        return {}

    def is_absent(self, metric: str, fault: SensorFault) -> bool:
        """Whether a fault means that a metric is absent; otherwise it passes.

        Raises:
            SensorFault: The fault, if the library or the whole device is concerned.
        """
        if fault.reaction is Reaction.ABSENT:
            if fault.detail and fault.code in TO_FIX:
                self.report_once(metric, fault)
            return True
        if fault.reaction is not Reaction.TRANSIENT:
            raise fault
        self._failing[metric] = self._failing.get(metric, 0) + 1
        if self._failing[metric] == REPORT_TRANSIENT_AFTER:
            self.report_once(metric, fault)
        return False

    def works(self, metric: str) -> None:
        """Note that a metric was read."""
        self._failing.pop(metric, None)

    def report_once(self, metric: str, fault: SensorFault) -> None:
        """Report a fault of a metric, unless its code was reported before."""
        if (metric, fault.code) not in self._reported:
            self._reported.add((metric, fault.code))
            self._report(self._device, fault)
