"""The kinds of rule there are, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent.alerting.rules.absence import Absence
from agent.alerting.rules.anomaly import Anomaly
from agent.alerting.rules.budget import Budget
from agent.alerting.rules.calendar_budget import ExceededBudgets, ForecastBudgets
from agent.alerting.rules.drift import Drift
from agent.alerting.rules.evaluator import Evaluator
from agent.alerting.rules.fault import Faults
from agent.alerting.rules.slo import Slo
from agent.alerting.rules.threshold import Threshold
from agent.config_alerting import RuleConfig


class Kind(NamedTuple):
    """A kind of rule.

    Attributes:
        build: Makes its evaluator.
        measurement: The series whose rows it is given; None for the one that the rule names, ""
            for no rows at all.
    """

    build: Callable[[Any], Evaluator]
    measurement: str | None


KINDS: Mapping[str, Kind] = {
    "drift": Kind(Drift, ""),
    "anomaly": Kind(Anomaly, ""),
    "threshold": Kind(Threshold, None),
    "budget": Kind(Budget, "device"),
    "budget_exceeded": Kind(ExceededBudgets, "budget"),
    "budget_forecast": Kind(ForecastBudgets, "budget"),
    "absence": Kind(Absence, None),
    "fault": Kind(Faults, ""),
    "slo": Kind(Slo, "probe"),
}


def build(rule: RuleConfig) -> Evaluator:
    """A rule's evaluator."""
    return KINDS[rule.kind].build(rule)


def measurement_of(rule: RuleConfig) -> str:
    """The series whose rows a rule is given; empty for none."""
    named = KINDS[rule.kind].measurement
    return str(getattr(rule, "measurement", "")) if named is None else named
