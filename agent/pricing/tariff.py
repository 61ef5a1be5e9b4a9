"""What a kilowatt-hour costs at an instant: flat, or by the hours of the week."""

from __future__ import annotations

from decimal import Decimal

from agent.config_price import ElectricityConfig
from agent.weekly import is_within


def tariff_per_kwh(electricity: ElectricityConfig, time_ns: int) -> Decimal:
    """Currency per kWh at the meter, without the building's share (PUE).

    Args:
        electricity: The tariff; of its hours the first that fits holds.
        time_ns: UTC in ns since 1970.
    """
    for hours in electricity.hours:
        if is_within(hours.days, hours.start, hours.end, electricity.timezone, time_ns):
            return hours.tariff_per_kwh
    return electricity.tariff_per_kwh
