"""The alert engine: evaluates rules to incidents, and incidents to notices.

Rows and faults go to each rule that matches them. An incident is pending, firing,
flapping or resolved, and records the notifications that were sent; symptoms are grouped to
incidents, which are recorded in rows of `alert`. Silences of operators, weekly maintenance
windows and the notifiers' matching decide who receives a notice, and when.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from costprobe.alerts.rules.faults import FOUND_AT_ONCE, OF_SENSOR
from costprobe.alerts.rules.kinds import rule_of
from costprobe.alerts.rules.rule import SERIES_TAGS, Rule, RuleConfig, over_until
from costprobe.alerts.settings import SEVERITIES, AlertingConfig, MaintenanceConfig, matches
from costprobe.core.clock_step import ClockStep
from costprobe.core.incident import Alert, Fault, Notice, Silence, Symptom, silence_document
from costprobe.core.periods import is_within
from costprobe.core.records import NS_PER_S, REMOVED, Point, Severity, natural
from costprobe.core.schema import SCHEMA, make_point
from costprobe.delivery.contract import NotifierConfig

MAX_SYMPTOMS = 200
MAX_CAUSES = 20
# A drift that grew by this factor is notified again.
GROWTH = 2.0
# Kinds of rule whose symptom is reported at its end as it was at its largest; all others as they fired.
GROWING = ("drift", "budget_exceeded")
# Series of a drift whose message states money.
PRICED = ("cost", "serving_time")
OF_ENERGY = ("energy", "serving_energy")
MAX_HISTORIES = 1000
# State changes within a time that count as flapping, which ends after as long without one.
FLAPPING_CHANGES, FLAPPING_NS = 6, 3600 * NS_PER_S
HISTORY_NS = 7 * 86_400 * NS_PER_S


@dataclass(slots=True)
class Incident:
    """An incident and its state in the engine.

    Attributes:
        alert: The alert as it is listed and sent.
        seen_ns: First observation of each symptom, by rule and series, in steady time.
        quiet_ns: Start of the time without symptoms of a flapping incident, in steady time; else None.
        notified: Last severity, steady time and revision of notification, by notifier.
        causes: Its causes since it fired, `unknown` included.
        size: Largest shift of its drifts at the last revision, in percent.
        is_priced: Whether a drift of a cost is known to those that were notified.
        reported: Each symptom as it fired, or at its largest, by rule and series.
        ended: Each of them that is over, as it was and when.
        leading: Rule and series of the last notified summary.
        places: Tags of its rows, those of its first symptoms: with others a query of the newest state
            would not find its end.
    """

    alert: Alert
    seen_ns: dict[str, int] = field(default_factory=dict)
    quiet_ns: int | None = None
    notified: dict[str, tuple[Severity, int, int]] = field(default_factory=dict)
    causes: list[str] = field(default_factory=list)
    size: float = 0.0
    is_priced: bool = False
    reported: dict[str, Symptom] = field(default_factory=dict)
    ended: dict[str, Symptom] = field(default_factory=dict)
    leading: str = ""
    places: dict[str, str] | None = None

    def record(
        self,
        symptoms: Sequence[Symptom],
        rules: Mapping[str, RuleConfig],
        ended: Callable[[Symptom], Symptom],
    ) -> None:
        """Keep what was reported of each symptom, and what is over.

        Args:
            symptoms: The present symptoms.
            rules: The rules in force, by name.
            ended: Returns a symptom that is over.
        """
        present = {_identity(symptom): symptom for symptom in symptoms}
        for identity in self.reported.keys() - present.keys() - self.ended.keys():
            self.ended[identity] = ended(self.reported[identity])
        for identity, symptom in present.items():
            self.ended.pop(identity, None)
            known = self.reported.get(identity)
            if known is None and len(self.reported) >= MAX_SYMPTOMS:
                continue
            is_larger = (
                known is not None
                and rules[symptom.rule].kind in GROWING
                and abs(symptom.value or 0.0) >= abs(known.value or 0.0)
            )
            if known is None or self.alert.state == "pending":
                self.reported[identity] = symptom
            elif is_larger:
                self.reported[identity] = replace(symptom, since_ns=known.since_ns)

    def revise(self, rules: Mapping[str, RuleConfig]) -> bool:
        """Count a revision if a firing incident has a new cause, or a drift that doubled or is its first of a cost.

        Args:
            rules: The rules in force, by name.
        """
        alert = self.alert
        # An improvement in an incident of deteriorations is no reason to notify again.
        drifts = [
            symptom
            for symptom in alert.symptoms
            if rules[symptom.rule].kind == "drift"
            and (symptom.severity != "info" or alert.severity == "info")
        ]
        is_priced = any(drift.series.startswith(PRICED) for drift in drifts)
        # The summary is about the cost: it would not change with the energy.
        sizes = [
            abs(drift.value or 0.0)
            for drift in drifts
            if not (is_priced and drift.series.startswith(OF_ENERGY))
        ]
        size = max(sizes, default=0.0)
        # An outlier or a threshold names a cause too, but only a drift lasts.
        is_of_drift = any(drift.cause == alert.cause for drift in drifts)
        is_known = alert.cause in {"", "unknown", *self.causes}
        is_new = bool(self.causes) and is_of_drift and not is_known
        is_doubled = 0 < GROWTH * self.size <= size
        if alert.cause and alert.cause not in self.causes:
            self.causes = [*self.causes, alert.cause][-MAX_CAUSES:]
        is_revised = alert.fired_ns is not None and (
            is_new or is_doubled or is_priced > self.is_priced
        )
        self.is_priced = self.is_priced or is_priced
        if is_revised:
            self.alert = replace(alert, revision=alert.revision + 1)
        if is_revised or not self.size:
            self.size = size
        return is_revised

    def is_due(
        self, symptoms: Sequence[Symptom], rules: Mapping[str, RuleConfig], steady_ns: int
    ) -> bool:
        """Return whether a symptom has lasted for `for` of its rule."""
        identities = map(_identity, symptoms)
        self.seen_ns = {each: self.seen_ns.get(each, steady_ns) for each in identities}
        return any(
            steady_ns - self.seen_ns[_identity(symptom)] >= rules[symptom.rule].for_s * NS_PER_S
            for symptom in symptoms
        )


_INCIDENTS = TypeAdapter(dict[str, Incident])


def in_order(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Return alerts in the order of a list: firing ones first, then the worst, then the oldest."""
    return tuple(
        sorted(
            alerts,
            key=lambda alert: (
                alert.state != "firing",
                -SEVERITIES[alert.severity],
                alert.since_ns,
            ),
        )
    )


