"""The price of a kilowatt-hour at an instant: flat, or by the hours of the week."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Self

from pydantic import Field, model_validator

from costprobe.core.config.fields import Currency, Day, Money, Section, Zone
from costprobe.core.config.weekly import WeeklyHoursConfig, check_each_applies
from costprobe.core.records import NS_PER_S


class TariffHoursConfig(WeeklyHoursConfig):
    """Hours of the week with their own tariff; they may end on the next day."""

    tariff_per_kwh: Money = Field(
        description="Price of a kWh at the meter in these hours.", examples=[Decimal("0.18")]
    )


class TariffConfig(Section):
    """The price of a kilowatt-hour, and the overhead of the building (PUE)."""

    tariff_per_kwh: Money = Field(
        description="Price of a kWh at the meter; with `hours`, in all other hours.",
        examples=[Decimal("0.12")],
    )
    pue: Annotated[Decimal, Field(ge=1, le=10)] = Field(
        Decimal(1),
        description="Overhead of the building as a factor (PUE).",
        examples=[Decimal("1.4")],
    )
    timezone: Zone = Field(
        "UTC", description="IANA name of the time zone of `hours`.", examples=["Europe/Berlin"]
    )
    hours: tuple[TariffHoursConfig, ...] = Field(
        (),
        description="Hours with their own tariff; the first match applies.",
        examples=[[{"start": "22:00", "end": "06:00", "tariff_per_kwh": Decimal("0.08")}]],
    )

    @model_validator(mode="after")
    def _all_hours_apply(self) -> Self:
        check_each_applies(self.hours)
        return self


class EarlierTariffConfig(TariffConfig):
    """A tariff of the past."""

    until: Day = Field(
        description="First day (UTC) on which the tariff no longer applied.",
        examples=[date(2026, 1, 1)],
    )


class ElectricityConfig(TariffConfig):
    """The current tariff, and earlier ones."""

    currency: Currency = Field("USD", description="ISO 4217 code.", examples=["USD"])
    earlier: tuple[EarlierTariffConfig, ...] = Field(
        (),
        max_length=200,
        description="Earlier tariffs, so that old samples keep the price of their day.",
        examples=[[{"until": date(2026, 1, 1), "tariff_per_kwh": Decimal("0.10")}]],
    )

    @model_validator(mode="after")
    def _each_ends_on_its_own_day(self) -> ElectricityConfig:
        if len({tariff.until for tariff in self.earlier}) < len(self.earlier):
            raise ValueError("two earlier tariffs end on the same day; give each a different until")
        return self


def tariff_in_force(electricity: ElectricityConfig, time_ns: int) -> TariffConfig:
    """Return the tariff of an instant: of the earlier ones then in force, the one that ended first.

    Args:
        electricity: The current tariff and earlier ones.
        time_ns: UTC in ns since 1970.
    """
    day = datetime.fromtimestamp(time_ns // NS_PER_S, tz=UTC).date()
    in_force = [tariff for tariff in electricity.earlier if day < tariff.until]
    return min(in_force, key=lambda tariff: tariff.until, default=electricity)


def tariff_per_kwh(electricity: ElectricityConfig, time_ns: int) -> Decimal:
    """Return currency per kWh at the meter, without PUE.

    Args:
        electricity: The tariffs; the first matching hours of the tariff in force apply.
        time_ns: UTC in ns since 1970.
    """
    tariff = tariff_in_force(electricity, time_ns)
    for hours in tariff.hours:
        if hours.contains(time_ns, tariff.timezone):
            return hours.tariff_per_kwh
    return tariff.tariff_per_kwh


def metered_per_kwh(electricity: ElectricityConfig, time_ns: int) -> Decimal:
    """Return currency per kWh consumed by a device, PUE included.

    Args:
        electricity: The tariffs.
        time_ns: UTC in ns since 1970.
    """
    return tariff_per_kwh(electricity, time_ns) * tariff_in_force(electricity, time_ns).pue
