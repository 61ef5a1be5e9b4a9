"""Whether a device was disturbed in a window: by other processes, or by its own limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from agent.model import NS_PER_S
from agent.telemetry.sample import Sample


@dataclass(frozen=True, slots=True)
class Activity:
    """What disturbed a device in a window.

    Attributes:
        contended: Whether another process held the device; None where that cannot be told.
        throttled_pct: Share of the time held back by power or heat, in percent; None likewise.
    """

    contended: bool | None
    throttled_pct: float | None


UNKNOWN = Activity(None, None)


class ActivityLog:
    """The last ten minutes of a device's processes and throttling, at one sample a second."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=600)

    def add(self, sample: Sample) -> None:
        """Takes the next sample."""
        self._samples.append(sample)

    def between(
        self,
        start_ns: int,
        end_ns: int,
        own_pids: Collection[int],
        busy_pids: Collection[int] | None = None,
    ) -> Activity:
        """What the samples of a window say.

        A process counts that worked on the device, where the driver tells; elsewhere one that
        holds a context on it, though it may have been idle. Power and heat are separate limiters of one clock, so that their times add up.

        Args:
            start_ns: CLOCK_MONOTONIC ns at which the window began.
            end_ns: CLOCK_MONOTONIC ns at which it ended.
            own_pids: Processes that may use the device: the probe's own.
            busy_pids: Processes that worked on it in the window; None where that is not known.
        """
        inside = [sample for sample in self._samples if start_ns <= sample.t_ns <= end_ns]
        seen = [sample.pids for sample in inside if sample.pids is not None]
        contended = None
        if seen:
            pids = set().union(*seen)
            # In a container of its own the driver knows our processes by numbers that are not
            # ours: then nobody can tell them from a neighbour's.
            ours_are_known = not own_pids or bool(pids & set(own_pids))
            others = (pids if busy_pids is None else set(busy_pids)) - set(own_pids)
            contended = bool(others) if ours_are_known or not others else None
        counted = [
            (sample.t_ns, sample.throttle_power_s + sample.throttle_thermal_s)
            for sample in inside
            if sample.throttle_power_s is not None and sample.throttle_thermal_s is not None
        ]
        throttled_pct = None
        if len(counted) > 1:
            (first_ns, first_s), (last_ns, last_s) = counted[0], counted[-1]
            share = (last_s - first_s) / ((last_ns - first_ns) / NS_PER_S)
            throttled_pct = 100 * min(1.0, share) if share >= 0 else None
        return Activity(contended, throttled_pct)
