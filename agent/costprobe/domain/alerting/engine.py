"""The alert engine: evaluates rules to incidents, and incidents to notices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.incident import Alert, Fault, Notice, Silence, Symptom
from costprobe.core.records import NS_PER_S, Event, Point
from costprobe.domain.alerting.incident_groups import IncidentGrouping, alert_row
from costprobe.domain.alerting.incidents import (
    Incident,
    IncidentHistory,
    expire,
    in_order,
    is_due,
    leading_symptom,
    new_incident,
    page_link,
    with_symptoms,
)
from costprobe.domain.alerting.notices import NoticeRules
from costprobe.domain.alerting.notifier_settings import NotifierConfig
from costprobe.domain.alerting.rule_set import RuleSet
from costprobe.domain.alerting.rules.rule import RuleConfig
from costprobe.domain.alerting.settings import AlertingConfig, MaintenanceConfig
from costprobe.domain.alerting.silencing import Silencing


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
        self._grouping = IncidentGrouping(self._configs, self._tags, labels_of)
        self._silencing = Silencing(maintenance)
        self._notice_rules = NoticeRules(self._configs, notifiers, self._silencing)
        self._rules = RuleSet(self._configs, self._tags, labels_of)
        self._incidents: dict[str, Incident] = {}
        self._histories: dict[str, IncidentHistory] = {}
        self._listed: tuple[Alert, ...] = ()
        self._last_row_ns = 0
        self._points: list[Point] = []
        self._notices: list[Notice] = []

    def observe(self, point: Point) -> None:
        """Add a stored row of any series."""
        self._rules.observe(point)

    def observe_event(self, event: Event) -> None:
        """Add an event; only drifts and anomalies are used."""
        self._rules.observe_event(event)

    def tick(self, time_ns: int, faults: Collection[Fault]) -> Outcome:
        """Evaluate every rule.

        Args:
            time_ns: Current UTC in ns; not before that of the previous call.
            faults: All current faults.
        """
        self._points, self._notices = [], []
        by_rule: dict[str, list[Symptom]] = {}
        for symptom in self._rules.symptoms(time_ns, faults):
            if not self._is_current(symptom.labels):
                continue
            by_rule.setdefault(self._grouping.key(symptom), []).append(symptom)
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

    def add_silence(self, silence: Silence) -> None:
        """Add a silence.

        Raises:
            ValueError: There are too many, or it ends before it begins.
        """
        self._silencing.add(silence)

    def end_silence(self, silence_id: str, time_ns: int) -> Silence:
        """End a silence.

        Raises:
            KeyError: No active silence has that id.
        """
        return self._silencing.end(silence_id, time_ns)

    def silences(self, time_ns: int) -> tuple[Silence, ...]:
        """Return current and future silences, in order of their ends."""
        return self._silencing.present(time_ns)

    def document(self) -> dict[str, Any]:
        """Return the complete state as JSON."""
        return {
            "incidents": {key: i.to_document() for key, i in self._incidents.items()},
            "histories": {
                key: [history.resolved_ns, history.changes_ns]
                for key, history in self._histories.items()
            },
            "silences": self._silencing.document(),
            "last_row_ns": self._last_row_ns,
            "rules": self._rules.document(),
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Restore a state, also one saved under other rules: incidents without a rule are resolved."""
        self._incidents = {
            key: Incident.from_document(stored) for key, stored in document["incidents"].items()
        }
        self._histories = {
            key: IncidentHistory(resolved_ns, list(changes_ns))
            for key, (resolved_ns, changes_ns) in document["histories"].items()
        }
        self._silencing.restore(document["silences"])
        self._last_row_ns = document["last_row_ns"]
        self._rules.restore(document["rules"])

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants: no duration includes a wall-clock step.

        The instants in listed alerts stay as reported.
        """
        step_ns = step.by_ns
        for incident in self._incidents.values():
            incident.shift(step_ns)
        for history in self._histories.values():
            history.shift(step_ns)
        self._last_row_ns = min(self._last_row_ns, self._last_row_ns + step_ns)
        self._rules.clock_was_stepped(step)

    def _advance(self, key: str, symptoms: Sequence[Symptom], time_ns: int) -> None:
        """Advance the state of an incident."""
        incident = self._incidents.get(key)
        history = self._histories.setdefault(key, IncidentHistory())
        if incident is None:
            first = symptoms[0]
            incident = new_incident(
                self._grouping.name(first), key, self._grouping.labels(first), symptoms, time_ns
            )
            if self._settings.public_url is not None:
                link = page_link(self._settings.public_url, incident.alert.since_ns)
                incident.alert = replace(incident.alert, link=link)
            self._incidents[key] = incident
            due = is_due(incident, symptoms, self._configs, time_ns)
            if not due or self._is_cooling(symptoms, history, time_ns):
                self._record(incident.alert, time_ns)
                return
            self._fire(incident, history, time_ns)
            return
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
            self._record(incident.alert, time_ns)

    def _fire(self, incident: Incident, history: IncidentHistory, time_ns: int) -> None:
        history.changes_ns.append(time_ns)
        incident.revise(self._configs)
        incident.alert = replace(
            incident.alert,
            state="firing",
            fired_ns=time_ns,
            is_flapping=history.is_flapping(self._settings, time_ns),
        )
        self._record(incident.alert, time_ns)

    def _resolve(
        self, key: str, incident: Incident, history: IncidentHistory, time_ns: int
    ) -> None:
        """Resolve an incident without symptoms; a flapping one only after the flapping window."""
        if incident.alert.state == "firing" and history.is_flapping(self._settings, time_ns):
            incident.alert = replace(incident.alert, is_flapping=True)
        if incident.alert.is_flapping:
            incident.quiet_ns = incident.quiet_ns or time_ns
            if time_ns - incident.quiet_ns < self._settings.flapping_window_s * NS_PER_S:
                return
        was_firing = incident.alert.state == "firing"
        ending = self._rules.ending(leading_symptom(incident.alert.symptoms))
        detail = f"{ending} {incident.alert.detail}".strip()
        incident.alert = replace(incident.alert, state="resolved", ended_ns=time_ns, detail=detail)
        if was_firing:
            history.resolved_ns = time_ns
            history.changes_ns.append(time_ns)
        self._record(incident.alert, time_ns)
        self._notices += self._notice_rules.ended(incident)
        del self._incidents[key]

    def _is_cooling(
        self, symptoms: Sequence[Symptom], history: IncidentHistory, time_ns: int
    ) -> bool:
        cool_down_s = max(self._configs[symptom.rule].cool_down_s for symptom in symptoms)
        return history.is_cooling(cool_down_s, time_ns)

    def _record(self, alert: Alert, time_ns: int) -> None:
        """Append a row of `alert`; no two rows have the same time."""
        self._last_row_ns = max(time_ns, self._last_row_ns + 1)
        is_silenced = self._notice_rules.is_silenced(alert, time_ns)
        tags = self._grouping.tags_of(alert)
        self._points.append(alert_row(alert, tags, self._last_row_ns, is_silenced=is_silenced))
