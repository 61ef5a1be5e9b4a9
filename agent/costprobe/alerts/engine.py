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
        seen_ns: First observation of each symptom, by rule and series, UTC ns.
        quiet_ns: Start of the time without symptoms of a flapping incident, UTC ns; else None.
        notified: Last severity, UTC ns and revision of notification, by notifier.
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

    def shift(self, step_ns: int) -> None:
        """Shift stored instants by a wall-clock step in ns."""
        self.seen_ns = {series: at_ns + step_ns for series, at_ns in self.seen_ns.items()}
        self.reported = {
            series: replace(symptom, since_ns=symptom.since_ns + step_ns)
            for series, symptom in self.reported.items()
        }
        if self.quiet_ns is not None:
            self.quiet_ns += step_ns
        self.notified = {
            name: (worst, at_ns + step_ns, revision)
            for name, (worst, at_ns, revision) in self.notified.items()
        }


_INCIDENTS = TypeAdapter(dict[str, Incident])


@dataclass(slots=True)
class IncidentHistory:
    """State of an incident key that outlives its incidents.

    Attributes:
        resolved_ns: UTC ns of the last resolution; None before the first.
        changes_ns: UTC ns of recent firings and resolutions.
    """

    resolved_ns: int | None = None
    changes_ns: list[int] = field(default_factory=list)

    def shift(self, step_ns: int) -> None:
        """Shift stored instants by a wall-clock step in ns."""
        if self.resolved_ns is not None:
            self.resolved_ns += step_ns
        self.changes_ns = [at_ns + step_ns for at_ns in self.changes_ns]

    def is_flapping(self, time_ns: int) -> bool:
        """Return whether the state changed too often in the flapping window."""
        since_ns = time_ns - FLAPPING_NS
        self.changes_ns = [at_ns for at_ns in self.changes_ns if at_ns > since_ns]
        return len(self.changes_ns) >= FLAPPING_CHANGES

    def is_cooling(self, cool_down_s: float, time_ns: int) -> bool:
        """Return whether the cool-down of a resolved incident still applies."""
        if self.resolved_ns is None:
            return False
        return time_ns - self.resolved_ns < cool_down_s * NS_PER_S


def expire(
    histories: dict[str, IncidentHistory], incidents: Mapping[str, Incident], time_ns: int
) -> None:
    """Remove histories without a change for HISTORY_NS, and the oldest beyond MAX_HISTORIES.

    Args:
        histories: Histories by the key of their incidents.
        incidents: The present incidents, whose histories stay.
        time_ns: Present UTC in ns.
    """
    for key, history in list(histories.items()):
        latest_ns = max([history.resolved_ns or 0, *history.changes_ns])
        if key not in incidents and time_ns - latest_ns > HISTORY_NS:
            del histories[key]
    for key in [key for key in histories if key not in incidents][:-MAX_HISTORIES]:
        del histories[key]


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


def new_incident(
    name: str, key: str, labels: Mapping[str, str], symptoms: Sequence[Symptom], time_ns: int
) -> Incident:
    """Return a new pending incident."""
    identity = hashlib.sha256(f"{key}\n{time_ns}".encode()).hexdigest()[:16]
    alert = Alert(
        id=identity,
        name=name,
        state="pending",
        severity="info",
        labels=dict(labels),
        summary="",
        symptoms=(),
        since_ns=min(time_ns, *(symptom.since_ns for symptom in symptoms)),
    )
    return Incident(with_symptoms(alert, symptoms))


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


