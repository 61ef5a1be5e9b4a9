"""A load curve: its cheapest point within a service level, its Pareto front, and its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from costprobe.domain.costing.load.point import LoadPoint, Loop

# An open loop whose answers fall short of this share of its requests has a growing queue.
KEPT_UP: Final = 0.9
# Why a loop ended.
LoopEnd = Literal["saturated", "errors", "complete"]


def loop_end(points: Sequence[LoadPoint], min_gain: float, max_errors: float) -> LoopEnd | None:
    """Return why a loop ends after its last point; None if it continues.

    Args:
        points: Points of one loop in the order of their load, at least one.
        min_gain: A closed loop is saturated if the throughput rose by a smaller share.
        max_errors: Largest share of requests without an answer.
    """
    last = points[-1]
    if last.error_share > max_errors:
        return "errors"
    if last.loop == "open":
        offered = last["offered_per_s"] or 0.0
        return "saturated" if (last["throughput_per_s"] or 0.0) < KEPT_UP * offered else None
    best = max((point.work_per_s for point in points[:-1]), default=0.0)
    return "saturated" if last.work_per_s < best * (1 + min_gain) else None


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A load curve.

    Attributes:
        probe: Name of the probe.
        device: Name of the devices.
        currency: ISO 4217 code; empty if the devices have no price.
        fingerprint: Fingerprint of server, model and workload.
        time_ns: UTC in ns of its end.
        bounds_ms: Longest times of the service level in ms, by their names: "ttft_p90"; empty
            without one.
        points: The closed loop, then the open loop, each in the order of its load.
        ends: Why each loop ended.
        stopped: Why the curve was ended before its loops; empty if it was not.
        tags: Host and static labels.
    """

    probe: str
    device: str
    currency: str
    fingerprint: str
    time_ns: int
    bounds_ms: Mapping[str, float]
    points: tuple[LoadPoint, ...]
    ends: Mapping[Loop, str] = field(default_factory=dict)
    stopped: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_saturated(self) -> bool:
        """Whether the closed loop went on until throughput no longer rose."""
        return self.ends.get("closed") == "saturated"

    @property
    def fastest(self) -> LoadPoint:
        """The point with the highest throughput."""
        return max(self.points, key=lambda point: point.work_per_s)

    @property
    def cheapest(self) -> LoadPoint | None:
        """Cheapest point that meets the service level; None if none is known to meet it.

        Without a price it is the one with the highest throughput, which on the same devices is also
        the cheapest, except for electricity.
        """
        within = [point for point in self.points if point.meets(self.bounds_ms)]
        if not within or any(point.cost is None for point in within):
            return max(within, key=lambda point: point.work_per_s, default=None)
        return min(within, key=lambda point: point.cost or 0.0)

    @property
    def front(self) -> tuple[LoadPoint, ...]:
        """Points that no other one beats in both cost and speed of a user, the fastest first.

        Without a price the device's time per token takes the place of the cost.
        """
        known = [point for point in self.points if point.speed is not None and point.work_per_s]
        known.sort(key=lambda point: (-(point.speed or 0.0), self.price(point)))
        front: list[LoadPoint] = []
        for point in known:
            if not front or self.price(point) < self.price(front[-1]):
                front.append(point)
        return tuple(front)

    def price(self, point: LoadPoint) -> float:
        """Return the cost of a point, or device-seconds per token if any point has no cost."""
        if any(each.cost is None for each in self.points):
            return 1 / point.work_per_s
        return point.cost or 0.0