def with_symptoms(
    alert: Alert, symptoms: Sequence[Symptom], leading: Symptom | None = None
) -> Alert:
    """Return an alert with symptoms, its worst severity so far, summary and cause.

    Args:
        alert: The alert.
        symptoms: Its symptoms.
        leading: The one that the summary is about; None to choose it.
    """
    worst = max([alert.severity, *(s.severity for s in symptoms)], key=SEVERITIES.__getitem__)
    ordered = sorted(symptoms, key=lambda s: (s.since_ns, s.rule, natural(s.series)))
    leading = leading or leading_symptom(ordered)
    others = len(ordered) - 1
    suffix = f" (and {others} more series)" if others > 1 else " (and 1 more series)" * others
    return replace(
        alert,
        severity=worst,
        symptoms=tuple(ordered[:MAX_SYMPTOMS]),
        summary=leading.text + suffix,
        detail=leading.detail,
        cause=leading.cause or alert.cause,
    )


def _identity(symptom: Symptom) -> str:
    return f"{symptom.rule}\n{symptom.series}"


def leading_symptom(symptoms: Sequence[Symptom]) -> Symptom:
    """Return the symptom that the summary is about."""
    return min(symptoms, key=_leading_order)


def _leading_order(symptom: Symptom) -> tuple[bool, bool, bool, int, float, int]:
    """Sort key of the summary: symptoms with a cause first, then of cost or time, then the worst.

    A cause of the energy alone leads no summary without its cost.
    """
    is_unknown = symptom.cause in {"", "unknown"}
    is_priced = symptom.series.startswith(PRICED)
    return (
        is_unknown or symptom.series.startswith(OF_ENERGY),
        not is_priced,
        is_unknown,
        -SEVERITIES[symptom.severity],
        -abs(symptom.value or 0.0) * is_priced,
        symptom.since_ns,
    )


