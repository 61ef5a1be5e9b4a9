"""The input of `savings`: history of devices and probes, prices, load curves of services.

A load curve of a service's server comes with what is known of the service's load in production.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Literal

from costprobe.core.hours import DeviceHistory
from costprobe.probing.load_curve import LoadCurve
from costprobe.savings.history import ColdStart, ProbeHistory, ServiceHistory
from costprobe.savings.supply import DevicePrice
from costprobe.serving.tokens import LengthMix

# Plans in which an unused hour is not billed.
BY_THE_HOUR = ("on_demand", "spot", "list", "assumed")


@dataclass(frozen=True, slots=True)
class LoadEvidence:
    """A load curve of a service's server, and the requests of the service.

    Attributes:
        curve: The newest curve.
        replicas: Servers that share the load.
        mix: Mean lengths of the requests of the last seven days; None if unknown.
        models: Models that served requests in these days.
        fingerprint_then: That of the probe's run before the curve; None without one.
        fingerprint_now: That of the probe's newest run; None without one.
        kv_cache_shares: Share of the KV cache in use in the windows of these days, ascending.
        requests_waiting: Requests that waited in these windows, of all servers, ascending.
    """

    curve: LoadCurve
    replicas: int
    mix: LengthMix | None
    models: int = 1
    fingerprint_then: str | None = None
    fingerprint_now: str | None = None
    kv_cache_shares: Sequence[float] = ()
    requests_waiting: Sequence[float] = ()

    @property
    def software(self) -> Literal["unchanged", "changed", "unknown"]:
        """Whether server, model or prompt of the probe changed since the curve."""
        now = self.fingerprint_now
        if now is None:
            return "unknown"
        return "unchanged" if now in {self.curve.fingerprint, self.fingerprint_then} else "changed"

    @property
    def unit(self) -> Literal["tokens_out", "requests"]:
        """The unit of the curve's throughput."""
        return "tokens_out" if self.curve.fastest["tokens_out_per_s"] else "requests"

    @property
    def mix_change(self) -> tuple[float, float] | None:
        """Mean lengths in production relative to those of the curve, as shares; None if unknown.

        (0.1, -0.2) are prompts that are 10 % longer, and answers that are 20 % shorter.
        """
        point = self.curve.fastest
        tokens_in, tokens_out = point["tokens_in"], point["tokens_out"]
        if self.mix is None or not tokens_in or not tokens_out:
            return None
        return self.mix.tokens_in / tokens_in - 1, self.mix.tokens_out / tokens_out - 1


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

    def part_of(self, service: str) -> str:
        """Return what a service is of one of several hosts; empty if it answers requests alone."""
        found = self.services.get(service)
        return found.part if found else ""

    def probes_on(self, device: str) -> list[str]:
        """Return the probes whose models load a device without a service."""
        if device in self.models_of_devices:
            return [self.models_of_devices[device]]
        expected = {load.probe for load in self.expected}
        names = (probe.probe for probe in self.probes if probe.device == device)
        return [name for name in names if name not in expected]
