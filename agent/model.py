"""The nouns of infercost: what was read, measured, priced and noticed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

FieldValue = float | int | str | bool
DeviceKind = Literal["gpu", "mig", "cpu"]
EnergyMethod = Literal["counter", "samples", "poll", "rapl", "modelled", "last_known"]
EnergyScope = Literal["device", "parent"]
Severity = Literal["info", "warning", "critical"]
EventKind = Literal["drift", "anomaly", "price", "software", "fault", "budget"]

NS_PER_S = 1_000_000_000
# The key of a board's identity beside the versions of what runs on it.
BOARD = "board"


@dataclass(frozen=True, slots=True)
class Point:
    """One row of a series; its identity is (measurement, tags, time_ns).

    Attributes:
        measurement: Name of the series family, see `agent.series.SCHEMA`.
        tags: Tag names to values; an empty value is an absent tag.
        fields: Field names (units as suffixes) to values; never NaN or infinite.
        time_ns: UTC in ns since 1970.
    """

    measurement: str
    tags: Mapping[str, str]
    fields: Mapping[str, FieldValue]
    time_ns: int


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs inferences and costs money.

    Attributes:
        name: Short name on this host: `gpu0`, `gpu0.mig1`, `cpu`.
        kind: What it is.
        uuid: The vendor's lasting identity; for a CPU the host's machine id or "cpu".
        model: The vendor's name of the product.
        index: The NVML index of the board; None for a CPU.
        memory_bytes: Memory of the device in bytes; None where unknown.
        parent: Name of the board that a MIG device is a part of; empty for any other.
        slices: Compute slices of the board that a MIG device holds.
        slices_of: Compute slices that the board has.
    """

    name: str
    kind: DeviceKind
    uuid: str
    model: str
    index: int | None = None
    memory_bytes: int | None = None
    parent: str = ""
    slices: int = 0
    slices_of: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """Telemetry of one device, aggregated over an interval by the sensor child.

    Attributes:
        device: Name of the device.
        start_ns: CLOCK_MONOTONIC ns of the first sample.
        end_ns: CLOCK_MONOTONIC ns of the last sample.
        fields: Fields of the `device` series; a metric the device lacks is absent.
        busy_by_pid_s: Seconds in which each process kept the device busy; None where nobody asked
            or the driver does not tell.
    """

    device: str
    start_ns: int
    end_ns: int
    fields: Mapping[str, FieldValue]
    busy_by_pid_s: Mapping[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a device between two instants, with its method and what it is worth.

    Attributes:
        energy_j: Joules drawn by the whole device in the region.
        method: How it was found, in order of trust: counter, samples, poll, rapl, modelled.
        rel_err: Relative uncertainty (about 95 %), as a share of energy_j.
        idle_power_w: Learnt power of the idle device; None until learnt.
        scope: "parent" where it is the whole board's, of which the device is a part.
        suspect: Whether the device's sensors contradict each other; None until they were compared.
    """

    energy_j: float
    method: EnergyMethod
    rel_err: float
    idle_power_w: float | None = None
    scope: EnergyScope = "device"
    suspect: bool | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one run of a probe measured.

    Attributes:
        probe: Name of the probe.
        device: Name of the device it ran on.
        batch: Items per forward pass.
        latency_ms: Statistics per batch: p50, mean, cv, and p90 and p99 where supported.
        samples: Number of timed forward passes.
        stop_reason: Why sampling ended.
        region_start_ns: CLOCK_MONOTONIC ns at which the steady-state region began.
        region_end_ns: CLOCK_MONOTONIC ns at which it ended.
        inferences: Items inferred in the region (passes times batch), or requests answered, of
            which a part may lie outside.
        has_energy_window: True if the region was long enough (5 s) for an energy figure.
        h2d_ms: Host-to-device copy of one batch in ms; None where there is none.
        launch_overhead_pct: Wall time over device time minus one, in percent; None on a CPU.
        busy_s: Device seconds that the whole run took, warm-up and search included.
        fingerprint: Hash of the software and model that were measured.
        software: What the fingerprint was made of.
        threads: Intra-op threads on a CPU; None on a GPU.
        inference_s: Seconds of the region that went into inferences, where not all of it did.
        latency_rel_err: Relative standard error of median and mean, the larger one; None if unknown.
        outliers: Timed passes far from the others; they are in all statistics.
        wall_ms: Mean wall time of a pass in ms beside its device time; None on a CPU.
        tags: Further tags of its rows: how a pass was run.
        fields: Further fields of its row of `probe`.
        tokens_in: Input tokens in the region; None where nothing says.
        tokens_out: Output tokens in the region; None where there are none.
    """

    probe: str
    device: str
    batch: int
    latency_ms: Mapping[str, float]
    samples: int
    stop_reason: str
    region_start_ns: int
    region_end_ns: int
    inferences: float
    has_energy_window: bool
    h2d_ms: float | None
    launch_overhead_pct: float | None
    busy_s: float
    fingerprint: str
    software: Mapping[str, str]
    threads: int | None = None
    inference_s: float | None = None
    latency_rel_err: float | None = None
    outliers: int | None = None
    wall_ms: float | None = None
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fields: Mapping[str, FieldValue | None] = field(default_factory=lambda: MappingProxyType({}))
    tokens_in: float | None = None
    tokens_out: float | None = None

    @property
    def region_s(self) -> float:
        """Length of the steady-state region in seconds."""
        return (self.region_end_ns - self.region_start_ns) / NS_PER_S

    @property
    def inferring_s(self) -> float:
        """Seconds that went into the region's inferences: all of it unless it says otherwise."""
        return self.region_s if self.inference_s is None else self.inference_s

    @property
    def throughput_per_s(self) -> float:
        """Inferences per second in the steady-state region."""
        return self.inferences / self.inferring_s


@dataclass(frozen=True, slots=True)
class CostSample:
    """Money for one inference, split by where it goes; all in one currency.

    Attributes:
        currency: ISO 4217 code.
        plan: Kind of the price plan that was in force.
        hardware: Currency per inference for holding the device.
        energy: Currency per inference for electricity that the plan leaves out.
        reference: The same sample priced at the baseline's plan.
        is_stale: Whether the price is a spot price older than it may be.
    """

    currency: str
    plan: str
    hardware: float
    energy: float
    reference: float
    is_stale: bool = False

    @property
    def per_inference(self) -> float:
        """Currency per inference, all in."""
        return self.hardware + self.energy


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened and that an operator may want to know.

    Attributes:
        kind: What sort of thing.
        severity: How bad.
        title: One line.
        time_ns: UTC in ns since 1970.
        detail: What to know and what to do.
        device: Name of the device it concerns; empty for the host.
        subject: Tags (`probe`, `service`, `budget`) and their values, where it concerns one.
        before: Value before, where there is one.
        after: Value after, where there is one.
        cause: Named cause, where one is known.
        metric: What drifted or stood out: cost, latency, energy or throughput; of a budget its
            condition.
        change_pct: By how much it changed, in percent of what it was before.
        level_pct: Where it stands now against its first baseline, in percent; near 0 is a return.
        since_ns: UTC in ns at which the change began, which is before it was certain.
    """

    kind: EventKind
    severity: Severity
    title: str
    time_ns: int
    detail: str = ""
    device: str = ""
    subject: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    before: str = ""
    after: str = ""
    cause: str = ""
    metric: str = ""
    change_pct: float | None = None
    level_pct: float | None = None
    since_ns: int | None = None


def present(fields: Mapping[str, FieldValue | None]) -> dict[str, FieldValue]:
    """The fields that have a value a database can hold: absent is absent, never 0."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