def page_link(public_url: str, time_ns: int) -> str:
    """Return the URL of the dashboard's page at a UTC time in ns."""
    moment = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    return f"{public_url.rstrip('/')}/?at={moment:%Y-%m-%dT%H:%M:%SZ}"


MAX_SILENCES = 1000
# An ended silence is kept this long.
KEPT_NS = 86_400 * NS_PER_S


class Silencing:
    """The silences and maintenance windows of a host.

    Args:
        maintenance: Configured windows.
    """

    def __init__(self, maintenance: Sequence[MaintenanceConfig]) -> None:
        self._maintenance = tuple(maintenance)
        self._silences: dict[str, Silence] = {}

    def add(self, silence: Silence) -> None:
        """Add a silence; it replaces one with the same id.

        Raises:
            ValueError: There are too many, or it ends before it begins.
        """
        if silence.ends_ns <= silence.starts_ns:
            raise ValueError("a silence must end after it begins")
        if len(self._silences) >= MAX_SILENCES and silence.id not in self._silences:
            raise ValueError(f"there are {MAX_SILENCES} silences already; end some first")
        self._silences[silence.id] = silence

    def end(self, silence_id: str, time_ns: int) -> Silence:
        """End a silence at a UTC ns.

        Raises:
            KeyError: No active silence has that id.
        """
        silence = self._silences[silence_id]
        if silence.ends_ns <= time_ns:
            raise KeyError(silence_id)
        return self._silences.pop(silence_id)

    def present(self, time_ns: int) -> tuple[Silence, ...]:
        """Return the silences current at a UTC ns and future ones, in order of their ends."""
        for old in [s.id for s in self._silences.values() if time_ns - s.ends_ns > KEPT_NS]:
            del self._silences[old]
        left = (silence for silence in self._silences.values() if silence.ends_ns > time_ns)
        return tuple(sorted(left, key=lambda silence: (silence.ends_ns, silence.id)))

    def is_silenced(self, labels: Mapping[str, str], time_ns: int) -> bool:
        """Return whether an incident with these labels is silenced at a UTC ns."""
        held = (
            silence.starts_ns <= time_ns < silence.ends_ns and matches(silence.match, labels)
            for silence in self._silences.values()
        )
        return any(held) or any(
            matches(window.match, labels)
            and is_within(window.days, window.start, window.end, window.timezone, time_ns)
            for window in self._maintenance
        )

    def document(self) -> list[dict[str, Any]]:
        """Return the silences as JSON."""
        return [silence_document(silence) for silence in self._silences.values()]

    def restore(self, document: Sequence[Mapping[str, Any]]) -> None:
        """Restore a state."""
        self._silences = {silence["id"]: Silence(**silence) for silence in document}


def common_tags(alert: Alert) -> dict[str, str]:
    """Return the tags with the same value in all symptoms."""
    return {
        tag: next(iter(values))
        for tag in SERIES_TAGS
        if len(values := {symptom.labels.get(tag, "") for symptom in alert.symptoms}) == 1
        if "" not in values
    }


def _all_labels(alert: Alert) -> dict[str, str]:
    """Return all labels of an incident that a pattern may match."""
    return {**common_tags(alert), **alert.labels, "rule": alert.name, "severity": alert.severity}


ROW_TAGS = SCHEMA["alert"].tags

logger = logging.getLogger(__name__)

