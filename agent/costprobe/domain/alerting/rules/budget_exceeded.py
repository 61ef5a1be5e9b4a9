"""A [[budget]] that is exceeded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costprobe.core.config.fields import Level, Name
from costprobe.domain.alerting.rules.calendar_budget import CalendarBudgetRule
from costprobe.domain.alerting.rules.rule import RuleConfig


class BudgetExceededRuleConfig(RuleConfig):
    """A [[budget]] that is exceeded; resolved when its period ends."""

    kind: Literal["budget_exceeded"] = Field(
        description="Kind of rule.", examples=["budget_exceeded"]
    )
    group_by: tuple[Name, ...] = Field(
        ("host", "budget"), description="Tags that distinguish incidents."
    )
    severity: Level = Field("critical", description="Severity of the incidents.")


class BudgetExceededRule(CalendarBudgetRule):
    """The state of a rule of kind `budget_exceeded`."""

    flag, value = "exceeded", "spent"
