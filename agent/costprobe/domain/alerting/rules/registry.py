"""The kinds of alert rule: a new kind is a file in this folder and a line in RULES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from costprobe.domain.alerting.rules.absence import AbsenceRule, AbsenceRuleConfig
from costprobe.domain.alerting.rules.anomaly import AnomalyRule, AnomalyRuleConfig
from costprobe.domain.alerting.rules.budget import BudgetRule, BudgetRuleConfig
from costprobe.domain.alerting.rules.budget_exceeded import (
    BudgetExceededRule,
    BudgetExceededRuleConfig,
)
from costprobe.domain.alerting.rules.budget_forecast import (
    BudgetForecastRule,
    BudgetForecastRuleConfig,
)
from costprobe.domain.alerting.rules.drift import DriftRule, DriftRuleConfig
from costprobe.domain.alerting.rules.fault import FaultRule, FaultRuleConfig
from costprobe.domain.alerting.rules.load_curve import LoadCurveRule, LoadCurveRuleConfig
from costprobe.domain.alerting.rules.rule import Rule, RuleConfig
from costprobe.domain.alerting.rules.slo import SloRule, SloRuleConfig
from costprobe.domain.alerting.rules.threshold import ThresholdRule, ThresholdRuleConfig


class RuleKind(NamedTuple):
    """A kind of rule.

    Attributes:
        config: Its `[[rule]]` section.
        rule: Constructs the rule from the section.
    """

    config: type[RuleConfig]
    rule: Callable[[Any], Rule]


RULES: dict[str, RuleKind] = {
    "drift": RuleKind(DriftRuleConfig, DriftRule),
    "anomaly": RuleKind(AnomalyRuleConfig, AnomalyRule),
    "threshold": RuleKind(ThresholdRuleConfig, ThresholdRule),
    "budget": RuleKind(BudgetRuleConfig, BudgetRule),
    "budget_exceeded": RuleKind(BudgetExceededRuleConfig, BudgetExceededRule),
    "budget_forecast": RuleKind(BudgetForecastRuleConfig, BudgetForecastRule),
    "absence": RuleKind(AbsenceRuleConfig, AbsenceRule),
    "fault": RuleKind(FaultRuleConfig, FaultRule),
    "load_curve": RuleKind(LoadCurveRuleConfig, LoadCurveRule),
    "slo": RuleKind(SloRuleConfig, SloRule),
}


def rule_of(config: RuleConfig) -> Rule:
    """Construct the rule of a section."""
    return RULES[config.kind].rule(config)