def is_due(
    incident: Incident, symptoms: Sequence[Symptom], rules: Mapping[str, RuleConfig], time_ns: int
) -> bool:
    """Return whether a symptom has lasted for `for` of its rule."""
    seen_ns = {}
    for symptom in symptoms:
        identity = _identity(symptom)
        seen_ns[identity] = incident.seen_ns.get(identity, time_ns)
    incident.seen_ns = seen_ns
    return any(
        time_ns - seen_ns[_identity(symptom)] >= rules[symptom.rule].for_s * NS_PER_S
        for symptom in symptoms
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
        starts_ns = min(silence.starts_ns, time_ns)
        self._silences[silence_id] = replace(silence, starts_ns=starts_ns, ends_ns=time_ns)
        return silence

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


class NoticeRules:
    """Decides which notifiers receive a notice: first ones, higher severities, revisions, repetitions, ends.

    Args:
        rules: The rules in force, by name.
        notifiers: The configured notifiers.
        silencing: Silences and maintenance windows.
    """

    def __init__(
        self,
        rules: Mapping[str, RuleConfig],
        notifiers: Sequence[NotifierConfig],
        silencing: Silencing,
    ) -> None:
        self._rules = rules
        self._notifiers = {notifier.name: notifier for notifier in notifiers}
        self._silencing = silencing

    def due(self, incident: Incident, time_ns: int) -> list[Notice]:
        """Return the notices of a firing incident that are due, and record them in it.

        Args:
            incident: The incident.
            time_ns: Current UTC in ns.
        """
        alert = incident.alert
        if self.is_silenced(alert, time_ns):
            return []
        due = []
        for name in self._recipients(incident):
            last = incident.notified.get(name)
            repeat_s = self._notifiers[name].repeat_s
            if last is None:
                due.append(Notice(name, alert))
            elif SEVERITIES[alert.severity] > SEVERITIES[last[0]]:
                due.append(Notice(name, replace(alert, raised_from=last[0])))
            elif alert.revision > last[2] or (
                repeat_s is not None and time_ns - last[1] >= repeat_s * NS_PER_S
            ):
                due.append(Notice(name, alert))
            else:
                continue
            incident.notified[name] = (alert.severity, time_ns, alert.revision)
        return due

    def ended(self, incident: Incident) -> list[Notice]:
        """Return the notices of a resolved incident, to those that were notified of it."""
        notifiers = (self._notifiers.get(name) for name in incident.notified)
        return [
            Notice(notifier.name, incident.alert)
            for notifier in notifiers
            if notifier is not None and notifier.send_resolved
        ]

    def is_silenced(self, alert: Alert, time_ns: int) -> bool:
        """Return whether a silence or a maintenance window applies to an alert at a UTC ns."""
        return self._silencing.is_silenced(_all_labels(alert), time_ns)

    def _recipients(self, incident: Incident) -> list[str]:
        alert = incident.alert
        rules = [self._rules[s.rule] for s in alert.symptoms if s.rule in self._rules]
        wanted = set(incident.notified)
        for rule in rules:
            wanted |= set(self._notifiers if rule.notify is None else rule.notify)
        labels = _all_labels(alert)
        return [
            name
            for name, notifier in self._notifiers.items()
            if name in wanted
            if SEVERITIES[alert.severity] >= SEVERITIES[notifier.min_severity]
            if matches(notifier.match, labels)
        ]


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


def alert_row(alert: Alert, tags: Mapping[str, str], time_ns: int, *, is_silenced: bool) -> Point:
    """Return the row of `alert` that records the state of an incident.

    Args:
        alert: The incident.
        tags: Tags of the row.
        time_ns: UTC in ns.
        is_silenced: Whether it is silenced.
    """
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
        "silenced": is_silenced,
    }
    return make_point("alert", dict(tags), fields, time_ns)


logger = logging.getLogger(__name__)

