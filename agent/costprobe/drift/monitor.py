"""The drift monitor: one detector for each series of a probe, and one for each service and model.

The state of a series is its detector, and the drift that lasts. Events have the cause of a drift; those of a
service are explained by efficiency, demand and mix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from statistics import fmean, median
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter

from costprobe.core.clock_step import ClockStep
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.core.units import HOUR_S
from costprobe.drift.causes import UNKNOWN, Explanation, annotations_of
from costprobe.drift.contention import ContendedRuns, contention_ended_event, contention_event
from costprobe.drift.detector import Detector
from costprobe.drift.events import anomaly_event, drift_event, production_event, reversal_event
from costprobe.drift.findings import (
    CONTENTION,
    SETTLED_NS,
    STATE_PREFIX,
    Finding,
    Metric,
    ServingMetric,
)
from costprobe.drift.lasting import STILL_HOURS, LastingShift
from costprobe.drift.message import (
    ChangeFacts,
    FurtherShift,
    Key,
    RowHistory,
    change_of,
    demand_causes,
    efficiency_explanation,
    saturation,
    tags_of,
)
from costprobe.drift.normal import DAY_S, HOURS, WeekMemory
from costprobe.drift.production import Periods, ProductionDetector, ProductionFinding
from costprobe.drift.runs import control_of, events_of_service
from costprobe.drift.settings import DetectionConfig
from costprobe.unit_costs.change import ProductionChange, Unit, production_change, spend_change

# Values that the level of a drift that grows is worth.
STILL_VALUES = 24
# What is found of a step within so many values of its start is a better estimate of the same step.
SAME_STEP = 12
# A new level of at most so many values is not reported while values lie beyond it, by this share of the shift
# and these standard deviations.
MOVING_VALUES, LATEST_VALUES, MOVING_SHARE, MOVING_SIGMAS = 8, 3, 0.1, 2.0


PRODUCTION_PREFIX = "production "
STATE_PREFIXES = (STATE_PREFIX, PRODUCTION_PREFIX)
# A smaller drift of the energy alone, without a cause, is not reported, in least effects: power sensors
# drift by themselves, with the temperature and between calibrations.
ENERGY_ALONE = 1.5
# The load model of the energy learns a new device time for days: so long, a change below this share of that of
# the time is its effect. In the first day it is reported with it.
AFTER_EFFECT_NS, AFTER_EFFECT = 4 * SETTLED_NS, 0.6
# Series of a service whose shift may grow slowly: that of the energy grows while its model learns the time.
GROWING: tuple[ServingMetric, ...] = ("serving_time", "serving_tpot")
# Smallest shift of demand or mix, in log units.
LEAST_DEPARTURE = 0.1
# Divisions among models by which a model has a device time of its own.
OWN_TIME = ("time", "executions")
# Runs of a probe in each period that its control is the median of.
CONTROL_RUNS = 200
# An annotation may precede its effect by this time.
ANNOTATED_NS = 2 * 3600 * NS_PER_S
ANNOTATIONS_MAX = 20

# Service and served model; "" for the whole service.
ServiceKey = tuple[str, str]


@dataclass(slots=True)
class MonitoredSeries(LastingShift):
    """The state of one monitored series of a probe: its detector, and the drift that lasts.

    Attributes:
        detector: Its detector.
        pending: An anomaly that is a step if the next value confirms it.
    """

    detector: Detector
    pending: Annotated[tuple[Finding, Event] | None, Field(exclude=True)] = None

    @property
    def last_ns(self) -> int:
        """UTC in ns of the last value; far in the past before the first."""
        return round(self.detector.last_s * NS_PER_S)


@dataclass(slots=True)
class ServiceShift(LastingShift):
    """The shift of one monitored series of a service; those too small to be reported add up.

    Attributes:
        level: Sum of all shifts that were found, in log units.
        unreported_ns: Start of the part that is not reported, UTC in ns.
    """

    level: float = 0.0
    unreported_ns: int = 0

    def found(self, finding: ProductionFinding, least: float) -> int | None:
        """Add what was found; see `add`."""
        since_ns, time_ns = (round(at * NS_PER_S) for at in (finding.since_s, finding.time_s))
        before, self.level = self.level, self.level + finding.change
        former_ns = self.add((before, self.level), since_ns, time_ns, least / 2)
        if self.base is None:
            return former_ns
        unreported = before - self.base - self.reported_shift
        if finding.change * unreported < 0 and abs(finding.change) > 2 * abs(unreported):
            # Not a part of this change, which would hide it: the level from which it began.
            self.base, unreported = self.base + unreported, 0.0
        if not unreported:
            self.unreported_ns = since_ns
            self.began_ns = self.began_ns if self.reported_shift else since_ns
        return former_ns


@dataclass(slots=True)
class MonitoredService:
    """The state of a service, or of a model of it: its detector, and the shifts that last."""

    detector: ProductionDetector
    shifts: dict[ServingMetric, ServiceShift] = field(default_factory=dict)

    @property
    def last_ns(self) -> int:
        """UTC in ns of the end of the last block."""
        return self.detector.ended_ns


State = MonitoredSeries | ContendedRuns | MonitoredService


# Fields of the states that are instants of UTC, or lists of them; 0 for none.
INSTANTS = {
    *("last_s", "started_s", "since_s", "began_s", "settled_s", "reported_s", "followed_s"),
    *("held_since_s", "since_ns", "began_ns", "before_ns", "reported_ns", "ended_ns"),
    *("unreported_ns", "times_ns"),
}


def shift_instants(state: Any, step: ClockStep) -> None:  # noqa: ANN401 - any part of a state
    """Shift the instants of a state after a wall-clock step; none is later than now.

    Otherwise one value from a wall clock a year ahead would suppress all others for a year.
    """

    def shifted(instant: float) -> float:
        return min(moved(instant), now) if instant else instant

    for name in (each.name for each in fields(state)):
        value = getattr(state, name)
        if name in INSTANTS:
            is_ns = name.endswith("_ns")
            moved: Callable[..., float] = step.of_ns if is_ns else step.of_s
            now = step.now_ns if is_ns else step.now_ns / NS_PER_S
            is_list = isinstance(value, list)
            setattr(state, name, list(map(shifted, value)) if is_list else shifted(value))
        for part in value.values() if isinstance(value, dict) else [value]:
            if is_dataclass(part):
                shift_instants(part, step)


class _Kind(NamedTuple):
    """How a kind of state is stored: its class, and what its name begins and ends with."""

    adapter: TypeAdapter[Any]
    prefix: str
    suffix: str = ""


_SERIES: TypeAdapter[Any] = TypeAdapter(MonitoredSeries)
_KINDS = {
    "series": _Kind(_SERIES, STATE_PREFIX),
    "contended": _Kind(_SERIES, STATE_PREFIX, " contended"),
    "runs": _Kind(TypeAdapter(ContendedRuns), STATE_PREFIX, f" {CONTENTION}"),
    "service": _Kind(TypeAdapter(MonitoredService), PRODUCTION_PREFIX),
}


class DriftMonitor:
    """Monitor every series of probes and the efficiency, demand and mix of services, and explain drifts.

    Deterministic: the same rows in the same order give the same events.

    Args:
        settings: Sensitivity of the detectors.
        history: Returns rows of a device's probe; called only to explain a drift.
    """

    def __init__(self, settings: DetectionConfig, history: RowHistory) -> None:
        self._settings, self._detector = settings, settings.detector
        self._history = history
        self._series: dict[Key, MonitoredSeries] = {}
        # Of the contended runs of devices that are shared.
        self._shared: dict[Key, MonitoredSeries] = {}
        self._runs: dict[tuple[str, str], ContendedRuns] = {}
        # Of each service and model.
        self._services: dict[ServiceKey, MonitoredService] = {}

    def update(self, points: Iterable[Point]) -> list[Event]:
        """Add the rows of one probe run or window; return the drifts and anomalies that they establish."""
        if not self._settings.enabled:
            return []
        points = list(points)
        events = self._of_services(points)
        values = [
            (point, (device, probe, metric), value)
            for point in points
            if (device := point.tags.get("device")) and (probe := point.tags.get("probe"))
            for metric, value in _values(point)
        ]
        events += self._contention(values)
        # A drift of the energy is judged by those of the other series.
        for point, key, value in sorted(values, key=lambda found: found[1][-1] == "energy"):
            events += self._update(point, key, value)
        return events

    def probes(self) -> set[tuple[str, str]]:
        """Return device and name of every monitored probe."""
        return {(device, probe) for device, probe, _ in self._series}

    def min_detectable_pct(self) -> dict[Key, float | None]:
        """Return the smallest persistent change that each series of a probe shows now, within a day."""
        found = {key: series.detector.min_detectable_pct for key, series in self._series.items()}
        shared = {key for key in self._shared if self._runs[key[:2]].is_shared}
        return found | {key: self._shared[key].detector.min_detectable_pct for key in shared}

    def noisy_services(self) -> dict[str, float]:
        """Return the services whose work varies too much by itself for a change to be found, in percent."""
        return {
            service: 100 * series.model.noise
            for (service, model), found in self._services.items()
            if not model
            and (series := found.detector.efforts["serving_time"]).is_noisy
            and series.model is not None
        }

    def services(self) -> set[str]:
        """Return the names of the services whose detectors are trained."""
        of_services = self._services.items()
        return {
            key[0] for key, service in of_services if not key[1] and service.detector.is_trained
        }

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        for _, _, state in self._states():
            shift_instants(state, step)
            if isinstance(state, MonitoredService):
                state.detector.begin_block()

    def rewind(self, now_ns: int) -> None:
        """Shift restored states that were saved while the wall clock was ahead of now_ns.

        Args:
            now_ns: Current UTC in ns.
        """
        for _, _, state in self._states():
            if state.last_ns > now_ns:
                shift_instants(state, ClockStep(now_ns - state.last_ns, now_ns))

    def documents(self) -> dict[str, Any]:
        """Return each state as JSON, by a name that starts with one of STATE_PREFIXES."""
        found = {}
        for name, key, state in self._states():
            # A service in training is trained from its history again.
            if not isinstance(state, MonitoredService) or state.detector.is_trained:
                adapter, prefix, suffix = _KINDS[name]
                document = {
                    "kind": name,
                    "key": key,
                    "state": adapter.dump_python(state, mode="json"),
                }
                found[f"{prefix}{' '.join(key).rstrip()}{suffix}"] = document
        return found

    def restore(self, documents: Iterable[Any]) -> list[str]:
        """Restore states; those saved under other settings are discarded.

        Returns:
            Problems of damaged states; their series start from an empty detector.
        """
        problems = []
        for document in documents:
            try:
                kind, key = document["kind"], tuple(map(str, document["key"]))
                state = _KINDS[kind].adapter.validate_python(document["state"])
            except (KeyError, TypeError, ValueError) as error:
                reason = " ".join(str(error).split())[:200]
                problems.append(
                    f"the state of a detector cannot be used ({reason}); it is trained again"
                )
                continue
            if self._is_current(state):
                self._tables[kind][key] = state
        return problems

    @property
    def _tables(self) -> dict[str, dict[Any, Any]]:
        """The states of each of _KINDS."""
        tables = self._series, self._shared, self._runs, self._services
        return dict(zip(_KINDS, tables, strict=True))

    def _states(self) -> list[tuple[str, tuple[str, ...], State]]:
        """Return each state with its kind and its key."""
        tables = self._tables.items()
        return [(kind, key, state) for kind, table in tables for key, state in list(table.items())]

    def _is_current(self, state: State) -> bool:
        """Return whether a state is of the settings in force."""
        if isinstance(state, MonitoredService):
            return state.detector.block_s == self._settings.serving_window_s
        return isinstance(state, ContendedRuns) or state.detector.settings == self._detector

    def _contention(self, values: Sequence[tuple[Point, Key, float]]) -> list[Event]:
        """Add the runs of each probe; return where more of them, or as few as before, are contended."""
        events = []
        # What a run cost, or else its latency.
        first = {key[:2]: (point, key, value) for point, key, value in reversed(values)}
        first |= {key[:2]: (point, key, value) for point, key, value in values if key[2] == "cost"}
        for (device, probe), (point, key, value) in first.items():
            runs = self._runs.setdefault((device, probe), ContendedRuns())
            log_excess = None
            if _is_contended(point):
                series = self._series.get(key)
                usual = (
                    None if series is None else series.detector.expected(point.time_ns / NS_PER_S)
                )
                log_excess = math.nan if usual is None or value <= 0 else math.log(value) - usual
            change = runs.add(point.time_ns, self._detector.least_effect, log_excess)
            if change == "more":
                events.append(contention_event(runs, key, point.time_ns, self._history))
            elif change:
                events.append(contention_ended_event(point.time_ns, device, probe))
        return events

    def _update(self, point: Point, key: Key, value: float) -> list[Event]:
        is_contended = _is_contended(point)
        if is_contended and not self._runs[key[:2]].is_shared:
            return []
        of_runs = self._shared if is_contended else self._series
        series = of_runs.get(key)
        if series is None:
            series = of_runs[key] = MonitoredSeries(detector=Detector.new(self._detector))
        events = []
        if series.pending is not None:
            finding, event = series.pending
            series.pending = None
            if not _confirms(finding, value):
                events.append(event)
        shift = None
        for finding in series.detector.update(point.time_ns / NS_PER_S, value):
            if finding.kind == "drift":
                shift = finding
            elif not is_contended:
                series.pending = finding, anomaly_event(finding, point, key)
        if shift is not None and (back := self._back(shift, series, point, key)):
            return [*events, back]
        if series.base is not None:
            events += self._drift_events(shift, series, series.base, point, key)
        return events

    def _back(
        self, shift: Finding, series: MonitoredSeries, point: Point, key: Key
    ) -> Event | None:
        """Add a shift; return the event of a return to the level before a drift that has settled."""
        levels = math.log(shift.before), math.log(shift.after)
        since_ns, least = round(shift.since_s * NS_PER_S), self._detector.least_effect
        former_ns = series.add(levels, since_ns, point.time_ns, least)
        if former_ns is None:
            return None
        change = self._change(shift, series, point, key)
        return drift_event(shift, point, key, replace(change, back_to_ns=former_ns))

    def _drift_events(
        self, shift: Finding | None, series: MonitoredSeries, base: float, point: Point, key: Key
    ) -> list[Event]:
        """Return the event of a drift that is new, has changed, or has reverted; none for a small one."""
        reported, smallest = series.reported_shift, self._detector.least_effect
        still = None if shift else self._growing(series)
        if still is not None:
            series.detector.series.rebase(still, STILL_VALUES)
        level, time_ns = series.detector.level, point.time_ns
        grown = abs(level - base - reported)
        least = smallest if shift else max(smallest, abs(reported) / 3)
        since_ns = series.since_ns if shift else time_ns
        verdict = series.evaluate(level, since_ns, time_ns, smallest, least)
        if verdict == "reverted":
            return [reversal_event(tags_of(key), key[-1], time_ns, since_ns)]
        is_larger = verdict == "new"
        same_ns = round(SAME_STEP * series.detector.series.interval_s * NS_PER_S)
        if not (reported or shift) and time_ns - series.reported_ns > same_ns:
            # A shift that the detector held back is adopted as well: what is new of a small one is less.
            is_larger = is_larger and grown < 2 * smallest
        if (not is_larger and still is None) or (
            not reported and _is_moving(series.detector, base)
        ):
            return []
        log_shift = level - base
        whole = Finding(
            "drift",
            point.time_ns / NS_PER_S,
            series.began_ns / NS_PER_S,
            math.exp(base),
            math.exp(level),
            log_shift,
        )
        change = self._change(whole, series, point, key)
        if change.explanation.name == UNKNOWN and self._is_energy_alone(log_shift, key):
            series.base = None
            return (
                [reversal_event(tags_of(key), key[-1], point.time_ns, series.since_ns)]
                if reported
                else []
            )
        further = FurtherShift(log_shift - reported, series.reported_ns)
        if reported and further.since_ns - series.began_ns > same_ns:
            change = replace(change, further=further)
        series.reported_shift, series.reported_ns = log_shift, point.time_ns
        return [drift_event(whole, point, key, change)]

    def _growing(self, series: MonitoredSeries) -> float | None:
        """Return the present level of a drift that grows too slowly for a shift; None for another."""
        of_level_s = (series.last_ns - series.since_ns) / NS_PER_S
        if (
            series.base is None
            or not series.is_evaluated_again(series.last_ns)
            or of_level_s < DAY_S + STILL_HOURS * HOUR_S
        ):
            return None
        week = series.detector.series.week
        now, before = (_hours(week, STILL_HOURS, lag) for lag in (0, 24))
        level = fmean(now) if now else series.base
        is_larger = (level - series.base) / series.reported_shift > 1
        has_grown = series.has_grown(now, before, self._detector.least_effect)
        return level if is_larger and has_grown else None

    def _change(
        self, whole: Finding, series: MonitoredSeries, point: Point, key: Key
    ) -> ChangeFacts:
        levels_ns = (series.before_ns, series.began_ns)
        return change_of(whole, key, levels_ns, point.time_ns, self._history)

    def _is_energy_alone(self, log_shift: float, key: Key) -> bool:
        """Return whether a small shift of the energy has no drift of another series beside it."""
        device, probe, metric = key
        if metric != "energy" or abs(log_shift) >= ENERGY_ALONE * self._detector.least_effect:
            return False
        others: tuple[Metric, ...] = ("cost", "latency", "throughput")
        found = (self._series.get((device, probe, other)) for other in others)
        return all(series is None or series.base is None for series in found)

    def _of_services(self, points: Sequence[Point]) -> list[Event]:
        """Add the rows of `cost` on the serving basis of one time; return the changes that they complete."""
        windows: dict[str, list[Point]] = {}
        for point in points:
            service = point.tags.get("service")
            if point.measurement == "cost" and point.tags.get("basis") == "serving" and service:
                windows.setdefault(service, []).append(point)
        events = []
        for service, rows in windows.items():
            rows.sort(key=lambda row: row.tags.get("served_model", ""))
            if "served_model" not in rows[0].tags:
                events += self._service_updated((service, ""), rows)
            for row in rows:
                model = row.tags.get("served_model", "")
                if model and row.fields.get("model_split") in OWN_TIME:
                    events += self._service_updated((service, model), [row])
        return events

    def _service_updated(self, key: ServiceKey, rows: Sequence[Point]) -> list[Event]:
        monitored, settings = self._services.get(key), self._settings
        if monitored is None:
            detector = ProductionDetector(settings.serving_shift, settings.serving_window_s)
            monitored = self._services[key] = MonitoredService(detector)
        ended_ns = monitored.last_ns
        events = [
            event
            for finding in monitored.detector.update(rows)
            for event in self._service_events(key, monitored, finding)
        ]
        for metric, shift in monitored.shifts.items() if monitored.last_ns > ended_ns else ():
            if metric in GROWING and shift.is_evaluated_again(monitored.last_ns):
                events += self._grown(key, monitored, metric, shift)
        return events

    def _grown(
        self,
        key: ServiceKey,
        monitored: MonitoredService,
        metric: ServingMetric,
        shift: ServiceShift,
    ) -> list[Event]:
        """Return the event of a shift that grows too slowly to be found; none for another."""
        effort, until_s = monitored.detector.efforts[metric], monitored.last_ns / NS_PER_S
        reported_s, lasts_s = shift.reported_ns / NS_PER_S, STILL_HOURS * HOUR_S
        now, before = (
            effort.rests(end_s - lasts_s, end_s) for end_s in (until_s, reported_s + lasts_s)
        )
        if not shift.has_grown(now, before, self._settings.serving_effect):
            return []
        change = effort.departure(len(now))
        if (shift.level + change - (shift.base or 0.0)) / shift.reported_shift <= 1:
            return []
        effort.adopt(len(now), change)
        unit: Unit = "token" if monitored.detector.blocks[-1].has_tokens else "inference"
        finding = ProductionFinding(metric, until_s, reported_s, change, unit=unit)
        return self._service_events(key, monitored, finding, is_growth=True)

    def _service_events(
        self,
        key: ServiceKey,
        monitored: MonitoredService,
        finding: ProductionFinding,
        *,
        is_growth: bool = False,
    ) -> list[Event]:
        """Return the events of a shift or of its reversal; none for one that changes a known shift little."""
        shift = monitored.shifts.setdefault(finding.metric, ServiceShift())
        if finding.metric == "serving_energy" and _is_after_effect(finding, monitored.shifts):
            return []
        is_efficiency = finding.metric in monitored.detector.efforts
        least = self._settings.serving_effect if is_efficiency else LEAST_DEPARTURE
        time_ns = round(finding.time_s * NS_PER_S)
        back_to_ns = shift.found(finding, least)
        if back_to_ns is not None:
            event = self._report(key, monitored, finding, further=None, back_to_ns=back_to_ns)
            return [event] if event else []
        events = []
        for _ in range(2):
            before = shift.reported_shift
            further = 0.0 if is_growth else max(least, abs(before) / 3)
            verdict = shift.evaluate(shift.level, shift.since_ns, time_ns, least, further)
            if verdict != "reverted":
                break
            # The opposite is a change of its own.
            tags, since_ns = _tags(key), shift.since_ns
            events.append(reversal_event(tags, finding.metric, time_ns, since_ns, finding.unit))
        if verdict != "new" or shift.base is None:
            return events
        log_shift = shift.level - shift.base
        event = self._report(
            key,
            monitored,
            replace(finding, since_s=shift.began_ns / NS_PER_S, change=log_shift),
            further=FurtherShift(log_shift - before, shift.unreported_ns) if before else None,
            back_to_ns=None,
        )
        shift.reported_shift, shift.reported_ns = log_shift, time_ns
        # Two events of a series need two times.
        return [*events, replace(event, time_ns=event.time_ns + len(events))] if event else events

    def _report(
        self,
        key: ServiceKey,
        monitored: MonitoredService,
        finding: ProductionFinding,
        *,
        further: FurtherShift | None,
        back_to_ns: int | None,
    ) -> Event | None:
        """Return the event of all of a change; None for one of demand that is one of efficiency."""
        detector = monitored.detector
        latest_s = finding.since_s if further is None else further.since_ns / NS_PER_S
        periods = detector.periods(latest_s, finding.time_s)
        change = None if periods is None else self._production_change(detector, periods)
        if change is not None:
            spend_per_s = spend_since(detector, finding.since_s, finding.time_s)
            change = replace(change, spend_per_s=spend_per_s)
        if finding.metric == "demand" and change is not None and change.driver == "efficiency":
            # Fewer tokens of devices that are as busy as before: a drift of `serving_time`.
            return None
        explained = self._explanation(key[0], detector, finding, change)
        return production_event(
            _tags(key),
            finding,
            change,
            explained,
            further=further,
            back_to_ns=back_to_ns,
            devices=detector.devices,
        )

    def _explanation(
        self,
        service: str,
        detector: ProductionDetector,
        finding: ProductionFinding,
        change: ProductionChange | None,
    ) -> Explanation:
        """Return the causes of a change; of demand and mix without the conditions of the devices."""
        if finding.metric in detector.efforts:
            devices = detector.devices
            found = efficiency_explanation(detector, finding, service, devices, self._history)
            saturated = saturation(finding, service, self._history)
            name = "saturation" if saturated and found.name == UNKNOWN else found.name
            return replace(found, name=name, causes=(*found.causes, *saturated))
        parts = demand_causes(change) if change and finding.metric == "demand" else []
        name = "replicas" if parts and parts[0].name == "replicas" else UNKNOWN
        # The start of the change is known to a window.
        since_ns = round(finding.since_s * NS_PER_S)
        window_ns = round(self._settings.serving_window_s * NS_PER_S)
        span_ns = since_ns - ANNOTATED_NS, since_ns + window_ns
        rows = self._history("event", "", "", span_ns, ANNOTATIONS_MAX)
        near = events_of_service(rows, service, detector.devices)
        return Explanation(name, (*parts, *annotations_of(near, since_ns - window_ns)))

    def _production_change(
        self,
        detector: ProductionDetector,
        periods: Periods,
    ) -> ProductionChange | None:
        try:
            return production_change(
                periods.before,
                periods.after,
                control=self._control(periods),
                log_load=detector.effect_of_load(periods),
            )
        except ValueError:
            return None

    def _control(self, periods: Periods) -> float | None:
        """Return the probes' time per inference on the same devices, later over earlier."""
        spans_ns = [
            (round(since_s * NS_PER_S), round(until_s * NS_PER_S) + 1)
            for since_s, until_s in (periods.before_s, periods.after_s)
        ]
        return control_of(
            [self._history("probe", device, probe, span_ns, CONTROL_RUNS) for span_ns in spans_ns]
            for device, probe in sorted(self.probes())
            if device in periods.after.devices
        )


