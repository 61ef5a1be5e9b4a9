"""The records of costprobe: points, devices, readings, events, instances.

The kinds of device are one table with every difference between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args

DeviceKind = Literal["gpu", "mig", "cpu"]
# Name of the host's processors as a device.
HOST_DEVICE: Final = "cpu"
# Separator between the names of devices that are measured and priced as a group.
TOGETHER: Final = "+"
_NUMBER: Final = re.compile(r"([0-9]+)")
_NUMBERED: Final = re.compile(r"(.*?)(\d+)")
# More names than this are counted instead.
MAX_NAMES: Final = 4
FieldValue = float | int | str | bool
EnergyMethod = Literal["counter", "samples", "poll", "rapl", "modelled", "last_known"]
EnergyScope = Literal["device", "parent", "module"]
Severity = Literal["info", "warning", "critical"]
EventKind = Literal["drift", "anomaly", "price", "software", "fault", "budget", "annotation"]
NS_PER_S = 1_000_000_000
# The last instant in 64 bits.
END_OF_TIME_NS = 2**63 - 1
# Cause of the event that a device does not exist any more.
REMOVED = "removed"
# Key of a board's identity, beside software versions.
BOARD = "board"
# And of its batch, which is no software either.
BATCH = "batch"
# Tags of a row of `software`, and the fact of the fingerprint that each contains.
SOFTWARE_TAGS: Final[Mapping[str, str]] = {
    "driver": "driver",
    "torch": "torch",
    "cuda": "cuda",
    "dtype": "dtype",
    "weights_hash": "weights",
}
Market = Literal["on_demand", "spot", ""]


@dataclass(frozen=True, slots=True)
class KindTraits:
    """Properties of a kind of device.

    Attributes:
        is_slice: Whether it is a part of a board (its parent): the board's power, energy and price
            include it.
        is_host: Whether it is the host's CPUs: a host price applies to it only if there is no
            accelerator, and torch calls it "cpu".
        idle_sample_pct: Utilization in percent up to which a sample counts as idle. It is 0 on an idle
            GPU, but never on a host.
        idle_hour_pct: Mean utilization in percent below which an hour counts as idle.
        busy_share: Share of time above which other processes on the device defer a probe.
    """

    is_slice: bool = False
    is_host: bool = False
    idle_sample_pct: float = 0.0
    idle_hour_pct: float = 1.0
    busy_share: float = 0.1


DEVICE_KINDS: Final[Mapping[DeviceKind, KindTraits]] = MappingProxyType(
    {
        "gpu": KindTraits(),
        "mig": KindTraits(is_slice=True),
        "cpu": KindTraits(is_host=True, idle_sample_pct=5.0, idle_hour_pct=5.0, busy_share=0.5),
    }
)


def parse_kind(text: str) -> DeviceKind | None:
    """Return the kind of device from a tag; None if the text is not a kind."""
    return next((kind for kind in get_args(DeviceKind) if kind == text), None)


def is_slice_kind(text: str) -> bool:
    """Return whether a tag `kind` is that of a part of a board."""
    kind = parse_kind(text)
    return kind is not None and DEVICE_KINDS[kind].is_slice


def devices_text(names: Iterable[str]) -> str:
    """Return the names of devices: "gpu0", "gpu0 and gpu3", "gpu0 to gpu7", "6 devices"."""
    ordered = sorted(set(names), key=natural)
    if len(ordered) > 2 and _is_run(ordered):  # noqa: PLR2004 - a pair is listed
        return f"{ordered[0]} to {ordered[-1]}"
    if len(ordered) > MAX_NAMES:
        return f"{len(ordered)} devices"
    return listed(ordered) if ordered else ""


def listed(names: Sequence[str]) -> str:
    """Return names as text: "a, b and c", "a and 7 more"."""
    if len(names) > MAX_NAMES:
        return f"{names[0]} and {len(names) - 1} more"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _is_run(names: Sequence[str]) -> bool:
    first = _NUMBERED.fullmatch(names[0])
    return first is not None and all(
        name == f"{first[1]}{int(first[2]) + index}" for index, name in enumerate(names)
    )


def natural(*names: str) -> tuple[Any, ...]:
    """Return a key that sorts names for people: gpu2 before gpu10, by the first name first."""
    return tuple((_parts(name), name) for name in names)


def _parts(name: str) -> list[str | tuple[int, str]]:
    # Texts and numbers take turns, beginning with a text.
    parts = _NUMBER.split(name)
    return [_size(part) if index % 2 else part for index, part in enumerate(parts)]


def _size(digits: str) -> tuple[int, str]:
    # The longer number is the larger one; `int` refuses very long ones.
    significant = digits.lstrip("0")
    return len(significant), significant


class OutboxRow(NamedTuple):
    """One row.

    Attributes:
        seq: Sequence number in the order of commits.
        line: Line protocol without a line end; the time is in ns.
    """

    seq: int
    line: str


class RowBatch(NamedTuple):
    """Rows that are sent in one request.

    Attributes:
        after: Sequence number before the first row.
        seq: Sequence number of the last row.
        points: Number of rows.
        lines: Line protocol, one row a line.
    """

    after: int
    seq: int
    points: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class Point:
    """One row of a series; its identity is (measurement, tags, time_ns).

    Attributes:
        measurement: Name of the series family, see `costprobe.core.schema.SCHEMA`.
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
    """A device that runs inferences and has a price.

    Attributes:
        name: Identifies the device on this host; chosen by its sensor, and opaque to all other code.
        kind: Kind of device; `DEVICE_KINDS` has the differences.
        uuid: Persistent identity by the vendor; for a CPU the host's machine id or "cpu".
        model: Product name by the vendor.
        memory_bytes: Memory of the device in bytes; None where unknown.
        parent: Name of the board that a slice is a part of; empty for any other device.
        slices: Compute slices of the board that belong to a slice.
        slices_of: Compute slices that the board has.
        gpu_instance: Number of a MIG device's GPU instance on its board; None where unknown.
        is_persistent: Whether the driver keeps a board initialized while no process uses it; None
            where unknown. A setting that may change: it does not distinguish devices.
        is_exclusive: Whether the driver admits one process at a time (compute mode exclusive process);
            such a setting, too.
        selector: The variables by which a probe's process has this device alone, each as "NAME=VALUE" with a
            space between them; empty where CUDA_VISIBLE_DEVICES and the UUID select it. A number in it
            may change.
    """

    name: str
    kind: DeviceKind
    uuid: str
    model: str
    memory_bytes: int | None = None
    parent: str = ""
    slices: int = 0
    slices_of: int = 0
    gpu_instance: int | None = None
    is_persistent: bool | None = field(default=None, compare=False)
    is_exclusive: bool = field(default=False, compare=False)
    selector: str = field(default="", compare=False)

    @property
    def is_slice(self) -> bool:
        """Whether the device is a part of a board."""
        return DEVICE_KINDS[self.kind].is_slice

    @property
    def is_host(self) -> bool:
        """Whether the device is the host's CPUs."""
        return DEVICE_KINDS[self.kind].is_host

    @property
    def is_board(self) -> bool:
        """Whether the device is a whole accelerator."""
        return not (self.is_slice or self.is_host)


