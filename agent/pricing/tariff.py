"""What a kilowatt-hour costs at an instant: flat, or by the hours of the week."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from agent.config_price import ElectricityConfig, TariffConfig
from agent.model import NS_PER_S
from agent.weekly import is_within


def tariff_in_force(electricity: ElectricityConfig, time_ns: int) -> TariffConfig:
    """The tariff of an instant: of the earlier ones that still held, the one that ended first.

    Args:
        electricity: The tariff of now and those before it.
        time_ns: UTC in ns since 1970.
    """
    day = datetime.fromtimestamp(time_ns // NS_PER_S, tz=UTC).date()
    held = [tariff for tariff in electricity.earlier if day < tariff.until]
    return min(held, key=lambda tariff: tariff.until, default=electricity)


def tariff_per_kwh(electricity: ElectricityConfig, time_ns: int) -> Decimal:
    """Currency per kWh at the meter, without the building's share (PUE).

    Args:
        electricity: The tariffs; of the hours of the one in force the first that fits holds.
        time_ns: UTC in ns since 1970.
    """
    tariff = tariff_in_force(electricity, time_ns)
    for hours in tariff.hours:
        if is_within(hours.days, hours.start, hours.end, tariff.timezone, time_ns):
            return hours.tariff_per_kwh
    return tariff.tariff_per_kwh


def metered_per_kwh(electricity: ElectricityConfig, time_ns: int) -> Decimal:
    """Currency for a kWh that a device draws, what the building adds (PUE) included.

    Args:
        electricity: The tariffs.
        time_ns: UTC in ns since 1970.
    """
    return tariff_per_kwh(electricity, time_ns) * tariff_in_force(electricity, time_ns).pue
