"""What drawing a kilowatt-hour emits at an instant: grams of CO2-equivalent, the building's share in.

Source: GHG Protocol, Scope 2 Guidance (2015): emissions = activity data x emission factor, here
g = E / 3.6e6 x PUE x intensity, E in joules. It is the emission of operation; making the hardware
is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

from agent.config_carbon import CarbonConfig
from agent.config_price import ElectricityConfig
from agent.model import NS_PER_S, Device
from agent.pricing.book import TOGETHER
from agent.pricing.tariff import tariff_in_force
from agent.pricing.timed import TimedValue, TimedValues, Vocabulary, parse_timed
from agent.units import KWH_J
from agent.weekly import is_within

CarbonMethod = Literal["flat", "hours", "series", "stale"]

WORDS = Vocabulary(
    noun="carbon intensity",
    example="time,g_per_kwh",
    # The dirtiest plants emit about a third of it: a figure beyond is of another unit.
    most=5000,
    # The last are those of Electricity Maps and of the Carbon Intensity API of Great Britain.
    time_keys=("time", "timestamp", "datetime", "from"),
    value_keys=("g_per_kwh", "carbonIntensity", "intensity", "actual", "forecast"),
    list_keys=("history", "data"),
)


@dataclass(frozen=True, slots=True)
class Intensity:
    """What electricity emits at an instant.

    Attributes:
        g_per_kwh: Grams of CO2-equivalent per kWh at the meter, without PUE.
        pue: What the building adds, as a factor.
        method: How it is known: one figure, one by the hours of the week, or one of a series,
            which is stale where its source has not vouched for it for too long.
        share: Share of the energy that a device is measured with which is its own.
        since_ns: UTC ns from which a figure of a series holds; None for the others.
    """

    g_per_kwh: Decimal
    pue: Decimal
    method: CarbonMethod
    share: float = 1.0
    since_ns: int | None = None

    @property
    def g_per_j(self) -> float:
        """Grams per joule that a device is measured with, PUE in."""
        return self.share * float(self.g_per_kwh * self.pue) / KWH_J

    @property
    def words(self) -> str:
        """Where the figure comes from, for people."""
        if self.since_ns is None:
            return {"hours": "by the hour of the week"}.get(self.method, "flat")
        since = datetime.fromtimestamp(self.since_ns // NS_PER_S, tz=UTC)
        return f"of {since:%Y-%m-%d %H:%M} UTC{', stale' if self.method == 'stale' else ''}"


class CarbonBook:
    """The carbon intensity of a device's electricity, now or in the past.

    Args:
        carbon: What the operator said; None for nothing.
        electricity: The tariff, whose PUE holds where `carbon` has none of its own.
        devices: Every device of the host.
        known: The series as it is known when it is asked for.
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
            # A MIG device is measured with its board's energy, of which it has its slices' share.
            device.name: device.slices / device.slices_of if device.slices_of else 1.0
            for device in devices
        }
        self._known = known

    def intensity(self, device: str, time_ns: int) -> Intensity | None:
        """What a device's electricity emits at UTC time_ns; None where nothing says it.

        Raises:
            KeyError: No device of that name.
        """
        if self._carbon is None:
            return None
        names = device.split(TOGETHER)
        # Devices that work as one are taken to share their energy equally.
        share = sum(self._shares[name] for name in names) / len(names)
        pue = self._pue(self._carbon, time_ns)
        if self._carbon.g_per_kwh is None:
            return self._of_series(self._carbon, pue, share, time_ns)
        for hours in self._carbon.hours:
            if is_within(hours.days, hours.start, hours.end, self._carbon.timezone, time_ns):
                return Intensity(hours.g_per_kwh, pue, "hours", share)
        method: CarbonMethod = "hours" if self._carbon.hours else "flat"
        return Intensity(self._carbon.g_per_kwh, pue, method, share)

    def _pue(self, carbon: CarbonConfig, time_ns: int) -> Decimal:
        if carbon.pue is not None:
            return carbon.pue
        electricity = self._electricity
        return Decimal(1) if electricity is None else tariff_in_force(electricity, time_ns).pue

    def _of_series(
        self, carbon: CarbonConfig, pue: Decimal, share: float, time_ns: int
    ) -> Intensity | None:
        known = self._known()
        found = known.at(time_ns)
        if found is None:
            return None
        is_stale = known.is_stale(time_ns, carbon.stale_after_s)
        method: CarbonMethod = "stale" if is_stale else "series"
        return Intensity(found.value, pue, method, share, found.time_ns)


def parse_carbon(text: str, now_ns: int) -> list[TimedValue]:
    """Reads grams per kWh in any of the shapes of `parse_timed`.

    Args:
        text: What the source gave.
        now_ns: UTC in ns since 1970.

    Raises:
        ValueError: It holds no intensity, or one that is none; the text says what was expected.
    """
    return parse_timed(text, now_ns, WORDS)


def vouched_ns(news: Sequence[TimedValue], now_ns: int) -> int:
    """UTC ns for which an answer vouches: intensities that stop coming are old, however often read.

    A grid's figure is of its hour, unlike a price, which holds until there is another.

    Args:
        news: What the source just gave, at least one figure.
        now_ns: UTC in ns of now.
    """
    return min(now_ns, max(value.time_ns for value in news))


NO_CARBON = CarbonBook(None, None, ())