# Time in which new parts find the faults of sinks, services and feeds, which they read in turn, and a
# new sensor process those of the devices.
RESUMED_NS = 120 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an evaluation of all rules.

    Attributes:
        points: Rows of `alert`, one for each state change of an incident.
        notices: Notifications to send, in order.
        changed: True if there is anything to store.
    """

    points: tuple[Point, ...]
    notices: tuple[Notice, ...]
    changed: bool


class AlertEngine:
    """State of all rules and incidents: no clock, no I/O; the same calls give the same incidents.

    Args:
        rules: The rules in force.
        settings: Settings that all rules share.
        maintenance: Windows without notifications.
        notifiers: Configured notifiers.
        tags: Host and static labels.
        is_current: Returns False for the labels of a series that is no longer measured.
        labels_of: Returns the operator's labels of a series by its tags. Series with different
            ones never share an incident: each team is notified of its own.

    Attributes:
        silencing: Silences and maintenance windows.
    """

    def __init__(
        self,
        rules: Sequence[RuleConfig],
        settings: AlertingConfig,
        maintenance: Sequence[MaintenanceConfig],
        notifiers: Sequence[NotifierConfig],
        tags: Mapping[str, str],
        *,
        is_current: Callable[[Mapping[str, str]], bool] = lambda _: True,
        labels_of: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._is_current = is_current
        self._configs = {config.name: config for config in rules}
        self._settings = settings
        self._notifiers = {notifier.name: notifier for notifier in notifiers}
        self._tags = dict(tags)
        self._labels_of = labels_of
        self.silencing = Silencing(maintenance)
        self._rules: dict[str, Rule[Any, Any]] = {config.name: rule_of(config) for config in rules}
        self._incidents: dict[str, Incident] = {}
        # When incidents of a key fired and were resolved, oldest first, in steady time.
        self._changes: dict[str, list[int]] = {}
        self._listed: tuple[Alert, ...] = ()
        self._last_row_ns = 0
        self._resumed_ns = self._sensor_ns = 0
        # Rules whose stored state was discarded: they find what lasts in the next rows.
        self._discarded: set[str] = set()
        # UTC in ns of the evaluation, and the sum of all steps of the wall clock: without them it is
        # steady time, in which durations are measured.
        self._time_ns = self._stepped_ns = 0
        self._points: list[Point] = []
        self._notices: list[Notice] = []

    def observe(self, point: Point) -> None:
        """Add a stored row of any series."""
        for name, rule in self._rules.items():
            if rule.measurement == point.measurement:
                pattern = self._configs[name].match
                tags = (
                    {**self._tags, **self._labels_of(point.tags), **point.tags} if pattern else {}
                )
                if matches(pattern, tags):
                    rule.observe(point)
        if point.measurement == "event" and point.fields.get("cause") == REMOVED:
            for rule in self._rules.values():
                rule.forget_device(point.tags["device"])

    def tick(self, time_ns: int, faults: Collection[Fault]) -> Outcome:
        """Evaluate every rule.

        Args:
            time_ns: Current UTC in ns; not before that of the previous call.
            faults: All current faults.
        """
        self._time_ns = time_ns
        self._points, self._notices = [], []
        by_key: dict[str, list[Symptom]] = {}
        for name, rule in self._rules.items():
            pattern = self._configs[name].match
            selected = [
                fault
                for fault in faults
                if matches(pattern, {**self._tags, **fault.labels, **self._labels_of(fault.labels)})
            ]
            for symptom in rule.evaluate(time_ns, selected):
                if self._is_current(symptom.labels):
                    by_key.setdefault(self._group(symptom)[0], []).append(symptom)
        for key in dict.fromkeys((*self._incidents, *by_key)):
            self._advance(key, by_key.get(key, []))
        for incident in self._incidents.values():
            if incident.alert.state == "firing":
                self._notify(incident)
        recent = [
            (key, changes[-FLAPPING_CHANGES:])
            for key, changes in self._changes.items()
            if key in self._incidents or self._steady_ns - changes[-1] <= HISTORY_NS
        ]
        self._changes = dict(recent[-MAX_HISTORIES:])
        listed = self.alerts()
        changed = bool(self._points or self._notices) or listed != self._listed
        self._listed = listed
        return Outcome(tuple(self._points), tuple(self._notices), changed)

    @property
    def _steady_ns(self) -> int:
        return self._time_ns - self._stepped_ns

    def alerts(self) -> tuple[Alert, ...]:
        """Return the pending and firing incidents, the worst and oldest first."""
        return in_order(incident.alert for incident in self._incidents.values())

    def is_silenced(self, alert: Alert, time_ns: int) -> bool:
        """Return whether a silence or a maintenance window applies to an alert at a UTC ns."""
        return self.silencing.is_silenced(_all_labels(alert), time_ns)

    def silenced(self, time_ns: int) -> tuple[Alert, ...]:
        """Return the incidents that are silenced at a UTC ns."""
        return tuple(alert for alert in self.alerts() if self.is_silenced(alert, time_ns))

    def firing_for(self, notifier: str, time_ns: int) -> tuple[Alert, ...]:
        """Return the firing, unsilenced incidents that a notifier was notified of."""
        return tuple(
            incident.alert
            for incident in self._incidents.values()
            if incident.alert.state == "firing" and notifier in incident.notified
            if not self.is_silenced(incident.alert, time_ns)
        )

    def document(self) -> dict[str, Any]:
        """Return the complete state as JSON."""
        return {
            "incidents": _INCIDENTS.dump_python(self._incidents, mode="json"),
            "changes": self._changes,
            "stepped_ns": self._stepped_ns,
            "silences": self.silencing.document(),
            "last_row_ns": self._last_row_ns,
            "rules": {
                name: [self._configs[name].kind, rule.document()]
                for name, rule in self._rules.items()
            },
        }

    def restore(
        self, document: Mapping[str, Any], resumed_ns: int = 0, sensor_ns: int | None = None
    ) -> None:
        """Restore a state, also one saved under other rules: incidents without a rule are resolved.

        The damaged state of a rule is discarded; its incidents may continue.

        Args:
            document: The state.
            resumed_ns: UTC in ns of the start of new parts, which do not know all faults yet; 0 if all
                are known.
            sensor_ns: The same of the sensors, which find the faults of devices; None for no other instant.
        """
        self._incidents = _INCIDENTS.validate_python(document["incidents"])
        self._changes = {key: [*changes] for key, changes in document.get("changes", {}).items()}
        self._stepped_ns = document.get("stepped_ns", 0)
        self.silencing.restore(document["silences"])
        self._last_row_ns = document["last_row_ns"]
        for name, (kind, stored) in document["rules"].items():
            if name in self._rules and self._configs[name].kind == kind:
                try:
                    self._rules[name].restore(stored)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    logger.warning("rule %s: discarded a damaged state: %s", name, error)
                    self._discarded.add(name)
        self._resumed_ns = resumed_ns - self._stepped_ns
        self._sensor_ns = (resumed_ns if sensor_ns is None else sensor_ns) - self._stepped_ns

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants: no duration includes a wall-clock step.

        The instants in listed alerts stay as reported.
        """
        self._stepped_ns += step.by_ns
        self._last_row_ns = min(self._last_row_ns, self._last_row_ns + step.by_ns)
        for incident in self._incidents.values():
            incident.reported = {
                identity: replace(symptom, since_ns=step.of_ns(symptom.since_ns))
                for identity, symptom in incident.reported.items()
            }
        for rule in self._rules.values():
            rule.restore(step.of_document(rule.document()))

    def _group(self, symptom: Symptom) -> tuple[str, dict[str, str]]:
        """Return what is the same for all symptoms of an incident, and the labels that identify it."""
        rule = self._configs[symptom.rule]
        labels = self._labels_of(symptom.labels)
        tags = {**self._tags, **symptom.labels, **labels}
        distinct = dict.fromkeys((*rule.group_by, *sorted(labels)))
        values = (f"{tag}={tags.get(tag, '')}" for tag in distinct)
        grouped = {tag: tags[tag] for tag in rule.group_by if tags.get(tag)}
        key = "\n".join((rule.group or rule.name, *values))
        return key, {**self._tags, **grouped, **labels, **rule.labels}

    def _new_incident(self, key: str, symptoms: Sequence[Symptom]) -> Incident:
        """Return a new pending incident."""
        rule, public_url = self._configs[symptoms[0].rule], self._settings.public_url
        since_ns = min(self._time_ns, *(symptom.since_ns for symptom in symptoms))
        alert = Alert(
            id=hashlib.sha256(f"{key}\n{self._time_ns}".encode()).hexdigest()[:16],
            name=rule.group or rule.name,
            state="pending",
            severity="info",
            labels=self._group(symptoms[0])[1],
            summary="",
            symptoms=(),
            since_ns=since_ns,
            link=page_link(public_url, since_ns) if public_url else "",
        )
        return Incident(alert)

    def _advance(self, key: str, symptoms: Sequence[Symptom]) -> None:
        """Advance the state of an incident."""
        known = self._incidents.get(key)
        if known is not None and not symptoms and self._is_held(known):
            return
        incident = self._incidents[key] = known or self._new_incident(key, symptoms)
        incident.record(symptoms, self._configs, self._ended)
        if not symptoms:
            self._resolve(key, incident)
            return
        incident.quiet_ns = None
        severity = incident.alert.severity
        incident.alert = with_symptoms(incident.alert, symptoms)
        is_due = incident.is_due(symptoms, self._configs, self._steady_ns)
        if incident.alert.state == "pending":
            if is_due and not self._is_cooling(key, symptoms):
                self._fire(key, incident)
            elif known is None:
                self._record(incident)
        elif incident.revise(self._configs) or incident.alert.severity != severity:
            incident.leading = _identity(leading_symptom(symptoms))
            self._record(incident)

    def _fire(self, key: str, incident: Incident) -> None:
        self._changes.setdefault(key, []).append(self._steady_ns)
        incident.revise(self._configs)
        incident.leading = _identity(leading_symptom(incident.alert.symptoms))
        incident.alert = replace(
            incident.alert,
            state="firing",
            fired_ns=self._time_ns,
            is_flapping=self._is_flapping(key),
        )
        self._record(incident)

    def _resolve(self, key: str, incident: Incident) -> None:
        """Resolve an incident without symptoms; a flapping one only after the flapping window."""
        was_firing = incident.alert.state == "firing"
        if was_firing and self._is_flapping(key):
            incident.alert = replace(incident.alert, is_flapping=True)
        if incident.alert.is_flapping:
            incident.quiet_ns = incident.quiet_ns or self._steady_ns
            if self._steady_ns - incident.quiet_ns < FLAPPING_NS:
                return
        ended = tuple(incident.ended.values())
        alert = with_symptoms(incident.alert, ended, incident.ended.get(incident.leading))
        incident.alert = replace(alert, state="resolved", ended_ns=self._time_ns)
        if was_firing:
            self._changes.setdefault(key, []).append(self._steady_ns)
        self._record(incident)
        notifiers = (self._notifiers.get(name) for name in incident.notified)
        self._notices += [
            Notice(notifier.name, incident.alert)
            for notifier in notifiers
            if notifier is not None and notifier.send_resolved
        ]
        del self._incidents[key]

    def _ended(self, symptom: Symptom) -> Symptom:
        """Return a symptom that is over since this evaluation."""
        rule = self._rules.get(symptom.rule)
        return (over_until if rule is None else rule.ended)(symptom, self._time_ns)

    def _is_held(self, incident: Incident) -> bool:
        """Whether an incident may not end yet: new parts find faults, and rules without a state all, after a while."""
        return any(
            symptom.rule in self._configs
            and self._is_current(symptom.labels)
            and self._steady_ns < self._found_by_ns(symptom)
            for symptom in incident.alert.symptoms
        )

    def _found_by_ns(self, symptom: Symptom) -> int:
        """By when, in steady time, what lasts is found again after a start; 0 for at once."""
        if symptom.rule not in self._discarded:
            fault = symptom.series.split()[0]
            if self._configs[symptom.rule].kind != "fault" or fault in FOUND_AT_ONCE:
                return 0
            if fault in OF_SENSOR:
                return self._sensor_ns + RESUMED_NS
        return self._resumed_ns + RESUMED_NS

    def _is_flapping(self, key: str) -> bool:
        """Return whether the state changed too often in the flapping window."""
        since_ns = self._steady_ns - FLAPPING_NS
        changes = self._changes.get(key, [])
        return sum(at_ns > since_ns for at_ns in changes) >= FLAPPING_CHANGES

    def _is_cooling(self, key: str, symptoms: Sequence[Symptom]) -> bool:
        """Return whether the cool-down of a resolved incident still applies."""
        cool_down_s = max(self._configs[symptom.rule].cool_down_s for symptom in symptoms)
        latest = self._changes.get(key, [])[-1:]
        return any(self._steady_ns - at_ns < cool_down_s * NS_PER_S for at_ns in latest)

    def _notify(self, incident: Incident) -> None:
        """Add the notices of a firing incident that are due: the first, of a higher severity, of a revision, repeated."""
        alert = incident.alert
        if self.is_silenced(alert, self._time_ns):
            return
        for notifier in self._recipients(incident):
            before, at_ns, revision = incident.notified.get(notifier.name, (None, 0, -1))
            is_raised = before is not None and SEVERITIES[alert.severity] > SEVERITIES[before]
            is_repeated = (
                notifier.repeat_s is not None
                and self._steady_ns - at_ns >= notifier.repeat_s * NS_PER_S
            )
            if is_raised or is_repeated or alert.revision > revision:
                raised = replace(alert, raised_from=before) if is_raised else alert
                self._notices.append(Notice(notifier.name, raised))
                incident.notified[notifier.name] = alert.severity, self._steady_ns, alert.revision

    def _recipients(self, incident: Incident) -> list[NotifierConfig]:
        alert, labels = incident.alert, _all_labels(incident.alert)
        rules = [self._configs[s.rule] for s in alert.symptoms if s.rule in self._configs]
        wanted = set(incident.notified)
        for rule in rules:
            wanted |= set(self._notifiers if rule.notify is None else rule.notify)
        return [
            notifier
            for name, notifier in self._notifiers.items()
            if name in wanted
            if SEVERITIES[alert.severity] >= SEVERITIES[notifier.min_severity]
            if matches(notifier.match, labels)
        ]

    def _record(self, incident: Incident) -> None:
        """Append a row of `alert`; no two rows have the same time, all of an incident the same places."""
        alert = incident.alert
        self._last_row_ns = max(self._time_ns, self._last_row_ns + 1)
        if incident.places is None:
            found = common_tags(alert)
            incident.places = {tag: value for tag, value in found.items() if tag in ROW_TAGS}
        state = {"rule": alert.name, "state": alert.state}
        labels = self._labels_of(alert.symptoms[0].labels)
        single = alert.symptoms[0] if len(alert.symptoms) == 1 else None
        fields = {
            "id": alert.id,
            "severity": alert.severity,
            "summary": alert.summary,
            "detail": alert.detail or None,
            "cause": alert.cause or None,
            "value": single.value if single else None,
            "threshold": single.threshold if single else None,
            "since": alert.since_ns / NS_PER_S,
            "symptoms": len(alert.symptoms),
            "flapping": alert.is_flapping,
            "silenced": self.is_silenced(alert, self._time_ns),
        }
        tags = {**self._tags, **state, **incident.places, **labels}
        self._points.append(make_point("alert", tags, fields, self._last_row_ns))
