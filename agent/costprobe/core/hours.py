"""The load of a device by the hour, from rows of its telemetry or as it is stored with an hour row.

The rows are aggregated without keeping them.
"""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from costprobe.core.columns import RowEnd, as_number, row_spans
from costprobe.core.periods import HOUR_NS, HOURS_A_WEEK
from costprobe.core.records import DEVICE_KINDS, NS_PER_S, TOGETHER, Device, FieldValue

MINUTE_NS = 60 * NS_PER_S
MINUTES = 60
# Telemetry this close to the end of a probe's steady-state window belongs to the probe: it loads
# the model, warms up and measures before the end, and exits its process after it.
PROBE_BEFORE_NS = 60 * NS_PER_S
PROBE_AFTER_NS = 15 * NS_PER_S
# An hour with telemetry for fewer minutes counts as a gap.
LEAST_MINUTES = 30
_PCT = 100
_NO_MINUTES = array("f", [0.0] * MINUTES)
# Of each row of a device: those of `Interval`, in its order; the most memory is that of an hour row.
LOAD_FIELDS: Final = ("util_pct", "power_w", "mem_used_bytes", "mem_used_bytes_max")
# Rows this far outside a span define where the rows at its edges begin, and hold their rest.
EDGE_NS: Final = 600 * NS_PER_S
# Bits of minutes, four sums, most memory (NaN if unknown), seconds of each minute.
_PACKED: Final = struct.Struct(f"<Q5d{MINUTES}f")
PACKED_BYTES: Final = _PACKED.size
Row = tuple[RowEnd, Sequence[float | None]]


class Interval(NamedTuple):
    """Telemetry of a device between two instants; an unknown value is None.

    Attributes:
        start_ns: UTC ns.
        end_ns: UTC ns.
        util_pct: Mean utilization in percent.
        power_w: Mean power.
        mem_used_bytes_max: Most memory in use.
    """

    start_ns: int
    end_ns: int
    util_pct: float | None = None
    power_w: float | None = None
    mem_used_bytes_max: float | None = None


@dataclass(slots=True)
class Hour:
    """An hour of a device.

    Attributes:
        minutes: One bit for each minute with telemetry.
        util_pct_s: Utilization in percent times seconds, without intervals with a probe.
        util_s: Seconds of these intervals.
        energy_j: Power times seconds, without intervals with a probe.
        power_s: Seconds of these intervals.
        busy_s_by_minute: Seconds in which it was busy in each minute.
    """

    minutes: int = 0
    util_pct_s: float = 0.0
    util_s: float = 0.0
    energy_j: float = 0.0
    power_s: float = 0.0
    busy_s_by_minute: array[float] = field(default_factory=lambda: _NO_MINUTES[:])

    def add_busy(self, start_ns: int, length_ns: int, util_pct: float) -> None:
        """Add the utilization of a part of the hour.

        Args:
            start_ns: Start of the part in ns since the start of the hour.
            length_ns: Its length in ns; it ends within the hour.
            util_pct: Its mean utilization in percent.
        """
        self.util_pct_s += util_pct * length_ns / NS_PER_S
        self.util_s += length_ns / NS_PER_S
        end_ns = start_ns + length_ns
        per_ns = util_pct / _PCT / NS_PER_S
        by_minute = self.busy_s_by_minute
        first, last = start_ns // MINUTE_NS, (end_ns - 1) // MINUTE_NS
        if first < last:
            by_minute[first] += per_ns * ((first + 1) * MINUTE_NS - start_ns)
            add_evenly(by_minute, first + 1, last, per_ns * MINUTE_NS)
            start_ns = last * MINUTE_NS
        by_minute[last] += per_ns * (end_ns - start_ns)

    def merge(self, other: Hour) -> None:
        """Add the telemetry of another part of the same hour."""
        self.minutes |= other.minutes
        self.util_pct_s += other.util_pct_s
        self.util_s += other.util_s
        self.energy_j += other.energy_j
        self.power_s += other.power_s
        for minute, busy_s in enumerate(other.busy_s_by_minute):
            self.busy_s_by_minute[minute] += busy_s

    @property
    def is_known(self) -> bool:
        """Whether the hour's coverage is sufficient."""
        return self.minutes.bit_count() >= LEAST_MINUTES

    @property
    def util_pct(self) -> float | None:
        """Mean utilization in percent; None if unknown."""
        return self.util_pct_s / self.util_s if self.is_known and self.util_s else None


