"""The price of a plan at an instant, and of one device-hour under it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from costprobe.core.units import HOUR_S

# Names and amounts that sum to a price.
Parts = tuple[tuple[str, Decimal], ...]


class Quote(NamedTuple):
    """The price of a plan at an instant for its own unit: a host, a device or a slice.

    Attributes:
        plan: Kind in force: a reserved plan after its term is on_demand.
        parts: Components of the price, in currency per hour.
        note: Origin of the price, for people.
        is_stale: True if a spot price is older than it may be.
        origins: Origin of each part, in the order of `parts`.
        is_lapsed: True if a reserved term is over.
    """

    plan: str
    parts: Parts
    note: str = ""
    is_stale: bool = False
    origins: tuple[str, ...] = ()
    is_lapsed: bool = False

    @property
    def per_hour(self) -> Decimal:
        """Currency per hour, the sum of all parts."""
        return sum((amount for _, amount in self.parts), Decimal(0))


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of holding one device while a plan is in force.

    Attributes:
        plan: Kind of the plan; "list" or "assumed" if none is configured.
        currency: ISO 4217 code.
        per_hour: Currency per device-hour, exact.
        electricity_included: False if electricity is paid separately.
        source: Origin of the price, for people.
        parts: Names and currency per device-hour; their sum is `per_hour`.
        is_stale: True if a spot price is older than it may be.
        origins: Origin of each part, in the order of `parts`.
        is_lapsed: True if a reserved term is over, so that the list price applies.
        low_per_hour, high_per_hour: Range of an assumed price; None for any other.
    """

    plan: str
    currency: str
    per_hour: Decimal
    electricity_included: bool
    source: str
    parts: Parts = ()
    is_stale: bool = False
    origins: tuple[str, ...] = ()
    is_lapsed: bool = False
    low_per_hour: Decimal | None = None
    high_per_hour: Decimal | None = None

    @property
    def per_s(self) -> float:
        """Currency per device-second."""
        return float(self.per_hour) / HOUR_S

    def scaled(self, numerator: int, denominator: int) -> Rate:
        """Return the rate of a share of the device."""

        def share(amount: Decimal) -> Decimal:
            return amount * numerator / denominator

        return replace(
            self,
            per_hour=share(self.per_hour),
            parts=tuple((name, share(amount)) for name, amount in self.parts),
            low_per_hour=None if self.low_per_hour is None else share(self.low_per_hour),
            high_per_hour=None if self.high_per_hour is None else share(self.high_per_hour),
        )

    @property
    def price(self) -> tuple[str, Decimal, bool]:
        """Values that two rates of the same price share, whatever their plans."""
        return (self.currency, self.per_hour, self.electricity_included)
