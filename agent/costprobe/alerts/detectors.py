"""Detectors of drift for the stored rows, with their state in the store."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from costprobe.adapters.store.read import StoreReader
from costprobe.alerts.rules.changes import DriftRuleConfig
from costprobe.alerts.settings import matches
from costprobe.core.clock_step import ClockStep
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.drift.monitor import STATE_PREFIXES, DriftMonitor
from costprobe.drift.settings import DetectionConfig

logger = logging.getLogger(__name__)


def by_time(
    reader: StoreReader,
    measurements: Sequence[str],
    since_ns: int,
    until_ns: int,
) -> Iterator[list[Point]]:
    """Yield rows of measurements of the same time together, oldest first."""
    rows = heapq.merge(
        # Detectors learn from samples only, not from rolled-up medians.
        *(reader.points(name, since_ns, until_ns, with_hours=False) for name in measurements),
        key=attrgetter("time_ns"),
    )
    for _, together in groupby(rows, key=attrgetter("time_ns")):
        yield list(together)


# A detector without a stored state is trained with this much of its series' history.
LEARN_NS = 21 * 86_400 * NS_PER_S
# A row's time is computed from CLOCK_MONOTONIC: it may be slightly later than now.
AHEAD_NS = 60 * NS_PER_S
# Detector states are stored once an hour, one after the other.
OVERLAP_NS = 3600 * NS_PER_S


class Detectors:
    """One detector for each series of a probe or service; not thread-safe.

    Args:
        settings: Sensitivity of the detectors.
        store_path: The store, which has the history of the series.
    """

    def __init__(self, settings: DetectionConfig, store_path: Path) -> None:
        self._store_path = store_path
        self._least_effect = settings.least_effect
        self._monitor = DriftMonitor(settings, self._history)

    def update(self, points: Sequence[Point], now_ns: int) -> list[Event]:
        """Add rows that were stored together; return the drifts and anomalies that they establish.

        Args:
            points: The rows.
            now_ns: Current UTC in ns. Rows measured before the wall clock was set back are ignored:
                they would be in the detectors' future.
        """
        return self._monitor.update(point for point in points if point.time_ns <= now_ns + AHEAD_NS)

    def detectable(
        self,
        rules: Sequence[DriftRuleConfig],
        labels_of: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> list[dict[str, Any]]:
        """Return the smallest change that each series of a probe shows now, as JSON.

        Args:
            rules: Rules that ask for changes from a size on.
            labels_of: Returns all labels of a series, which a rule may match.
        """
        found = []
        for (device, probe, metric), least_pct in self._monitor.min_detectable_pct().items():
            series = {"device": device, "probe": probe, "metric": metric}
            labels = labels_of(series)
            asking = [r for r in rules if metric in r.metrics and matches(r.match, labels)]
            first = min(asking, key=lambda rule: rule.at_least, default=None)
            asked = None if first is None else 100 * max(first.at_least, self._least_effect)
            found.append(
                {
                    **series,
                    "min_detectable_pct": least_pct,
                    "rule": first and first.name,
                    "at_least_pct": asked,
                }
            )
        return found

    def noisy_services(self) -> list[dict[str, Any]]:
        """Return the services of which no change is found, because they vary by themselves, as JSON."""
        return [
            {"service": service, "noise_pct": noise_pct}
            for service, noise_pct in sorted(self._monitor.noisy_services().items())
        ]

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        self._monitor.clock_was_stepped(step)

    def documents(self) -> dict[str, Any]:
        """Return the state of each detector as JSON, by its name in the store."""
        return self._monitor.documents()

    def catch_up(self, now_ns: int) -> Iterator[Event]:
        """Restore the stored states, add the rows after them, and yield the events of these rows.

        An event that was reported before is reported again with the same identity, which has no
        effect. Rows older than the states only update the detectors.

        Args:
            now_ns: Current UTC in ns.

        Raises:
            StoreError: The store cannot be read.
        """
        with closing(StoreReader.open(self._store_path)) as reader:
            kept = {
                name: state
                for name, state in reader.states().items()
                if name.startswith(STATE_PREFIXES) and state[0] is not None
            }
            for problem in self._monitor.restore(document for document, _ in kept.values()):
                logger.warning("%s", problem)
            self._monitor.rewind(now_ns)
            times_ns = [time_ns for _, time_ns in kept.values()]
            report_after_ns = min([*times_ns, now_ns])
            stored = {(s.tags["device"], s.tags["probe"]) for s in reader.series("probe")}
            since_ns = now_ns - LEARN_NS
            served = {
                s.tags["service"] for s in reader.series("cost") if s.tags.get("basis") == "serving"
            }
            if stored <= self._monitor.probes() and served <= self._monitor.services():
                since_ns = max(since_ns, report_after_ns - OVERLAP_NS)
            for together in by_time(reader, ("probe", "cost"), since_ns, now_ns + 1):
                for event in self._monitor.update(together):
                    if event.time_ns > report_after_ns:
                        yield event

    def _history(
        self, measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        tags = {name: value for name, value in (("device", device), ("probe", probe)) if value}
        with closing(StoreReader.open(self._store_path)) as reader:
            return reader.newest(measurement, *span_ns, tags, limit=limit)