def add_evenly(by_minute: array[float], first: int, end: int, amount: float) -> None:
    """Add the same amount to some minutes of an hour, the last one excluded."""
    if any(by_minute[first:end]):
        for minute in range(first, end):
            by_minute[minute] += amount
    elif first < end:
        by_minute[first:end] = array(by_minute.typecode, [amount]) * (end - first)


@dataclass(slots=True)
class DeviceHistory:
    """The history of a device.

    Attributes:
        device: The device.
        now_ns: UTC ns at which the history ends.
        probe_ends_ns: UTC ns at which probes on the device ended, ascending.
        hours: By hour number since 1970, UTC.
        mem_used_bytes_max: Peak memory in use, without probes; None if unknown.
        mem_total_bytes: Memory of the device; None if unknown.
    """

    device: Device
    now_ns: int
    probe_ends_ns: Sequence[int] = ()
    hours: dict[int, Hour] = field(default_factory=dict)
    mem_used_bytes_max: float | None = None
    mem_total_bytes: float | None = None

    @property
    def name(self) -> str:
        """Name of the device."""
        return self.device.name

    def add(self, interval: Interval, within: tuple[int, int] | None = None) -> None:
        """Add telemetry; an interval with a probe counts only as coverage.

        Args:
            interval: The telemetry.
            within: Span in UTC ns; what lies outside is left out. None for all of it.
        """
        has_probe = self._has_probe(interval)
        since_ns, end_ns = interval.start_ns, interval.end_ns
        if within is not None:
            since_ns, end_ns = max(since_ns, within[0]), min(end_ns, within[1])
            if since_ns >= end_ns:
                return
        while since_ns < end_ns:
            number, within_ns = divmod(since_ns, HOUR_NS)
            until_ns = min(end_ns, (number + 1) * HOUR_NS)
            hour = self.hours.get(number)
            if hour is None:
                hour = self.hours[number] = Hour()
            last = (within_ns + until_ns - since_ns - 1) // MINUTE_NS
            hour.minutes |= (1 << (last + 1)) - (1 << within_ns // MINUTE_NS)
            length_s = (until_ns - since_ns) / NS_PER_S
            if interval.util_pct is not None and not has_probe:
                hour.add_busy(within_ns, until_ns - since_ns, interval.util_pct)
            if interval.power_w is not None and not has_probe:
                hour.energy_j += interval.power_w * length_s
                hour.power_s += length_s
            since_ns = until_ns
        if not has_probe:
            self._use_memory(interval.mem_used_bytes_max)

    def add_hour(self, number: int, hour: Hour, mem_used_bytes_max: float | None) -> None:
        """Add an hour of one of the series of the device.

        Args:
            number: Its number since 1970, UTC.
            hour: The hour.
            mem_used_bytes_max: Peak memory in use in it, without probes; None if unknown.
        """
        before = self.hours.get(number)
        if before is None:
            if hour.minutes:
                self.hours[number] = hour
        else:
            before.merge(hour)
        self._use_memory(mem_used_bytes_max)

    def _use_memory(self, used_bytes: float | None) -> None:
        if used_bytes is not None:
            self.mem_used_bytes_max = max(used_bytes, self.mem_used_bytes_max or 0.0)

    def _has_probe(self, interval: Interval) -> bool:
        """Whether a probe ran in the interval; in a rolled-up hour a probe's share is negligible."""
        if interval.end_ns - interval.start_ns >= HOUR_NS // 2:
            return False
        index = bisect_right(self.probe_ends_ns, interval.start_ns - PROBE_AFTER_NS)
        ends_ns = self.probe_ends_ns[index] if index < len(self.probe_ends_ns) else None
        return ends_ns is not None and ends_ns < interval.end_ns + PROBE_BEFORE_NS

    @property
    def known_hours(self) -> dict[int, Hour]:
        """The hours with sufficient coverage."""
        return {number: hour for number, hour in self.hours.items() if hour.is_known}

    @property
    def span_hours(self) -> int:
        """Full hours from the first with coverage until now."""
        first = min(self.known_hours, default=None)
        return 0 if first is None else max(1, self.now_ns // HOUR_NS - first)

    @property
    def idle_w(self) -> float | None:
        """Mean power in the idle hours; None if there are none, or power is unknown."""
        idle_pct = DEVICE_KINDS[self.device.kind].idle_hour_pct
        hours = [
            hour
            for hour in self.known_hours.values()
            if hour.power_s and hour.util_pct is not None and hour.util_pct < idle_pct
        ]
        power_s = sum(hour.power_s for hour in hours)
        return sum(hour.energy_j for hour in hours) / power_s if power_s else None

    @property
    def mean_power_w(self) -> float | None:
        """Mean power of the last seven days; None if unknown."""
        newest = max(self.hours, default=0)
        hours = [hour for number, hour in self.hours.items() if number > newest - HOURS_A_WEEK]
        power_s = sum(hour.power_s for hour in hours)
        return sum(hour.energy_j for hour in hours) / power_s if power_s else None


def is_on(names: str, device: str) -> bool:
    """Return whether a probe of these devices runs on a device, or on a slice of it."""
    return any(name == device or name.partition(".")[0] == device for name in names.split(TOGETHER))


def add_rows(
    history: DeviceHistory, rows: Iterable[Row], usual_s: float, within: tuple[int, int]
) -> None:
    """Add telemetry to a history.

    Args:
        history: The history.
        rows: The end and LOAD_FIELDS of each row of the device, over the span and EDGE_NS around it.
        usual_s: Length of a row in s if there are too few to derive it.
        within: The span in UTC ns; what lies outside is left out.
    """
    ordered = sorted(rows, key=lambda row: row[0])
    spans = row_spans([end for end, _ in ordered], usual_s)
    for (_, values), (start_ns, _, covered_s) in zip(ordered, spans, strict=True):
        interval = Interval(start_ns, start_ns + int(covered_s * NS_PER_S), *values)
        history.add(interval, within)


def load_values(fields: Mapping[str, FieldValue]) -> Sequence[float | None]:
    """Return what an `Interval` holds of a row of a device."""
    *values, used_bytes, most_bytes = (as_number(fields.get(name)) for name in LOAD_FIELDS)
    return *values, used_bytes if most_bytes is None else most_bytes


def packed_hour(history: DeviceHistory, hour_ns: int) -> bytes:
    """Return an hour of a history that has no other one, as it is stored.

    Args:
        history: The history of the hour.
        hour_ns: Start of the hour in UTC ns.
    """
    hour = history.hours.get(hour_ns // HOUR_NS, Hour())
    return packed_document(
        (
            hour.minutes,
            hour.util_pct_s,
            hour.util_s,
            hour.energy_j,
            hour.power_s,
            hour.busy_s_by_minute,
            history.mem_used_bytes_max,
        )
    )


def packed_document(document: Sequence[Any]) -> bytes:
    """Return the values of an hour as it is stored; older versions stored them as JSON."""
    *sums, busy_s, most_bytes = document
    return _PACKED.pack(*sums, math.nan if most_bytes is None else most_bytes, *busy_s)


def add_packed(history: DeviceHistory, hour_ns: int, packed: bytes) -> None:
    """Add an hour that `packed_hour` returned.

    Args:
        history: The history.
        hour_ns: Start of the hour in UTC ns.
        packed: The hour; PACKED_BYTES.
    """
    minutes, util_pct_s, util_s, energy_j, power_s, most_bytes, *busy_s = _PACKED.unpack(packed)
    hour = Hour(minutes, util_pct_s, util_s, energy_j, power_s, array("f", busy_s))
    known_bytes = None if math.isnan(most_bytes) else most_bytes
    history.add_hour(hour_ns // HOUR_NS, hour, known_bytes)
