"""The rules in force: rows, events and faults go to each rule that matches them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from costprobe.core.clock_step import ClockStep
from costprobe.core.incident import Fault, Symptom
from costprobe.core.records import REMOVED, Event, Point
from costprobe.domain.alerting.matching import matches
from costprobe.domain.alerting.rules.registry import rule_of
from costprobe.domain.alerting.rules.rule import Rule, RuleConfig

logger = logging.getLogger(__name__)


class RuleSet:
    """The state of all rules.

    Args:
        configs: The rules in force, by name.
        tags: Host and static labels.
        labels_of: Returns the operator's labels of a series by its tags.
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
        self._rules: dict[str, Rule] = {name: rule_of(config) for name, config in configs.items()}
        self._by_measurement: dict[str, list[str]] = {}
        for name, rule in self._rules.items():
            self._by_measurement.setdefault(rule.measurement, []).append(name)

    def observe(self, point: Point) -> None:
        """Add a stored row of any series."""
        for name in self._by_measurement.get(point.measurement, ()):
            pattern = self._configs[name].match
            if not pattern or matches(pattern, point.tags):
                self._rules[name].observe(point)
        if point.measurement == "event" and point.fields.get("cause") == REMOVED:
            for rule in self._rules.values():
                rule.forget_device(point.tags["device"])

    def observe_event(self, event: Event) -> None:
        """Add an event; only drifts and anomalies are used."""
        if event.kind not in {"drift", "anomaly"}:
            return
        tags = {**self._tags, **event.subject, "device": event.device, "metric": event.metric}
        tags |= self._labels_of(event.subject)
        for name, rule in self._rules.items():
            if matches(self._configs[name].match, tags):
                rule.observe_event(event)

    def symptoms(self, time_ns: int, faults: Collection[Fault]) -> list[Symptom]:
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

    def ending(self, symptom: Symptom) -> str:
        """Return how a symptom ended, as a sentence; empty if its end needs no words."""
        rule = self._rules.get(symptom.rule)
        return "" if rule is None else rule.ending(symptom.series)

    def document(self) -> dict[str, Any]:
        """Return kind and state of each rule as JSON, by its name."""
        return {
            name: [self._configs[name].kind, rule.document()] for name, rule in self._rules.items()
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Restore the states of the rules that still exist; a damaged one is discarded."""
        for name, (kind, stored) in document.items():
            if name in self._rules and self._configs[name].kind == kind:
                try:
                    self._rules[name].restore(stored)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    logger.warning("rule %s: discarded a damaged state: %s", name, error)

    def clock_was_stepped(self, step: ClockStep) -> None:
        """Shift stored instants after a wall-clock step."""
        for rule in self._rules.values():
            rule.restore(step.of_document(rule.document()))