def _hours(week: WeekMemory, count: int, lag: int) -> list[float]:
    """Return the known means of so many hours, of which the last ended `lag` hours ago."""
    ended = week.hour - lag
    means = (week.means[hour % HOURS] for hour in range(ended - count, ended))
    return [mean for mean in means if not math.isnan(mean)]


def _is_moving(detector: Detector, base: float) -> bool:
    """Return whether the latest values lie beyond a new level, which then follows.

    A run, or a few, may have only a part of a step.
    """
    model = detector.series
    if model.level_count > MOVING_VALUES:
        return False
    latest = list(model.recent)[-LATEST_VALUES:]
    sign = math.copysign(1.0, model.level - base)
    share = MOVING_SHARE * abs(model.level - base)
    if not any(
        (value - model.level) * sign > share + MOVING_SIGMAS * error
        for value, error in (
            (latest[-1], model.sigma_all),
            (median(latest), model.sigma_all / math.sqrt(LATEST_VALUES)),
        )
    ):
        return False
    model.rebase(median(latest), LATEST_VALUES)
    return True


def _is_contended(point: Point) -> bool:
    """Return whether others used the device during a run."""
    return point.fields.get("contended") is True


def _confirms(anomaly: Finding, value: float) -> bool:
    """Return whether the value after an anomaly deviates as far in the same direction."""
    if value <= 0:
        return False
    log_shift = math.log(value / anomaly.before)
    return 0.5 < log_shift / anomaly.change < 2  # noqa: PLR2004 - half as far, twice as far