# Time in which a new process finds the faults of sinks, services and feeds, which it reads in turn.
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
        self._tags = dict(tags)
        self._labels_of = labels_of
        self.silencing = Silencing(maintenance)
        self._notice_rules = NoticeRules(self._configs, notifiers, self.silencing)
        self._rules: dict[str, Rule[Any, Any]] = {config.name: rule_of(config) for config in rules}
        self._incidents: dict[str, Incident] = {}
        self._histories: dict[str, IncidentHistory] = {}
        self._listed: tuple[Alert, ...] = ()
        self._last_row_ns = 0
        self._resumed_ns = 0
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
        self._points, self._notices = [], []
        by_rule: dict[str, list[Symptom]] = {}
        for symptom in self._symptoms(time_ns, faults):
            if not self._is_current(symptom.labels):
                continue
            by_rule.setdefault(self._key(symptom), []).append(symptom)
        for key in [*self._incidents, *(key for key in by_rule if key not in self._incidents)]:
            self._advance(key, by_rule.get(key, []), time_ns)
        for incident in self._incidents.values():
            if incident.alert.state == "firing":
                self._notices += self._notice_rules.due(incident, time_ns)
        expire(self._histories, self._incidents, time_ns)
        listed = self.alerts()
        changed = bool(self._points or self._notices) or listed != self._listed
        self._listed = listed
        return Outcome(tuple(self._points), tuple(self._notices), changed)

    def alerts(self) -> tuple[Alert, ...]:
        """Return the pending and firing incidents, the worst and oldest first."""
        return in_order(incident.alert for incident in self._incidents.values())

    def silenced(self, time_ns: int) -> tuple[Alert, ...]:
        """Return the incidents that are silenced at a UTC ns."""
        return tuple(
            alert for alert in self.alerts() if self._notice_rules.is_silenced(alert, time_ns)
        )

    def firing_for(self, notifier: str, time_ns: int) -> tuple[Alert, ...]:
        """Return the firing, unsilenced incidents that a notifier was notified of."""
        return tuple(
            incident.alert
            for incident in self._incidents.values()
            if incident.alert.state == "firing" and notifier in incident.notified
            if not self._notice_rules.is_silenced(incident.alert, time_ns)
        )

    def document(self) -> dict[str, Any]:
        """Return the complete state as JSON."""
        return {
            "incidents": _INCIDENTS.dump_python(self._incidents, mode="json"),
            "histories": {
                key: [history.resolved_ns, history.changes_ns]
                for key, history in self._histories.items()
            },
            "silences": self.silencing.document(),
            "last_row_ns": self._last_row_ns,
            "rules": {
                name: [self._configs[name].kind, rule.document()]
                for name, rule in self._rules.items()
            },
        }

    def restore(self, document: Mapping[str, Any], resumed_ns: int = 0) -> None:
        """Restore a state, also one saved under other rules: incidents without a rule are resolved.

        The damaged state of a rule is discarded.

        Args:
            document: The state.
            resumed_ns: UTC in ns of the start of a new process, which does not know its faults yet;
                0 for the same process.
        """
        self._incidents = _INCIDENTS.validate_python(document["incidents"])
        self._histories = {
            key: IncidentHistory(resolved_ns, list(changes_ns))
            for key, (resolved_ns, changes_ns) in document["histories"].items()
        }
        self.silencing.restore(document["silences"])
        self._last_row_ns = document["last_row_ns"]
        for name, (kind, stored) in document["rules"].items():
            if name in self._rules and self._configs[name].kind == kind:
                try:
                    self._rules[name].restore(stored)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    logger.warning("rule %s: discarded a damaged state: %s", name, error)
        self._resumed_ns = resumed_ns

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants: no duration includes a wall-clock step.

        The instants in listed alerts stay as reported.
        """
        step_ns = step.by_ns
        self._resumed_ns += step_ns
        for incident in self._incidents.values():
            incident.shift(step_ns)
        for history in self._histories.values():
            history.shift(step_ns)
        self._last_row_ns = min(self._last_row_ns, self._last_row_ns + step_ns)
        for rule in self._rules.values():
            rule.restore(step.of_document(rule.document()))

    def _symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        """Evaluate every rule.

        Args:
            time_ns: Current UTC in ns.
            faults: All current faults.
        """
        symptoms = []
        for name, rule in self._rules.items():
            pattern = self._configs[name].match
            selected = [
                fault
                for fault in faults
                if matches(pattern, {**self._tags, **fault.labels, **self._labels_of(fault.labels)})
            ]
            symptoms += rule.evaluate(time_ns, selected)
        return symptoms

    def _ended(self, symptom: Symptom, time_ns: int) -> Symptom:
        """Return a symptom that is over since an evaluation at a UTC ns."""
        rule = self._rules.get(symptom.rule)
        return (over_until if rule is None else rule.ended)(symptom, time_ns)

    def _key(self, symptom: Symptom) -> str:
        """Return what is the same for all symptoms of an incident."""
        rule = self._configs[symptom.rule]
        labels = self._labels_of(symptom.labels)
        tags = {**self._tags, **symptom.labels, **labels}
        distinct = dict.fromkeys((*rule.group_by, *sorted(labels)))
        values = (f"{tag}={tags.get(tag, '')}" for tag in distinct)
        return "\n".join((rule.group or rule.name, *values))

    def _labels(self, symptom: Symptom) -> dict[str, str]:
        """Return the labels that identify an incident."""
        rule = self._configs[symptom.rule]
        labels = self._labels_of(symptom.labels)
        tags = {**self._tags, **symptom.labels, **labels}
        grouped = {tag: tags[tag] for tag in rule.group_by if tags.get(tag)}
        return {**self._tags, **grouped, **labels, **rule.labels}

    def _advance(self, key: str, symptoms: Sequence[Symptom], time_ns: int) -> None:
        """Advance the state of an incident."""
        incident = self._incidents.get(key)
        history = self._histories.setdefault(key, IncidentHistory())
        if incident is None:
            first = symptoms[0]
            rule = self._configs[first.rule]
            name = rule.group or rule.name
            incident = new_incident(name, key, self._labels(first), symptoms, time_ns)
            if self._settings.public_url is not None:
                link = page_link(self._settings.public_url, incident.alert.since_ns)
                incident.alert = replace(incident.alert, link=link)
            self._incidents[key] = incident
            incident.record(symptoms, self._configs, lambda symptom: symptom)
            due = is_due(incident, symptoms, self._configs, time_ns)
            if not due or self._is_cooling(symptoms, history, time_ns):
                self._record(incident, time_ns)
                return
            self._fire(incident, history, time_ns)
            return
        if not symptoms and self._is_held(incident, time_ns):
            return
        incident.record(symptoms, self._configs, lambda symptom: self._ended(symptom, time_ns))
        if not symptoms:
            self._resolve(key, incident, history, time_ns)
            return
        incident.quiet_ns = None
        severity = incident.alert.severity
        incident.alert = with_symptoms(incident.alert, symptoms)
        due = is_due(incident, symptoms, self._configs, time_ns)
        if incident.alert.state == "pending":
            if due and not self._is_cooling(symptoms, history, time_ns):
                self._fire(incident, history, time_ns)
        elif incident.revise(self._configs) or incident.alert.severity != severity:
            incident.leading = _identity(leading_symptom(symptoms))
            self._record(incident, time_ns)

    def _fire(self, incident: Incident, history: IncidentHistory, time_ns: int) -> None:
        history.changes_ns.append(time_ns)
        incident.revise(self._configs)
        incident.leading = _identity(leading_symptom(incident.alert.symptoms))
        incident.alert = replace(
            incident.alert,
            state="firing",
            fired_ns=time_ns,
            is_flapping=history.is_flapping(time_ns),
        )
        self._record(incident, time_ns)

    def _resolve(
        self, key: str, incident: Incident, history: IncidentHistory, time_ns: int
    ) -> None:
        """Resolve an incident without symptoms; a flapping one only after the flapping window."""
        if incident.alert.state == "firing" and history.is_flapping(time_ns):
            incident.alert = replace(incident.alert, is_flapping=True)
        if incident.alert.is_flapping:
            incident.quiet_ns = incident.quiet_ns or time_ns
            if time_ns - incident.quiet_ns < FLAPPING_NS:
                return
        was_firing = incident.alert.state == "firing"
        ended = tuple(incident.ended.values())
        alert = with_symptoms(incident.alert, ended, incident.ended.get(incident.leading))
        incident.alert = replace(alert, state="resolved", ended_ns=time_ns)
        if was_firing:
            history.resolved_ns = time_ns
            history.changes_ns.append(time_ns)
        self._record(incident, time_ns)
        self._notices += self._notice_rules.ended(incident)
        del self._incidents[key]

    def _is_held(self, incident: Incident, time_ns: int) -> bool:
        """Whether an incident of faults may not end yet: a new process finds them only after a while."""
        return time_ns - self._resumed_ns < RESUMED_NS and any(
            symptom.rule in self._configs
            and self._configs[symptom.rule].kind == "fault"
            and self._is_current(symptom.labels)
            for symptom in incident.alert.symptoms
        )

    def _is_cooling(
        self, symptoms: Sequence[Symptom], history: IncidentHistory, time_ns: int
    ) -> bool:
        cool_down_s = max(self._configs[symptom.rule].cool_down_s for symptom in symptoms)
        return history.is_cooling(cool_down_s, time_ns)

    def _record(self, incident: Incident, time_ns: int) -> None:
        """Append a row of `alert`; no two rows have the same time, all of an incident the same places."""
        alert = incident.alert
        self._last_row_ns = max(time_ns, self._last_row_ns + 1)
        is_silenced = self._notice_rules.is_silenced(alert, time_ns)
        if incident.places is None:
            found = common_tags(alert)
            incident.places = {tag: value for tag, value in found.items() if tag in ROW_TAGS}
        labels = self._labels_of(alert.symptoms[0].labels)
        state = {"rule": alert.name, "state": alert.state}
        tags = {**self._tags, **state, **incident.places, **labels}
        self._points.append(alert_row(alert, tags, self._last_row_ns, is_silenced=is_silenced))
