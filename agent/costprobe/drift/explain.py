"""Why series changed between two periods, from the store: the answer of `costprobe explain`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from costprobe.adapters.store.read import StoreReader
from costprobe.core.columns import number
from costprobe.core.periods import TimeSpan
from costprobe.core.records import NS_PER_S, Point, natural
from costprobe.core.schema import part_words
from costprobe.core.units import counted
from costprobe.drift.before_after import LEAST_NOISE, Levels, change_point, clipped
from costprobe.drift.causes import Events, events_among
from costprobe.drift.findings import Metric, ServingMetric
from costprobe.drift.periods import PeriodChange, probe_change, service_change
from costprobe.drift.runs import (
    DEVICE_ROWS,
    DetectionRun,
    block_efforts,
    control_of,
    events_of_service,
    joined_runs,
    service_runs,
)
from costprobe.unit_costs.change import ProductionSums, production_sums

# The newest runs of a probe, and the newest windows of a service, in each period.
RUNS_MAX: Final = 5_000
# A period with fewer runs has no level.
RUNS_MIN: Final = 3
EVENTS_MAX: Final = 2_000
# Blocks of a service next to the boundary of the periods whose conditions are read.
BLOCKS_MAX: Final = 48
BLOCK_S: Final = 1800.0
# The time before an incident that is compared with it, and the time in which a change is looked for.
DAY_NS: Final = 86_400 * NS_PER_S
WINDOW_NS: Final = 2 * DAY_NS
# A change is looked for at each run: it is found beyond so many standard errors.
SEARCH_ERRORS: Final = 6.0
SUBJECTS: Final = ("device", "probe", "service")
# Why two periods are compared: they were given; since an open incident began; around drifts that reverted;
# before and after the largest change of the window; or its halves, where nothing changed.
Basis = Literal["given", "incident", "change", "reverted", "halves"]


class ComparedPeriods(NamedTuple):
    """The two periods that are compared."""

    before: TimeSpan
    after: TimeSpan


@dataclass(frozen=True, slots=True)
class ExplainedSeries:
    """A series and why it changed.

    Attributes:
        tags: Its device and probe, or its service.
        periods: The compared periods.
        basis: Why these.
        change: The change; None if it is unknown.
        problem: Why it is unknown; else empty.
    """

    tags: Mapping[str, str]
    periods: ComparedPeriods
    basis: Basis
    change: PeriodChange | None
    problem: str = ""


class Explaining:
    """Explains the series of a store; reads only.

    Args:
        reader: The store.
        periods: The two periods; None for those that each series suggests.
        now_ns: Present UTC in ns.
    """

    def __init__(self, reader: StoreReader, periods: ComparedPeriods | None, now_ns: int) -> None:
        self._reader = reader
        self._given = periods
        self._now_ns = now_ns
        self._starts = [] if periods else _incident_starts(reader)
        if periods:
            since_ns, until_ns = periods.before.start_ns, periods.after.end_ns + 1
        else:
            starts_ns = [start_ns - DAY_NS for _, start_ns in self._starts]
            since_ns, until_ns = min([now_ns - WINDOW_NS, *starts_ns]), now_ns + 1
        self._events = reader.newest("event", since_ns, until_ns, limit=EVENTS_MAX)

    def series(self, selected: Mapping[str, str]) -> Iterator[ExplainedSeries]:
        """Yield the probes and services with these tags.

        Raises:
            StoreError: The store cannot be read.
        """
        if "service" not in selected:
            pairs = {(s.tags["device"], s.tags["probe"]) for s in self._of("probe", selected)}
            for device, probe in sorted(pairs, key=lambda pair: natural(*pair)):
                yield self._explained({"device": device, "probe": probe})
        if "probe" not in selected and "device" not in selected:
            served = {**selected, "basis": "serving"}
            parts: dict[str, str] = {}
            for series in self._of("cost", served):
                name = series.tags["service"]
                parts[name] = parts.get(name) or part_words(series.tags)
            for service, part_of in sorted(parts.items()):
                yield self._explained({"service": service}, part_of)

    def events(self, selected: Mapping[str, str]) -> list[Point]:
        """Return the events of both periods and between that concern a selection, oldest first."""
        return [
            row
            for row in self._events
            if all(row.tags.get(tag, name) == name for tag, name in selected.items())
        ]

    def _of(self, measurement: str, selected: Mapping[str, str]) -> Iterator[Point]:
        for series in self._reader.series(measurement, selected):
            yield Point(measurement, series.tags, {}, 0)

    def _explained(self, tags: Mapping[str, str], problem: str = "") -> ExplainedSeries:
        periods, basis = self._periods_of(tags)
        if problem:
            return ExplainedSeries(tags, periods, basis, None, problem)
        try:
            change = (
                self._service(tags["service"], periods)
                if "service" in tags
                else self._probe(tags, periods, whole=basis != "incident")
            )
        except ValueError as error:
            return ExplainedSeries(tags, periods, basis, None, str(error))
        return ExplainedSeries(tags, periods, basis, change)

    def _probe(
        self, tags: Mapping[str, str], periods: ComparedPeriods, *, whole: bool
    ) -> PeriodChange:
        before, after = (self._runs(tags, span) for span in periods)
        _check_enough(before, after, "run")
        events = events_among(self.events(tags))
        series = tags["device"], tags["probe"]
        return probe_change(series, before, after, events, self._now_ns, whole=whole)

    def _service(self, service: str, periods: ComparedPeriods) -> PeriodChange:
        rows = [self._windows(service, span) for span in periods]
        _check_enough(rows[0], rows[1], "window")
        before, after = (production_sums(side) for side in rows)
        if before is None or after is None:
            raise ValueError("no windows of the whole service")
        runs = self._blocks(service, rows, (before, after))
        control = control_of(
            [self._newest("probe", span, {"device": device, "probe": probe}) for span in periods]
            for device in after.devices
            for probe in {s.tags["probe"] for s in self._of("probe", {"device": device})}
        )
        times_ns = periods.after.start_ns, self._now_ns
        return service_change(service, before, after, control, times_ns, runs)

    def _periods_of(self, tags: Mapping[str, str]) -> tuple[ComparedPeriods, Basis]:
        """Return the periods to compare of a series, and why these."""
        if self._given is not None:
            return self._given, "given"
        starts = [at_ns for labels, at_ns in self._starts if labels.items() <= tags.items()]
        if starts:
            began_ns = min(starts)
            return self._around(began_ns - DAY_NS, began_ns, began_ns), "incident"
        reverted = _reverted(self.events(tags))
        if reverted:
            return self._around(reverted[0] - DAY_NS, *reverted), "reverted"
        since_ns = self._now_ns - WINDOW_NS
        if "probe" in tags:
            runs = self._runs(tags, TimeSpan(since_ns, self._now_ns))
            since_ns = runs[0].time_ns if runs else since_ns
            changed_ns = _changed_ns(runs)
            if changed_ns is not None:
                return self._around(since_ns, changed_ns, changed_ns), "change"
        # The traffic of a service differs by the hour: it has no change point, but the day before.
        middle_ns = (since_ns + self._now_ns) // 2
        return self._around(since_ns, middle_ns, middle_ns), "halves"

    def _around(self, since_ns: int, changed_ns: int, ended_ns: int) -> ComparedPeriods:
        return ComparedPeriods(TimeSpan(since_ns, changed_ns), TimeSpan(ended_ns, self._now_ns))

    def _runs(self, tags: Mapping[str, str], span: TimeSpan) -> list[DetectionRun]:
        costs = self._newest("cost", span, {**tags, "basis": "probe"})
        return joined_runs(self._newest("probe", span, tags), costs)

    def _newest(self, name: str, span: TimeSpan, tags: Mapping[str, str]) -> list[Point]:
        return self._reader.newest(name, span.start_ns, span.end_ns, tags, limit=RUNS_MAX)

    def _windows(self, service: str, span: TimeSpan) -> list[Point]:
        """Return the windows that end in a period, in the currency of the newest one."""
        tags = {"service": service, "basis": "serving"}
        # A window is stamped with its end.
        rows = self._newest("cost", TimeSpan(span.start_ns + 1, span.end_ns + 1), tags)
        currency = rows[-1].tags.get("currency") if rows else None
        return [row for row in rows if row.tags.get("currency") == currency]

    def _blocks(
        self,
        service: str,
        rows: Sequence[Sequence[Point]],
        sums: tuple[ProductionSums, ProductionSums],
    ) -> tuple[list[DetectionRun], list[DetectionRun], Events]:
        """Return the blocks of both periods as runs, and what returns the events of a service."""
        devices = sums[1].devices
        events = events_of_service(self._events, service, devices)
        efforts = [block_efforts(side, sums, BLOCK_S) for side in rows]

        def rows_of(device: str, since_ns: int, until_ns: int) -> Sequence[Point]:
            tags = {"device": device}
            return self._reader.newest("device", since_ns, until_ns, tags, limit=DEVICE_ROWS)

        before, after = (
            service_runs(side, BLOCK_S, devices, rows_of, events)
            for side in (efforts[0][-BLOCKS_MAX:], efforts[1][:BLOCKS_MAX])
        )
        return before, after, events_among(events)


def subject_of(row: Point) -> str:
    """Return what an event concerns: "ranker on gpu0"; empty for the whole host."""
    named = row.tags.get("service") or row.tags.get("probe", "")
    return " on ".join(part for part in (named, row.tags.get("device", "")) if part)


def _incident_starts(reader: StoreReader) -> list[tuple[Mapping[str, str], int]]:
    """Return subject and start, UTC in ns, of each drift in an open incident."""
    document = reader.state("alerts")
    metrics = {*get_args(Metric), *get_args(ServingMetric)}
    return [
        ({tag: symptom["labels"][tag] for tag in SUBJECTS if tag in symptom["labels"]}, since_ns)
        for alert in (document or {}).get("alerts", ())
        for symptom in alert["symptoms"]
        if symptom["series"].partition(" ")[0] in metrics
        if (since_ns := symptom["since_ns"])
    ]


def _changed_ns(runs: Sequence[DetectionRun]) -> int | None:
    """Return the time of the first run after the largest change of level; None within the noise."""
    found = change_point(clipped([math.log(run.time_s) for run in runs]))
    if found is None or not RUNS_MIN <= found[0] <= len(runs) - RUNS_MIN:
        return None
    change = Levels("throughput", runs[: found[0]], runs[found[0] :], runs).time_change()
    is_found = abs(change.mean) > max(LEAST_NOISE, SEARCH_ERRORS * change.error)
    return runs[found[0]].time_ns if is_found else None


def _reverted(rows: Sequence[Point]) -> tuple[int, int] | None:
    """Return start and end, UTC in ns, of the drifts of some events, if the last of them has reverted."""
    drifts = [row for row in rows if row.tags.get("kind") == "drift" and "level_pct" in row.fields]
    starts = [int(at_ns) for row in drifts if (at_ns := number(row, "since_ns"))]
    if not starts or drifts[-1].fields["level_pct"]:
        return None
    return min(starts), drifts[-1].time_ns


def _check_enough(before: Sequence[object], after: Sequence[object], what: str) -> None:
    if min(len(before), len(after)) < RUNS_MIN:
        raise ValueError(
            f"too few to compare: {counted(len(before), what)} in the earlier period and"
            f" {len(after)} in the later one; each needs {RUNS_MIN}"
        )
