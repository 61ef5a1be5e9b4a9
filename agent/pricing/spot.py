"""Spot prices over time: how their sources write them."""

from __future__ import annotations

from collections.abc import Mapping

from agent.pricing.timed import TimedValue, TimedValues, Vocabulary, parse_timed

WORDS = Vocabulary(
    noun="price",
    example="time,per_hour",
    # Nothing is rented for more an hour.
    most=10**9,
    time_keys=("time", "timestamp", "Timestamp"),
    value_keys=("per_hour", "price", "SpotPrice"),
    # As `aws ec2 describe-spot-price-history` prints them.
    list_keys=("SpotPriceHistory",),
)

Spots = Mapping[str, TimedValues]
NO_SPOTS: Spots = {}


def parse_spot(text: str, now_ns: int) -> list[TimedValue]:
    """Reads prices per hour in any of the shapes of `parse_timed`.

    Args:
        text: What the source gave.
        now_ns: UTC in ns since 1970.

    Raises:
        ValueError: It holds no price, or one that is none; the text says what was expected.
    """
    return parse_timed(text, now_ns, WORDS)