def _values(point: Point) -> list[tuple[Metric, float]]:
    """Return the monitored values of a row."""
    names: Mapping[str, Metric] = {}
    if point.measurement == "probe":
        names = {"latency_p50_ms": "latency", "throughput_per_s": "throughput"}
        if point.fields.get("energy_method") != "last_known":
            names = {**names, "energy_per_inference_j": "energy"}
    elif point.measurement == "cost":
        names = {"cost_reference": "cost"}
    return [
        (metric, float(value))
        for field, metric in names.items()
        if isinstance(value := point.fields.get(field), int | float)
    ]


def _tags(key: ServiceKey) -> dict[str, str]:
    service, model = key
    return {"service": service, **({"served_model": model} if model else {})}


def spend_since(detector: ProductionDetector, since_s: float, until_s: float) -> float | None:
    """Return the change of what is spent on a service since an instant, currency per s; None without one.

    The later half of the time is compared with that just before, and with the same hours of a day and of the
    week before: devices that were added earlier, or follow the hour, are no change. The smallest counts.

    Args:
        detector: The service's detector.
        since_s: UTC in s.
        until_s: UTC in s.
    """
    middle_s, days = (since_s + until_s) / 2, math.ceil((until_s - since_s) / DAY_S)
    lags_s = until_s - since_s, days * DAY_S, max(days, 7) * DAY_S
    after = detector.sums(middle_s, until_s)
    before = [detector.sums(middle_s - lag_s, until_s - lag_s) for lag_s in lags_s]
    changes = [spend_change(sums, after) or 0.0 for sums in before if sums and after]
    if not changes or min(changes) * max(changes) <= 0:
        return None
    return min(changes, key=abs)


def _is_after_effect(
    finding: ProductionFinding, shifts: Mapping[ServingMetric, ServiceShift]
) -> bool:
    """Return whether a change of the energy is what one of the device time left, after its first day."""
    time, energy = (shifts.get(name, ServiceShift()) for name in ("serving_time", "serving_energy"))
    time_ns = round(finding.time_s * NS_PER_S)
    is_its_own = energy.reported_shift and time_ns - energy.reported_ns <= SETTLED_NS
    is_small = abs(finding.change) < AFTER_EFFECT * abs(time.reported_shift)
    is_recent = SETTLED_NS < time_ns - time.reported_ns < AFTER_EFFECT_NS
    return is_recent and is_small and not is_its_own