@dataclass(frozen=True, slots=True)
class Reading:
    """Telemetry of one device, aggregated over an interval by the sensor child.

    Attributes:
        device: Name of the device.
        start_ns: CLOCK_MONOTONIC ns of the first sample.
        end_ns: CLOCK_MONOTONIC ns of the last sample.
        fields: Fields of the `device` series; a metric the device lacks is absent.
        busy_by_pid_s: Seconds in which each process kept the device busy; None if it was not
            requested or the driver does not report it.
    """

    device: str
    start_ns: int
    end_ns: int
    fields: Mapping[str, FieldValue]
    busy_by_pid_s: Mapping[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a device between two instants, with its method and uncertainty.

    Attributes:
        energy_j: Joules drawn by what `scope` covers.
        method: Method, in order of accuracy: counter, samples, poll, rapl, modelled.
        rel_err: Relative uncertainty (about 95 %), as a share of energy_j.
        idle_power_w: Learned idle power of the device; None until it is learned.
        scope: "parent" where it is the whole board's, of which the device is a part; "module"
            where it is that of a GPU with the CPU and the memory on its module.
        suspect: Whether the sensors of the device disagree, or an impossible reading was discarded;
            None until they were compared.
    """

    energy_j: float
    method: EnergyMethod
    rel_err: float
    idle_power_w: float | None = None
    scope: EnergyScope = "device"
    suspect: bool | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the host, for operators.

    Attributes:
        kind: Kind of event.
        severity: Severity.
        title: One line.
        time_ns: UTC in ns since 1970.
        detail: Explanation and recommended action.
        device: Name of the device it concerns; empty for the host.
        subject: Tags (`probe`, `service`, `budget`) of what it concerns.
        before: Value before, where there is one.
        after: Value after, where there is one.
        cause: Named cause, where one is known.
        metric: The metric that drifted or was an outlier: cost, latency, energy or throughput; of a budget its
            condition.
        change_pct: Relative change in percent; of a drift all of it since `since_ns`.
        level_pct: Current level relative to that before the drift, in percent; near 0 after a reversal.
        since_ns: Start of the change, UTC in ns; earlier than its detection.
        cost_per_month: Worth of the change in a month of 730 h, in `currency`, a change of price included: of
            a service the change of what is spent, of a probe `unit_costs.change.capacity_worth`.
        currency: ISO 4217 code of it.
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
    cost_per_month: float | None = None
    currency: str = ""

    @property
    def text(self) -> str:
        """Title and detail in one line."""
        return f"{self.title}; {self.detail}" if self.detail else self.title


def present(fields: Mapping[str, FieldValue | None]) -> dict[str, FieldValue]:
    """Return the fields with a value that a database can store; an absent value is not 0."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


# Names of clouds as they write them; any other is shown as in the catalogue.
_CLOUDS = {
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
    "oci": "Oracle Cloud",
    "lambda": "Lambda",
    "coreweave": "CoreWeave",
    "digitalocean": "DigitalOcean",
    "gpuhub": "GPUHub",
    "hetzner": "Hetzner",
    "jarvislabs": "JarvisLabs",
    "ovhcloud": "OVHcloud",
    "runpod": "RunPod",
    "runpod-community": "RunPod's community",
    "verda": "Verda",
    "vultr": "Vultr",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """A rented host.

    Attributes:
        cloud: As in the catalogue: "aws".
        type: The cloud's name of the instance type; empty if unknown.
        region: The cloud's name of the region; empty if unknown.
        market: How it is rented, as far as the cloud reports it: a reservation is "on_demand".
    """

    cloud: str
    type: str = ""
    region: str = ""
    market: Market = ""

    @property
    def is_complete(self) -> bool:
        """Whether type and region are known."""
        return bool(self.type and self.region)

    @property
    def words(self) -> str:
        """The instance for people: "p5.48xlarge in us-east-1"."""
        where = f" in {self.region}" if self.region else ", region unknown"
        return f"{self.type}{where}" if self.type else f"a host of {cloud_words(self.cloud)}"


def cloud_words(cloud: str) -> str:
    """Return the name of a cloud as it writes it."""
    return _CLOUDS.get(cloud, cloud)
