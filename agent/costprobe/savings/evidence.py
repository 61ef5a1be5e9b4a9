"""The input of `savings`: history of devices and probes, prices, load curves of services.

A load curve of a service's server comes with what is known of the service's load in production.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Literal

from costprobe.core.hours import MINUTE_NS, MINUTES, DeviceHistory
from costprobe.core.periods import HOUR_NS, HOURS_A_WEEK, WEEK_NS
from costprobe.core.records import NS_PER_S
from costprobe.core.statistics import quantile
from costprobe.core.units import HOUR_S
from costprobe.probing.load_curve import LoadCurve, LoadPoint
from costprobe.savings.history import WHOLE_MINUTE_S, ColdStart, ProbeHistory, ServiceHistory
from costprobe.savings.supply import DevicePrice
from costprobe.serving.tokens import LengthMix

_MINUTE_S = 60.0
# Warm-ups and waits between the windows of a curve take at most as long as the windows, as a rule.
_CURVE_LASTS_WINDOWS = 2

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
class WeekOfLoad:
    """The work of a service in the minutes of the last seven days, in units per second.

    Attributes:
        per_s: Of each known minute, ascending.
    """

    per_s: tuple[float, ...] = field(repr=False)

    @property
    def mean_per_s(self) -> float:
        """The mean."""
        return math.fsum(self.per_s) / len(self.per_s) if self.per_s else 0.0

    @property
    def known_h(self) -> float:
        """Hours of known minutes."""
        return len(self.per_s) * _MINUTE_S / HOUR_S

    @property
    def coverage(self) -> float:
        """Share of the seven days that is known."""
        return self.known_h / HOURS_A_WEEK

    def at(self, share: float) -> float:
        """Return a quantile; that of 0.99 is exceeded in 1 % of the minutes."""
        return quantile(self.per_s, share)


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


def week_of_load(service: ServiceHistory, evidence: LoadEvidence, now_ns: int) -> WeekOfLoad:
    """Return the work of a service in the last seven days, without the minutes of its load curve.

    Args:
        service: Its history.
        evidence: Its curve.
        now_ns: UTC ns.
    """
    curve = evidence.curve
    windows_s = math.fsum(point["window_s"] or 0.0 for point in curve.points)
    began_ns = curve.time_ns - int(_CURVE_LASTS_WINDOWS * windows_s * NS_PER_S)
    row_ns = int(service.row_s * NS_PER_S)
    loaded = (began_ns - row_ns, curve.time_ns + row_ns)
    found = (
        per_s
        for start_ns, per_s in _minutes(service, evidence.unit, now_ns - WEEK_NS)
        if not loaded[0] < start_ns < loaded[1]
    )
    return WeekOfLoad(tuple(sorted(found)))


def _minutes(service: ServiceHistory, unit: str, since_ns: int) -> Iterator[tuple[int, float]]:
    for number, hour in service.hours.items():
        if (number + 1) * HOUR_NS <= since_ns:
            continue
        counts = hour.counts[unit]
        for minute in range(MINUTES):
            start_ns = number * HOUR_NS + minute * MINUTE_NS
            if start_ns >= since_ns and hour.covered_s[minute] >= WHOLE_MINUTE_S:
                yield start_ns, counts[minute] / _MINUTE_S


def capacity_points(curve: LoadCurve) -> list[LoadPoint]:
    """Return the points up to the highest load that a server carries, in the order of their load.

    Requests of independent users arrive at random, so that the open loop is used where the curve has
    one. The points end before the first one that does not meet the service level, or whose queue grew.
    """
    for loop in ("open", "closed"):
        points: list[LoadPoint] = []
        of_loop = sorted(
            (point for point in curve.points if point.loop == loop),
            key=lambda point: (point.concurrency or 0, point["offered_per_s"] or 0.0),
        )
        for point in of_loop:
            met = point.meets(curve.bounds_ms)
            end = curve.ends.get(point.loop) if point is of_loop[-1] else None
            if met is False or end == "errors" or (loop == "open" and end == "saturated"):
                break
            if met:
                points.append(point)
        if points:
            return sorted(points, key=lambda point: point.work_per_s)
    return []
