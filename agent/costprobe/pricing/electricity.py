"""The price and the emissions of a kilowatt-hour at an instant: tariff, carbon intensity, PUE.

A tariff is flat or by the hours of the week, a carbon intensity may also be a series. Emissions are in grams of CO2-equivalent, of an inference or a device, PUE included. Source: GHG
Protocol, Scope 2 Guidance (2015): emissions = activity data x emission factor, here g = E / 3.6e6
x PUE x intensity, E in joules. It covers operation; manufacturing the hardware is not included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from costprobe.core.config.fields import (
    Day,
    Section,
    SignedMoney,
    SourceConfig,
    WeeklyHoursConfig,
    Zone,
    check_each_applies,
)
from costprobe.core.periods import utc_day
from costprobe.core.records import NS_PER_S, TOGETHER, Device
from costprobe.core.units import KWH_J
from costprobe.pricing.timed import FigureFormat, TimedValue, TimedValues, parse_timed

# The most carbon-intensive plants emit about a third of it: a larger figure has another unit.
_LARGEST_G_PER_KWH = 5000
# Grams of CO2-equivalent per kWh.
GramsPerKwh = Annotated[Decimal, Field(ge=0, le=_LARGEST_G_PER_KWH)]
CarbonMethod = Literal["flat", "hours", "series", "stale"]
FORMAT = FigureFormat(
    noun="carbon intensity",
    example="time,g_per_kwh",
    largest=_LARGEST_G_PER_KWH,
    unit="grams per kWh",
    units=re.compile(r"g(rams?)?(co2(eq?)?)?(/|per)kwh"),
    # The last keys are those of Electricity Maps and of the Carbon Intensity API of Great Britain.
    time_keys=("time", "timestamp", "datetime", "from"),
    value_keys=("g_per_kwh", "carbonintensity", "intensity", "actual", "forecast"),
    list_keys=("history", "data"),
)


class TariffHoursConfig(WeeklyHoursConfig):
    """Hours of the week with their own tariff; they may end on the next day."""

    tariff_per_kwh: SignedMoney = Field(
        description="Price of a kWh at the meter in these hours; below zero if it is paid to you.",
        examples=[Decimal("0.18")],
    )


class TariffConfig(Section):
    """The price of a kilowatt-hour, and the overhead of the building (PUE)."""

    tariff_per_kwh: SignedMoney = Field(
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

    removed: ClassVar = {"currency": "a tariff is in the currency of the prices"}

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


class Tariff(NamedTuple):
    """The tariff of an instant.

    Attributes:
        per_kwh: Currency per kWh at the meter, without PUE.
        pue: Overhead of the building as a factor.
    """

    per_kwh: Decimal
    pue: Decimal

    @property
    def metered_per_kwh(self) -> Decimal:
        """Currency per kWh consumed by a device, PUE included."""
        return self.per_kwh * self.pue


def tariff_at(electricity: ElectricityConfig, time_ns: int) -> Tariff:
    """Return the tariff of an instant.

    Args:
        electricity: The current tariff and earlier ones. Of the earlier ones then in force, the one that
            ended first applies, and of its hours the first that match.
        time_ns: UTC in ns since 1970.
    """
    day = utc_day(time_ns)
    earlier = [tariff for tariff in electricity.earlier if day < tariff.until]
    tariff = min(earlier, key=lambda tariff: tariff.until, default=electricity)
    hours = (each for each in tariff.hours if each.contains(time_ns, tariff.timezone))
    return Tariff(next(hours, tariff).tariff_per_kwh, tariff.pue)


class CarbonHoursConfig(WeeklyHoursConfig):
    """Hours of the week with their own carbon intensity; they may end on the next day."""

    g_per_kwh: GramsPerKwh = Field(
        description="Grams of CO2-equivalent per kWh in these hours.", examples=[Decimal(280)]
    )


class CarbonConfig(SourceConfig):
    """Carbon intensity of electricity: one figure, hours of the week, or a series from a source."""

    g_per_kwh: GramsPerKwh | None = Field(
        None,
        description=(
            "Grams of CO2-equivalent per kWh at the meter; with `hours`, in all other hours."
        ),
        examples=[Decimal(380)],
    )
    timezone: Zone = Field(
        "UTC", description="IANA name of the time zone of `hours`.", examples=["Europe/Berlin"]
    )
    hours: tuple[CarbonHoursConfig, ...] = Field(
        (),
        max_length=200,
        description="Hours with their own intensity; the first match applies.",
        examples=[[{"start": "10:00", "end": "16:00", "g_per_kwh": Decimal(180)}]],
    )
    pue: Annotated[Decimal, Field(ge=1, le=10)] | None = Field(
        None,
        description=(
            "Overhead of the building as a factor (PUE); by default that of `[electricity]`."
        ),
        examples=[Decimal("1.4")],
    )

    @model_validator(mode="after")
    def _one_way(self) -> CarbonConfig:
        if self.sources + (self.g_per_kwh is not None) != 1:
            raise ValueError("give one of g_per_kwh, file, command and url")
        if self.hours and self.g_per_kwh is None:
            raise ValueError("hours need g_per_kwh for the other hours; add it")
        check_each_applies(self.hours)
        return self


@dataclass(frozen=True, slots=True)
class Intensity:
    """The carbon intensity of electricity at an instant.

    Attributes:
        g_per_kwh: Grams of CO2-equivalent per kWh at the meter, without PUE.
        pue: Power usage effectiveness, a factor.
        method: Origin: a constant, the hours of the week, or a series, which is stale if its source
            has not been read for too long.
        share: Share of the measured energy that the device itself consumes.
        since_ns: Start of the figure of a series, UTC ns; None for other methods.
    """

    g_per_kwh: Decimal
    pue: Decimal
    method: CarbonMethod
    share: float = 1.0
    since_ns: int | None = None

    @property
    def g_per_j(self) -> float:
        """Grams per measured joule, PUE included."""
        return self.share * float(self.g_per_kwh * self.pue) / KWH_J

    @property
    def words(self) -> str:
        """Origin of the figure, for people."""
        if self.since_ns is None:
            return {"hours": "by the hour of the week"}.get(self.method, "flat")
        since = datetime.fromtimestamp(self.since_ns // NS_PER_S, tz=UTC)
        return f"of {since:%Y-%m-%d %H:%M} UTC{', stale' if self.method == 'stale' else ''}"


class CarbonBook:
    """The carbon intensity of the electricity of devices, at any instant.

    Args:
        carbon: The configuration; None if there is none.
        electricity: The tariff, whose PUE applies where `carbon` has none.
        devices: Every device of the host.
        known: Returns the known values of the series.
    """

    def __init__(
        self,
        carbon: CarbonConfig | None,
        electricity: ElectricityConfig | None,
        devices: Sequence[Device],
        known: Callable[[], TimedValues] = TimedValues,
    ) -> None:
        self._carbon = carbon
        self._electricity = electricity
        self._shares = {
            # The energy of a MIG device is that of its board: its share is that of its slices.
            device.name: device.slices / device.slices_of if device.slices_of else 1.0
            for device in devices
        }
        self._known = known

    def intensity(self, device: str, time_ns: int) -> Intensity | None:
        """Return the carbon intensity of a device at UTC time_ns; None if it is unknown.

        Raises:
            KeyError: No device of that name.
        """
        if self._carbon is None:
            return None
        names = device.split(TOGETHER)
        # A group of devices is assumed to share its energy equally.
        share = sum(self._shares[name] for name in names) / len(names)
        pue = self._pue(self._carbon, time_ns)
        if self._carbon.g_per_kwh is None:
            return self._of_series(self._carbon, pue, share, time_ns)
        method: CarbonMethod = "hours" if self._carbon.hours else "flat"
        for hours in self._carbon.hours:
            if hours.contains(time_ns, self._carbon.timezone):
                return Intensity(hours.g_per_kwh, pue, method, share)
        return Intensity(self._carbon.g_per_kwh, pue, method, share)

    def _pue(self, carbon: CarbonConfig, time_ns: int) -> Decimal:
        if carbon.pue is not None:
            return carbon.pue
        electricity = self._electricity
        return Decimal(1) if electricity is None else tariff_at(electricity, time_ns).pue

    def _of_series(
        self, carbon: CarbonConfig, pue: Decimal, share: float, time_ns: int
    ) -> Intensity | None:
        series = self._known()
        intensity = series.at(time_ns)
        if intensity is None:
            return None
        is_stale = series.is_stale(time_ns, carbon.stale_after_s)
        method: CarbonMethod = "stale" if is_stale else "series"
        return Intensity(intensity.value, pue, method, share, intensity.time_ns)


def parse_carbon(text: str, now_ns: int) -> list[TimedValue]:
    """Parse grams per kWh in any format of `parse_timed`.

    Args:
        text: Output of the source.
        now_ns: UTC in ns since 1970.

    Raises:
        ValueError: It contains no intensity or an invalid one; the message states the expected format.
    """
    return parse_timed(text, now_ns, FORMAT)


NO_CARBON = CarbonBook(None, None, ())


@dataclass(frozen=True, slots=True)
class Emission:
    """Emissions.

    Attributes:
        g: Grams of CO2-equivalent.
        method: Source of the carbon intensity.
    """

    g: float
    method: CarbonMethod


def emission(energy_j: float | None, intensity: Intensity | None) -> Emission | None:
    """Return the emissions of an energy; None if energy or intensity is unknown.

    Args:
        energy_j: Joules consumed by the device.
        intensity: Carbon intensity at the time.
    """
    if energy_j is None or intensity is None:
        return None
    return Emission(energy_j * intensity.g_per_j, intensity.method)
