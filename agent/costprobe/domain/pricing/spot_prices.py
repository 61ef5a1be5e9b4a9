"""Spot prices over time, and the formats of their sources."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.core.bounded import bounded_object
from costprobe.domain.pricing.price_lists import aws_price_list, only_price
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
    if text.lstrip().startswith("{") and '"PriceList"' in text:
        # Output of `aws pricing get-products`.
        document = bounded_object(text)
        if isinstance(document.get("PriceList"), list):
            price = only_price(list(aws_price_list(document, currency)), "one instance on demand")
            return [TimedValue(now_ns, price)]
    return parse_timed(text, now_ns, FORMAT, currency)
