"""The engine: from rows, events and faults to incidents, and from incidents to notices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.alert import Alert, AlertState, Fault, Notice, Silence, Symptom
from agent.alerting.incidents import Incident, Past, begun, described, is_due
from agent.alerting.matching import SEVERITIES, matches
from agent.alerting.rules.evaluator import SERIES_TAGS, Evaluator
from agent.alerting.rules.registry import build, measurement_of
from agent.alerting.silencing import Silencing
from agent.calendar_step import CalendarStep
from agent.config_alerting import AlertingConfig, MaintenanceConfig, RuleConfig
from agent.config_notifier import NotifierConfig
from agent.model import NS_PER_S, Event, Point
from agent.series import SCHEMA, make_point

logger = logging.getLogger(__name__)

ROW_TAGS = SCHEMA["alert"].tags
MAX_PAST = 1000
PAST_NS = 7 * 86_400 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a tick.

    Attributes:
        points: Rows of `alert`, one for each change of an incident's state.
        notices: What is to be told to whom, in order.
        changed: True if anything is to be kept.
    """

    points: tuple[Point, ...]
    notices: tuple[Notice, ...]
    changed: bool


class AlertEngine:
    """Rules at work: pure, without a clock; the same calls give the same incidents.

    Args:
        rules: The rules in force.
        settings: What they share.
        maintenance: Windows in which nobody is told.
        notifiers: Who may be told of what.
        tags: Host and static labels.
        is_current: False for the labels of a series that is measured no more: it has no symptoms.
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
    ) -> None:
        self._is_current = is_current
        self._rules = {rule.name: rule for rule in rules}
        self._settings = settings
        self._notifiers = {notifier.name: notifier for notifier in notifiers}
        self._tags = dict(tags)
        self._silencing = Silencing(maintenance)
        self._evaluators: dict[str, Evaluator] = {rule.name: build(rule) for rule in rules}
        self._looking: dict[str, list[tuple[RuleConfig, Evaluator]]] = {}
        for rule in rules:
            entry = (rule, self._evaluators[rule.name])
            self._looking.setdefault(measurement_of(rule), []).append(entry)
        self._incidents: dict[str, Incident] = {}
        self._past: dict[str, Past] = {}
        self._listed: tuple[Alert, ...] = ()
        self._last_row_ns = 0
        self._points: list[Point] = []
        self._notices: list[Notice] = []

    def observe(self, point: Point) -> None:
        """Takes a row that was kept, of any series."""
        for rule, evaluator in self._looking.get(point.measurement, ()):
            if not rule.match or matches(rule.match, point.tags):
                evaluator.observe(point)

    def notice(self, event: Event) -> None:
        """Takes an event; drifts and anomalies matter here."""
        if event.kind not in {"drift", "anomaly"}:
            return
        tags = {**self._tags, **event.subject, "device": event.device, "metric": event.metric}
        for name, evaluator in self._evaluators.items():
            if matches(self._rules[name].match, tags):
                evaluator.notice(event)

    def tick(self, time_ns: int, faults: Collection[Fault]) -> Outcome:
        """Evaluates every rule.

        Args:
            time_ns: UTC in ns of now; not before the last tick's.
            faults: Everything that is broken now.
        """
        self._points, self._notices = [], []
        found: dict[str, list[Symptom]] = {}
        for symptom in self._symptoms(time_ns, faults):
            found.setdefault(self._key(symptom), []).append(symptom)
        for key in [*self._incidents, *(key for key in found if key not in self._incidents)]:
            self._advance(key, found.get(key, []), time_ns)
        for key, incident in self._incidents.items():
            if incident.alert.state == "firing":
                self._tell(key, incident, time_ns)
        self._forget(time_ns)
        listed = self.alerts()
        changed = bool(self._points or self._notices) or listed != self._listed
        self._listed = listed
        return Outcome(tuple(self._points), tuple(self._notices), changed)

    def alerts(self) -> tuple[Alert, ...]:
        """The incidents that are pending or firing, the worst and oldest first."""
        listed = (incident.alert for incident in self._incidents.values())
        return tuple(
            sorted(
                listed,
                key=lambda alert: (
                    alert.state != "firing",
                    -SEVERITIES[alert.severity],
                    alert.since_ns,
                ),
            )
        )

    def silenced(self, time_ns: int) -> tuple[Alert, ...]:
        """The incidents of which nobody is told now."""
        return tuple(alert for alert in self.alerts() if self._is_silenced(alert, time_ns))

    def firing_for(self, notifier: str, time_ns: int) -> tuple[Alert, ...]:
        """What a notifier was told, still fires and is not silenced."""
        return tuple(
            incident.alert
            for incident in self._incidents.values()
            if incident.alert.state == "firing" and notifier in incident.told
            if not self._is_silenced(incident.alert, time_ns)
        )

    def add_silence(self, silence: Silence) -> None:
        """Adds a silence.

        Raises:
            ValueError: There are too many, or it ends before it begins.
        """
        self._silencing.add(silence)

    def end_silence(self, silence_id: str, time_ns: int) -> Silence:
        """Ends a silence.

        Raises:
            KeyError: There is none of that id that has not ended.
        """
        return self._silencing.end(silence_id, time_ns)

    def silences(self, time_ns: int) -> tuple[Silence, ...]:
        """The silences that hold or will, the first to end first."""
        return self._silencing.present(time_ns)

    def document(self) -> dict[str, Any]:
        """Everything that the next ticks depend on, as JSON."""
        return {
            "incidents": {key: i.to_document() for key, i in self._incidents.items()},
            "past": {key: [past.resolved_ns, past.changes_ns] for key, past in self._past.items()},
            "silences": self._silencing.document(),
            "last_row_ns": self._last_row_ns,
            "rules": {
                name: [self._rules[name].kind, evaluator.document()]
                for name, evaluator in self._evaluators.items()
            },
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Goes on from a document, also one of other rules: what no rule finds any more ends."""
        self._incidents = {
            key: Incident.from_document(kept) for key, kept in document["incidents"].items()
        }
        self._past = {
            key: Past(resolved_ns, list(changes_ns))
            for key, (resolved_ns, changes_ns) in document["past"].items()
        }
        self._silencing.restore(document["silences"])
        self._last_row_ns = document["last_row_ns"]
        for name, (kind, kept) in document["rules"].items():
            if name in self._rules and self._rules[name].kind == kind:
                try:
                    self._evaluators[name].restore(kept)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    logger.warning("rule %s begins anew, what it knew is damaged: %s", name, error)

    def clock_was_stepped(self, step: CalendarStep) -> None:
        """Goes on behind a step of the calendar: nothing lasted for the time that was skipped.

        What an incident is listed with stays as it was told.
        """
        step_ns = step.by_ns
        for incident in self._incidents.values():
            incident.shift(step_ns)
        for past in self._past.values():
            past.shift(step_ns)
        self._last_row_ns = min(self._last_row_ns, self._last_row_ns + step_ns)
        for evaluator in self._evaluators.values():
            evaluator.clock_was_stepped(step)

    def _symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
        found = []
        for name, evaluator in self._evaluators.items():
            match = self._rules[name].match
            fitting = [f for f in faults if matches(match, {**self._tags, **f.labels})]
            found += evaluator.symptoms(time_ns, fitting)
        return [symptom for symptom in found if self._is_current(symptom.labels)]

    def _group(self, symptom: Symptom) -> str:
        rule = self._rules[symptom.rule]
        return rule.group or rule.name

    def _key(self, symptom: Symptom) -> str:
        tags = {**self._tags, **symptom.labels}
        values = (f"{tag}={tags.get(tag, '')}" for tag in self._rules[symptom.rule].group_by)
        return "\n".join((self._group(symptom), *values))

    def _labels(self, symptom: Symptom) -> dict[str, str]:
        """What tells an incident from others, for as long as it lives."""
        rule = self._rules[symptom.rule]
        tags = {**self._tags, **symptom.labels}
        grouped = {tag: tags[tag] for tag in rule.group_by if tags.get(tag)}
        return {**self._tags, **grouped, **rule.labels}

    def _advance(self, key: str, symptoms: Sequence[Symptom], time_ns: int) -> None:
        """Takes an incident a step on in its life."""
        incident = self._incidents.get(key)
        past = self._past.setdefault(key, Past())
        if incident is None:
            first = symptoms[0]
            incident = begun(self._group(first), key, self._labels(first), symptoms, time_ns)
            self._incidents[key] = incident
            due = is_due(incident, symptoms, self._rules, time_ns)
            if not due or self._is_cooling(symptoms, past, time_ns):
                self._record(incident.alert, time_ns)
                return
            self._fire(incident, past, time_ns)
            return
        if not symptoms:
            self._quieten(key, incident, past, time_ns)
            return
        incident.quiet_ns = None
        severity = incident.alert.severity
        incident.alert = described(incident.alert, symptoms)
        due = is_due(incident, symptoms, self._rules, time_ns)
        if incident.alert.state == "pending":
            if due and not self._is_cooling(symptoms, past, time_ns):
                self._fire(incident, past, time_ns)
        elif incident.alert.severity != severity:
            self._record(incident.alert, time_ns)

    def _fire(self, incident: Incident, past: Past, time_ns: int) -> None:
        past.changes_ns.append(time_ns)
        incident.alert = replace(
            incident.alert,
            state="firing",
            fired_ns=time_ns,
            is_flapping=past.is_flapping(self._settings, time_ns),
        )
        self._record(incident.alert, time_ns)

    def _quieten(self, key: str, incident: Incident, past: Past, time_ns: int) -> None:
        """Ends an incident that has no symptom left; a flapping one only after a while."""
        if incident.alert.state == "firing" and past.is_flapping(self._settings, time_ns):
            incident.alert = replace(incident.alert, is_flapping=True)
        if incident.alert.is_flapping:
            incident.quiet_ns = incident.quiet_ns or time_ns
            if time_ns - incident.quiet_ns < self._settings.flapping_window_s * NS_PER_S:
                return
        was_firing = incident.alert.state == "firing"
        incident.alert = replace(incident.alert, state="resolved", ended_ns=time_ns)
        if was_firing:
            past.resolved_ns = time_ns
            past.changes_ns.append(time_ns)
        self._record(incident.alert, time_ns)
        for notifier in incident.told:
            settings = self._notifiers.get(notifier)
            if settings is not None and settings.send_resolved:
                self._notices.append(Notice(notifier, incident.alert))
        del self._incidents[key]

    def _is_cooling(self, symptoms: Sequence[Symptom], past: Past, time_ns: int) -> bool:
        """True while an incident that was resolved lately may not fire again."""
        if past.resolved_ns is None:
            return False
        cool_down_s = max(self._rules[symptom.rule].cool_down_s for symptom in symptoms)
        return time_ns - past.resolved_ns < cool_down_s * NS_PER_S

    def _tell(self, key: str, incident: Incident, time_ns: int) -> None:
        """Tells who is to be told and was not, or of less, or long ago."""
        alert = incident.alert
        if self._is_silenced(alert, time_ns):
            return
        for name in self._addressees(key, alert):
            told = incident.told.get(name)
            repeat_s = self._notifiers[name].repeat_s
            if told is None:
                self._notices.append(Notice(name, alert))
            elif SEVERITIES[alert.severity] > SEVERITIES[told[0]]:
                self._notices.append(Notice(name, replace(alert, raised_from=told[0])))
            elif repeat_s is not None and time_ns - told[1] >= repeat_s * NS_PER_S:
                self._notices.append(Notice(name, alert))
            else:
                continue
            incident.told[name] = (alert.severity, time_ns)

    def _addressees(self, key: str, alert: Alert) -> list[str]:
        rules = [self._rules[s.rule] for s in alert.symptoms if s.rule in self._rules]
        wanted: set[str] = set()
        for rule in rules:
            wanted |= set(self._notifiers if rule.notify is None else rule.notify)
        wanted |= set(self._incidents[key].told)
        labels = _all_labels(alert)
        return [
            name
            for name, notifier in self._notifiers.items()
            if name in wanted
            if SEVERITIES[alert.severity] >= SEVERITIES[notifier.min_severity]
            if matches(notifier.match, labels)
        ]

    def _is_silenced(self, alert: Alert, time_ns: int) -> bool:
        return self._silencing.is_silenced(_all_labels(alert), time_ns)

    def _record(self, alert: Alert, time_ns: int) -> None:
        """Adds a row of `alert`; no two rows share a time."""
        self._last_row_ns = max(time_ns, self._last_row_ns + 1)
        telling = alert.symptoms[0] if len(alert.symptoms) == 1 else None
        fields = {
            "id": alert.id,
            "severity": alert.severity,
            "summary": alert.summary,
            "cause": alert.cause or None,
            "value": telling.value if telling else None,
            "threshold": telling.threshold if telling else None,
            "since": alert.since_ns / NS_PER_S,
            "symptoms": len(alert.symptoms),
            "flapping": alert.is_flapping,
            "silenced": self._is_silenced(alert, time_ns),
        }
        state: AlertState = alert.state
        places = {tag: value for tag, value in _agreed(alert).items() if tag in ROW_TAGS}
        tags = {**self._tags, "rule": alert.name, "state": state, **places}
        self._points.append(make_point("alert", tags, fields, self._last_row_ns))

    def _forget(self, time_ns: int) -> None:
        """Lets go of the past of keys that have been quiet for long."""
        for key, past in list(self._past.items()):
            latest_ns = max([past.resolved_ns or 0, *past.changes_ns])
            if key not in self._incidents and time_ns - latest_ns > PAST_NS:
                del self._past[key]
        for key in [key for key in self._past if key not in self._incidents][:-MAX_PAST]:
            del self._past[key]


def _all_labels(alert: Alert) -> dict[str, str]:
    """An incident's labels with what else a pattern may mean."""
    return {**_agreed(alert), **alert.labels, "rule": alert.name, "severity": alert.severity}


def _agreed(alert: Alert) -> dict[str, str]:
    """Tags on which all symptoms agree."""
    return {
        tag: next(iter(values))
        for tag in SERIES_TAGS
        if len(values := {symptom.labels.get(tag, "") for symptom in alert.symptoms}) == 1
        if "" not in values
    }
