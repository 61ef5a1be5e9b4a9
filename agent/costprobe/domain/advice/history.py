"""The input of `savings`: the history of devices and probes, and the prices of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo

from costprobe.domain.advice.cold_starts import ColdStart
from costprobe.domain.advice.device_history import DeviceHistory
from costprobe.domain.advice.load_evidence import LoadEvidence
from costprobe.domain.advice.probe_history import ProbeHistory
from costprobe.domain.advice.service_history import ServiceHistory
from costprobe.domain.advice.supply import DevicePrice

# Plans in which an unused hour is not billed.
BY_THE_HOUR = ("on_demand", "spot", "list", "assumed")


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """The configured load of a probe's model, instead of a measured one.

    Attributes:
        probe: Name of the probe.
        per_s: Inferences per second by hour of the week, 0 = Monday 00:00.
    """

    probe: str
    per_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The measured history of a host.

    Attributes:
        devices: By name.
        probes: Probes run without variants (cold, compiled, CUDA graph).
        services: By name.
        models: Name of the probe that measures the model of a service.
        models_of_devices: Name of the probe whose model loads a device, where it is configured.
        expected: Configured loads.
        cold_starts: By probe and device.
        load_curves: Load curve of a server of a service, and its load, by the service.
        rented_together: Names of devices that can only be released together.
        prices: Prices by name of the device, the one in force first, then those on offer; a device
            without a price has none.
        grams_per_kwh: Grams of CO2-equivalent by name of the device, PUE included; where known.
        zone: Time zone of the hours of the week; None for the host's own.
    """

    devices: Mapping[str, DeviceHistory]
    probes: Sequence[ProbeHistory] = ()
    services: Mapping[str, ServiceHistory] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    models_of_devices: Mapping[str, str] = field(default_factory=dict)
    expected: Sequence[ExpectedLoad] = ()
    cold_starts: Mapping[tuple[str, str], ColdStart] = field(default_factory=dict)
    load_curves: Mapping[str, LoadEvidence] = field(default_factory=dict)
    rented_together: Sequence[tuple[str, ...]] = ()
    prices: Mapping[str, Sequence[DevicePrice]] = field(default_factory=dict)
    grams_per_kwh: Mapping[str, float] = field(default_factory=dict)
    zone: tzinfo | None = None

    def probes_on(self, device: str) -> list[str]:
        """Return the probes whose models load a device without a service."""
        if device in self.models_of_devices:
            return [self.models_of_devices[device]]
        expected = {load.probe for load in self.expected}
        names = (probe.probe for probe in self.probes if probe.device == device)
        return [name for name in names if name not in expected]
