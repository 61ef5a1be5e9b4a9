"""Notices of incidents: which notifiers receive one, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costprobe.core.incident import Alert, Notice
from costprobe.core.records import NS_PER_S
from costprobe.domain.alerting.incidents import Incident
from costprobe.domain.alerting.matching import SEVERITIES, matches
from costprobe.domain.alerting.notifier_settings import NotifierConfig
from costprobe.domain.alerting.rules.rule import SERIES_TAGS, RuleConfig
from costprobe.domain.alerting.silencing import Silencing


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
