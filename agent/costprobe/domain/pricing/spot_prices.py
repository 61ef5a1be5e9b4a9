"""Spot prices over time, and the formats of their sources."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.domain.pricing.timed import FigureFormat, TimedValue, TimedValues, parse_timed

FORMAT = FigureFormat(
    noun="price",
    example="time,per_hour",
    # A higher price per hour is an error.
    largest=10**9,
    time_keys=("time", "timestamp", "Timestamp"),
    value_keys=("per_hour", "price", "SpotPrice"),
    # Format of `aws ec2 describe-spot-price-history`.
    list_keys=("SpotPriceHistory",),
)

Spots = Mapping[str, TimedValues]
NO_SPOTS: Spots = {}


def parse_spot(text: str, now_ns: int, currency: str | None = None) -> list[TimedValue]:
    """Parse prices per hour in any format of `parse_timed`.

    Args:
        text: Output of the source.
        now_ns: UTC in ns since 1970.
        currency: The plan's currency.

    Raises:
        ValueError: It contains no price or an invalid one; the message states the expected format.
    """
    return parse_timed(text, now_ns, FORMAT, currency)
