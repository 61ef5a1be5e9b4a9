"""Causes of a change of production: replicas and traffic exactly, conditions of the devices with their shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costprobe.core.records import NS_PER_S, Point
from costprobe.domain.alerting.drift_causes import CHANGES_MAX, RowHistory
from costprobe.domain.costing.comparison.production_change import ProductionChange
from costprobe.domain.detection.causes import UNKNOWN, Cause, Explanation, Share
from costprobe.domain.detection.production_detector import ProductionDetector, ProductionFinding
from costprobe.domain.detection.run_causes import AROUND_RUNS, explain_change
from costprobe.domain.detection.service_runs import (
    DEVICE_ROWS,
    BlockEffort,
    events_of_service,
    service_runs,
)
from costprobe.domain.detection.settings import Metric

# Blocks of a level that are enough for an explanation.
LEAST_BEFORE = 4
# A smaller change of traffic or of devices is no cause, in log units.
LEAST_CHANGED = 0.02


def demand_causes(change: ProductionChange) -> list[Cause]:
    """Return traffic and replicas with their exact shares of the change of held device time per work.

    Held time per work is devices over traffic: the logarithms of both add up to the change.
    """
    replicas, traffic = math.log(change.devices), -math.log(change.traffic)
    total = replicas + traffic
    if abs(total) < LEAST_CHANGED:
        return []
    words = "lower" if change.traffic < 1 else "higher"
    found = [
        ("replicas", f"{change.devices:.3g} times the devices", replicas),
        ("traffic", f"{abs(change.traffic - 1) * 100:.0f} % {words}", traffic),
    ]
    causes = [
        Cause(name, text, share=Share(part / total, part / total, part / total))
        for name, text, part in found
        if abs(part) >= LEAST_CHANGED
    ]
    return sorted(causes, key=lambda cause: -(cause.share.mean if cause.share else 0.0))


def efficiency_explanation(
    detector: ProductionDetector,
    finding: ProductionFinding,
    service: str,
    devices: Sequence[str],
    history: RowHistory,
) -> Explanation:
    """Return why device time or energy per work changed: conditions of the devices, software, annotations.

    Args:
        detector: The service's detector.
        finding: The change.
        service: Name of the service.
        devices: Its devices.
        history: Returns the rows of devices and events.
    """
    times = detector.efforts["serving_time"].history(2 * AROUND_RUNS)
    energies = detector.efforts["serving_energy"].history(2 * AROUND_RUNS)
    is_energy = finding.metric == "serving_energy"
    if is_energy and not times:
        times = energies
    if not times:
        return Explanation(UNKNOWN)
    span_ns = (
        round((min(times) - detector.block_s) * NS_PER_S),
        round(finding.time_s * NS_PER_S) + 1,
    )
    events = events_of_service(history("event", "", "", span_ns, CHANGES_MAX), service, devices)

    def rows_of(device: str, from_ns: int, until_ns: int) -> Sequence[Point]:
        return history("device", device, "", (from_ns, until_ns), DEVICE_ROWS)

    def events_between(from_ns: int, until_ns: int) -> Sequence[Point]:
        return [row for row in events if from_ns <= row.time_ns < until_ns]

    efforts = [BlockEffort(end_s, times[end_s], energies.get(end_s)) for end_s in sorted(times)]
    runs = service_runs(efforts, detector.block_s, devices, rows_of, events)
    since_ns = finding.since_s * NS_PER_S
    before = [run for run in runs if run.time_ns <= since_ns]
    after = [run for run in runs if run.time_ns > since_ns]
    if len(before) < LEAST_BEFORE or not after:
        return Explanation(UNKNOWN)
    metric: Metric = "energy" if is_energy else "throughput"
    sign = 0 if is_energy else 1 if finding.change > 0 else -1
    return explain_change(before, after, events_between, metric, sign)
