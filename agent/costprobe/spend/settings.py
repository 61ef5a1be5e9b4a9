"""Configuration of budgets: the planned cost of a host, device or service in a calendar period."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from costprobe.core.config.fields import Currency, Name, Section, Zone
from costprobe.core.periods import PeriodKind

Amount = Annotated[Decimal, Field(gt=0, max_digits=18, decimal_places=9)]


class PlannedSpend(Section):
    """Money planned for a calendar period."""

    name: Name = Field(description="Name in alerts and tables.", examples=["gpus"])
    amount: Amount = Field(
        description="Money planned for a whole period.", examples=[Decimal(1800)]
    )
    currency: Currency = Field(
        "USD",
        description="ISO 4217 code; costs in another currency are not counted.",
        examples=["USD"],
    )
    period: PeriodKind = Field(
        description=(
            "Calendar period; it starts at midnight, or at midnight of the first day of a month, of"
            " a quarter (January, April, July, October) or of a year."
        ),
        examples=["month"],
    )
    timezone: Zone = Field(
        "UTC", description="IANA name of the time zone of the period.", examples=["UTC"]
    )


class BudgetConfig(PlannedSpend):
    """Money planned for a calendar period."""

    device: Name | None = Field(
        None,
        description=(
            "Device that the budget covers; without device and service it covers the host."
        ),
        examples=["gpu0"],
    )
    service: Name | None = Field(
        None, description="Service that the budget covers.", examples=["chat"]
    )

    @model_validator(mode="after")
    def _one_scope(self) -> BudgetConfig:
        if self.device is not None and self.service is not None:
            raise ValueError("give device or service, one of them, or neither for the whole host")
        return self

    @property
    def scope(self) -> str:
        """What the budget covers, as text: "host", "gpu0", "service chat"."""
        if self.service is not None:
            return f"service {self.service}"
        return self.device or "host"


# Hours that forecasts use: eight weeks, so that each hour of the week occurs eight times.
HISTORY_HOURS = 8 * 7 * 24
