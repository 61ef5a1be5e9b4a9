"""A [[budget]] that is forecast to be exceeded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costprobe.core.config.fields import Name
from costprobe.domain.alerting.rules.calendar_budget import CalendarBudgetRule
from costprobe.domain.alerting.rules.rule import RuleConfig


class BudgetForecastRuleConfig(RuleConfig):
    """A [[budget]] that is forecast to be exceeded; at most once in a period."""

    kind: Literal["budget_forecast"] = Field(
        description="Kind of rule.", examples=["budget_forecast"]
    )
    group_by: tuple[Name, ...] = Field(
        ("host", "budget"), description="Tags that distinguish incidents."
    )


class BudgetForecastRule(CalendarBudgetRule):
    """The state of a rule of kind `budget_forecast`."""

    flag, value = "forecast_exceeded", "forecast"
