"""The configuration of budgets: what a host, a device or a service may cost in a calendar period."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from agent.config_fields import Currency, Name, Section, Zone

Amount = Annotated[Decimal, Field(gt=0, max_digits=18, decimal_places=9)]
Period = Literal["day", "month"]


class BudgetConfig(Section):
    """Money that is planned for a calendar period.

    Attributes:
        name: Alerts and tables call it so.
        amount: Money planned for a whole period.
        currency: ISO 4217 code; costs in another currency are never added.
        period: What begins anew at midnight, or at midnight of the first day of a month.
        timezone: Whose midnight.
        device: The device that it is for; neither device nor service: all devices of the host.
        service: The service that it is for.
    """

    name: Name
    amount: Amount
    currency: Currency = "USD"
    period: Period
    timezone: Zone = "UTC"
    device: Name | None = None
    service: Name | None = None

    @model_validator(mode="after")
    def _one_scope(self) -> BudgetConfig:
        if self.device is not None and self.service is not None:
            raise ValueError("give device or service, one of them, or neither for the whole host")
        return self

    @property
    def scope(self) -> str:
        """What it is for, in words: "host", "gpu0", "service chat"."""
        if self.service is not None:
            return f"service {self.service}"
        return self.device or "host"
