"""The configuration of carbon: what the electricity that devices draw emits."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from agent.config_fields import ClockTime, Section, Weekday, Zone
from agent.config_source import SourceConfig

# Grams of CO2-equivalent per kWh; the dirtiest plants emit about a third of the most.
GramsPerKwh = Annotated[Decimal, Field(ge=0, le=5000)]


class CarbonHoursConfig(Section):
    """Hours of the week with an intensity of their own; the end may lie on the next day.

    Attributes:
        days: Days on which the hours begin.
        start: Beginning, by the clocks of `timezone`.
        end: End, likewise; at or before `start` it is on the next day.
        g_per_kwh: Grams of CO2-equivalent per kWh in these hours.
    """

    days: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    start: ClockTime
    end: ClockTime
    g_per_kwh: GramsPerKwh


class CarbonConfig(SourceConfig):
    """What a kilowatt-hour emits: one figure, hours of the week, or a series from a source.

    Attributes:
        g_per_kwh: Grams of CO2-equivalent per kWh at the meter; with `hours`, in all other hours.
        timezone: IANA name of the place whose clocks `hours` are of.
        hours: Hours with an intensity of their own; the first that fits holds.
        pue: What the building adds, as a factor; by default that of `[electricity]`.
    """

    g_per_kwh: GramsPerKwh | None = None
    timezone: Zone = "UTC"
    hours: tuple[CarbonHoursConfig, ...] = Field((), max_length=200)
    pue: Annotated[Decimal, Field(ge=1, le=10)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> CarbonConfig:
        if self.sources + (self.g_per_kwh is not None) != 1:
            raise ValueError("give one of g_per_kwh, file, command and url")
        if self.hours and self.g_per_kwh is None:
            raise ValueError("hours need g_per_kwh for the other hours; add it")
        return self
