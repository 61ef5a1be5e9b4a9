"""A device's conditions in a window: other processes, throttling, clock, temperature, memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

from costprobe.adapters.sensors.protocol.sample import Sample
from costprobe.core.records import NS_PER_S, FieldValue

SAMPLES_MAX: Final = 600
# A sample within this distance of a short window, in sample intervals, is included.
BRACKET_INTERVALS: Final = 1.5
# A share of time needs two readings of its counter, and a window two samples of its own.
ENOUGH: Final = 2

Series = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Activity:
    """The conditions of a device in a window; each is None if unknown.

    Attributes:
        contended: Whether another process used the device.
        throttled_pct: Share of the time throttled by power or temperature, in percent.
        throttled_power_pct: Share of the time throttled by a power limit, in percent.
        throttled_thermal_pct: Share of the time throttled by temperature, in percent.
        sm_clock_mhz: Mean clock of the compute units over the window's time, in MHz.
        mem_clock_mhz: The same of the memory.
        power_limit_w: Mean power limit in force in W.
        temp_max_c: Highest temperature in degrees Celsius.
        mem_used_pct: Mean share of the device's memory in use, in percent.
        ecc_uncorrected: Uncorrected memory errors at the window's end, since the driver was loaded.
        util_pct: Mean utilization over the window's time, in percent; not a field, because in
            a probe's own window it has no meaning.
    """

    contended: bool | None = None
    throttled_pct: float | None = None
    throttled_power_pct: float | None = None
    throttled_thermal_pct: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_limit_w: float | None = None
    temp_max_c: float | None = None
    mem_used_pct: float | None = None
    ecc_uncorrected: int | None = None
    util_pct: float | None = None

    def fields(self) -> dict[str, FieldValue | None]:
        """These conditions as fields of the `probe` series."""
        return {name: value for name, value in asdict(self).items() if name != "util_pct"}

    def without_neighbour(self) -> Activity:
        """The same conditions without the contention, for devices whose other processes belong to the measurement."""
        return replace(self, contended=None)


UNKNOWN = Activity()


def worst_of(activities: Sequence[Activity]) -> Activity:
    """Return the conditions of a group of devices: the worst of each, as each waits for the slowest.

    Args:
        activities: One for each device, at least one.
    """

    def found(name: str) -> list[Any]:
        values = (getattr(activity, name) for activity in activities)
        return [value for value in values if value is not None]

    if len(activities) == 1:
        return activities[0]
    highest = {name: max(found(name), default=None) for name in _HIGHEST}
    return Activity(
        **highest,
        contended=any(found("contended")) if found("contended") else None,
        sm_clock_mhz=min(found("sm_clock_mhz"), default=None),
        mem_clock_mhz=min(found("mem_clock_mhz"), default=None),
        power_limit_w=min(found("power_limit_w"), default=None),
        ecc_uncorrected=sum(found("ecc_uncorrected")) if found("ecc_uncorrected") else None,
    )


_HIGHEST = (
    "throttled_pct",
    "throttled_power_pct",
    "throttled_thermal_pct",
    "temp_max_c",
    "mem_used_pct",
    "util_pct",
)


class ActivityLog:
    """The last ten minutes of a device's conditions, at one sample a second.

    Args:
        every_ns: Time between the samples in ns.
    """

    def __init__(self, every_ns: int = NS_PER_S) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._beyond_ns = int(BRACKET_INTERVALS * every_ns)

    def add(self, *samples: Sample) -> None:
        """Add the next samples."""
        self._samples.extend(samples)

    @property
    def seen_ns(self) -> int:
        """CLOCK_MONOTONIC ns of the last sample; 0 before the first."""
        return self._samples[-1].t_ns if self._samples else 0

    def between(
        self,
        start_ns: int,
        end_ns: int,
        own_pids: Collection[int],
        busy_pids: Collection[int] | None = None,
    ) -> Activity:
        """The conditions in a window, from its samples.

        Quick samples count for utilization alone. If a window has fewer than two full samples, those
        that bracket it count as well: the last before it and the first after it, each at most one
        and a half sample intervals away.
        A share of throttled time is then that of the time between the bracketing samples, because
        the counters were not read closer to the window; clock and memory are interpolated.

        A process counts if it was busy on the device; if the driver does not report that, if it
        has a context on the device, though it may have been idle. Power and temperature limit the
        same clock separately, so that their times are added, up to the whole time.

        Args:
            start_ns: CLOCK_MONOTONIC ns at which the window began.
            end_ns: CLOCK_MONOTONIC ns at which it ended.
            own_pids: Processes that may use the device: the probe's own.
            busy_pids: Processes that were busy on it in the window; None if unknown.
        """
        full_samples = [sample for sample in self._samples if not sample.is_quick]
        inside, near = self._within(full_samples, start_ns, end_ns)
        _, all_near = self._within(self._samples, start_ns, end_ns)
        loaded = _while_held(near, own_pids)
        power = _series(near, "throttle_power_s")
        thermal = _series(near, "throttle_thermal_s")
        both = [
            (sample.t_ns, sample.throttle_power_s + sample.throttle_thermal_s)
            for sample in near
            if sample.throttle_power_s is not None and sample.throttle_thermal_s is not None
        ]
        memory = [
            (sample.t_ns, 100 * sample.mem_used_bytes / sample.mem_total_bytes)
            for sample in loaded
            if sample.mem_used_bytes is not None and sample.mem_total_bytes
        ]
        temps_c = [sample.temp_c for sample in loaded if sample.temp_c is not None]
        errors = [s.ecc_uncorrected for s in near if s.ecc_uncorrected is not None]
        return Activity(
            contended=_contended(inside or near, own_pids, busy_pids),
            throttled_pct=_advance_pct(both),
            throttled_power_pct=_advance_pct(power),
            throttled_thermal_pct=_advance_pct(thermal),
            sm_clock_mhz=_mean_over(_series(loaded, "sm_clock_mhz"), start_ns, end_ns),
            mem_clock_mhz=_mean_over(_series(loaded, "mem_clock_mhz"), start_ns, end_ns),
            power_limit_w=_mean_over(_series(near, "power_limit_w"), start_ns, end_ns),
            temp_max_c=max(temps_c, default=None),
            mem_used_pct=_mean_over(memory, start_ns, end_ns),
            ecc_uncorrected=errors[-1] if errors else None,
            util_pct=_mean_over(_series(all_near, "util_pct"), start_ns, end_ns),
        )

    def _within(
        self, samples: Iterable[Sample], start_ns: int, end_ns: int
    ) -> tuple[list[Sample], list[Sample]]:
        """The samples in a window; and for a short one the same with those that bracket it."""
        since_ns, until_ns = start_ns - self._beyond_ns, end_ns + self._beyond_ns
        near = [sample for sample in samples if since_ns <= sample.t_ns <= until_ns]
        inside = [sample for sample in near if start_ns <= sample.t_ns <= end_ns]
        if len(inside) >= ENOUGH:
            return inside, inside
        before = [sample for sample in near if sample.t_ns < start_ns][-1:]
        after = [sample for sample in near if sample.t_ns > end_ns][:1]
        return inside, [*before, *inside, *after]


def _contended(
    samples: Sequence[Sample], own_pids: Collection[int], busy_pids: Collection[int] | None
) -> bool | None:
    pid_sets = [sample.pids for sample in samples if sample.pids is not None]
    if not pid_sets:
        return None
    pids = set().union(*pid_sets)
    # In a container with its own process ids the driver reports other ids for the same processes,
    # so that own processes cannot be recognized.
    ours_are_known = not own_pids or bool(pids & set(own_pids))
    others = (pids if busy_pids is None else set(busy_pids)) - set(own_pids)
    return bool(others) if ours_are_known or not others else None


def _while_held(samples: list[Sample], own_pids: Collection[int]) -> list[Sample]:
    """The samples during which the measurement used the device, if that is known.

    A sample after a short window is often taken when the probe has ended: its memory is free and
    the clock has dropped, which is not the window's condition.
    """
    own_set = set(own_pids)
    return [sample for sample in samples if own_set & set(sample.pids or ())] or samples


def _series(samples: Sequence[Sample], name: str) -> Series:
    """A metric of the samples over time, without unknown values."""
    values = ((sample.t_ns, getattr(sample, name)) for sample in samples)
    return [(t_ns, value) for t_ns, value in values if value is not None]


def _advance_pct(counted_s: Series) -> float | None:
    """Share of the time by which a counter of seconds advanced, in percent; None if unknown."""
    if len(counted_s) < ENOUGH:
        return None
    (first_ns, first_s), (last_ns, last_s) = counted_s[0], counted_s[-1]
    if last_ns <= first_ns or last_s < first_s:
        return None
    return 100 * min(1.0, (last_s - first_s) / ((last_ns - first_ns) / NS_PER_S))


def _mean_over(series: Series, start_ns: int, end_ns: int) -> float | None:
    """The time-weighted mean in a window: linear between samples, held beyond the outermost."""
    if not series:
        return None
    inside = [(t_ns, value) for t_ns, value in series if start_ns < t_ns < end_ns]
    first = (start_ns, _value_at(series, start_ns))
    if end_ns <= start_ns:
        return first[1]
    points = [first, *inside, (end_ns, _value_at(series, end_ns))]
    area = sum((t1 - t0) * (v0 + v1) / 2 for (t0, v0), (t1, v1) in pairwise(points))
    return area / (end_ns - start_ns)


def _value_at(series: Series, t_ns: int) -> float:
    before = [point for point in series if point[0] <= t_ns]
    after = [point for point in series if point[0] > t_ns]
    if not before or not after:
        return before[-1][1] if before else after[0][1]
    (t0, v0), (t1, v1) = before[-1], after[0]
    return v0 + (v1 - v0) * (t_ns - t0) / (t1 - t0)
