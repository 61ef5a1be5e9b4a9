"""Which incident a symptom belongs to, and the rows of `alert` that record an incident."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costprobe.core.incident import Alert, Symptom
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.schema import SCHEMA, make_point
from costprobe.domain.alerting.notices import common_tags
from costprobe.domain.alerting.rules.rule import RuleConfig

ROW_TAGS = SCHEMA["alert"].tags


class IncidentGrouping:
    """Keys and labels of incidents: symptoms with the same key are one incident.

    Args:
        configs: The rules in force, by name.
        tags: Host and static labels.
        labels_of: Returns the operator's labels of a series by its tags; series with different ones
            never share an incident.
    """

    def __init__(
        self,
        configs: Mapping[str, RuleConfig],
        tags: Mapping[str, str],
        labels_of: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> None:
        self._configs = configs
        self._tags = tags
        self._labels_of = labels_of

    def name(self, symptom: Symptom) -> str:
        """Return the name of the incident: the group of the rule, or the rule."""
        rule = self._configs[symptom.rule]
        return rule.group or rule.name

    def key(self, symptom: Symptom) -> str:
        """Return what is the same for all symptoms of an incident."""
        labels = self._labels_of(symptom.labels)
        tags = {**self._tags, **symptom.labels, **labels}
        distinct = dict.fromkeys((*self._configs[symptom.rule].group_by, *sorted(labels)))
        values = (f"{tag}={tags.get(tag, '')}" for tag in distinct)
        return "\n".join((self.name(symptom), *values))

    def labels(self, symptom: Symptom) -> dict[str, str]:
        """Return the labels that identify an incident."""
        rule = self._configs[symptom.rule]
        labels = self._labels_of(symptom.labels)
        tags = {**self._tags, **symptom.labels, **labels}
        grouped = {tag: tags[tag] for tag in rule.group_by if tags.get(tag)}
        return {**self._tags, **grouped, **labels, **rule.labels}

    def tags_of(self, alert: Alert) -> dict[str, str]:
        """Return the tags of the rows of an incident."""
        places = {tag: value for tag, value in common_tags(alert).items() if tag in ROW_TAGS}
        labels = self._labels_of(alert.symptoms[0].labels)
        return {**self._tags, "rule": alert.name, "state": alert.state, **places, **labels}


def alert_row(alert: Alert, tags: Mapping[str, str], time_ns: int, *, is_silenced: bool) -> Point:
    """Return the row of `alert` that records the state of an incident.

    Args:
        alert: The incident.
        tags: As from `IncidentGrouping.tags_of`.
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
