"""Spot prices over time: parsed from what a file, a command or an endpoint gives, and looked up."""

from __future__ import annotations

import csv
import io
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from agent.model import NS_PER_S

MAX_PRICES = 20_000
# Nothing is rented for more: a figure beyond is of another unit.
MAX_PER_HOUR = 10**9
# A number of seconds since 1970 of this size is one of milliseconds: it would lie after 33,000.
MILLISECONDS_FROM = 10**12
# In milliseconds, what lies beyond is no time that 64 bits of ns hold.
LATEST = 9 * 10**12
TIME_KEYS = ("time", "timestamp", "Timestamp")
PRICE_KEYS = ("per_hour", "price", "SpotPrice")


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """A price from an instant on.

    Attributes:
        time_ns: UTC in ns since 1970.
        per_hour: Currency per hour, exact.
    """

    time_ns: int
    per_hour: Decimal


@dataclass(frozen=True, slots=True)
class SpotPrices:
    """What is known of a spot price, in order of time.

    Attributes:
        prices: Each holds until the next.
        seen_ns: UTC ns at which the source last answered; None if it never did.
    """

    prices: tuple[SpotPrice, ...] = ()
    seen_ns: int | None = None

    def at(self, time_ns: int) -> SpotPrice | None:
        """The price in force at UTC time_ns; None before the first."""
        index = bisect_right(self.prices, time_ns, key=lambda price: price.time_ns)
        return self.prices[index - 1] if index else None

    def is_stale(self, time_ns: int, after_s: float) -> bool:
        """Whether the source had not answered for so long at UTC time_ns.

        A price in the past, before a later one that is known, is what it was.
        """
        if self.prices and time_ns < self.prices[-1].time_ns:
            return False
        return self.seen_ns is None or time_ns - self.seen_ns > after_s * NS_PER_S

    def with_news(self, prices: Iterable[SpotPrice], seen_ns: int) -> SpotPrices:
        """The same with what a source just gave; of one instant the news holds.

        A price of now that repeats the one in force says nothing; the oldest go beyond MAX_PRICES.
        """
        in_force = self.at(seen_ns)
        news = [
            price
            for price in prices
            if in_force is None or (price.time_ns, price.per_hour) != (seen_ns, in_force.per_hour)
        ]
        by_time = {price.time_ns: price for price in (*self.prices, *news)}
        kept = [price for _, price in sorted(by_time.items())]
        return SpotPrices(tuple(kept[-MAX_PRICES:]), seen_ns)

    def to_document(self) -> dict[str, Any]:
        """The prices as JSON can hold them, exact."""
        prices = [[price.time_ns, str(price.per_hour)] for price in self.prices]
        return {"prices": prices, "seen_ns": self.seen_ns}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SpotPrices:
        """The prices that `to_document` wrote."""
        prices = (SpotPrice(int(ns), Decimal(text)) for ns, text in document["prices"])
        return cls(tuple(prices), document["seen_ns"])


def parse_spot(text: str, now_ns: int) -> list[SpotPrice]:
    """Reads prices: a number alone, CSV with a time and a price, or JSON.

    JSON is a number, an object with a price and perhaps a time, a list of such, or what
    `aws ec2 describe-spot-price-history` prints. A price without a time holds from now on. Times
    are ISO 8601 (without a zone: UTC) or seconds or milliseconds since 1970.

    Args:
        text: What the source gave.
        now_ns: UTC in ns since 1970.

    Raises:
        ValueError: It holds no price, or one that is none; the text says what was expected.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError("is empty; write a price, or lines of time,per_hour")
    if stripped[0] in "[{":
        rows = _json_rows(stripped)
    elif "," in stripped.splitlines()[0] or len(stripped.splitlines()) > 1:
        rows = _csv_rows(stripped)
    else:
        rows = [(None, stripped)]
    if len(rows) > MAX_PRICES:
        raise ValueError(f"holds more than {MAX_PRICES} prices; give the newest")
    return [SpotPrice(_time_ns(when, now_ns), _price(price)) for when, price in rows]


def _json_rows(text: str) -> list[tuple[Any, Any]]:
    try:
        found = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"is no valid JSON ({error})") from error
    if isinstance(found, dict) and isinstance(found.get("SpotPriceHistory"), list):
        found = found["SpotPriceHistory"]
    entries = found if isinstance(found, list) else [found]
    if not entries:
        raise ValueError("holds no price")
    return [_json_row(entry) for entry in entries]


def _json_row(entry: Any) -> tuple[Any, Any]:  # noqa: ANN401 - what the source gave
    if not isinstance(entry, dict):
        return None, entry
    price = next((entry[key] for key in PRICE_KEYS if key in entry), None)
    if price is None:
        raise ValueError(f"an entry has no price; name it {' or '.join(PRICE_KEYS)}")
    return next((entry[key] for key in TIME_KEYS if key in entry), None), price


def _csv_rows(text: str) -> list[tuple[Any, Any]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row and any(row)]
    except csv.Error as error:
        raise ValueError(f"is no valid CSV ({error})") from error
    if not rows:
        raise ValueError("holds no price")
    head = [cell.strip() for cell in rows[0]]
    price_at = next((head.index(key) for key in PRICE_KEYS if key in head), None)
    if price_at is not None:
        time_at = next((head.index(key) for key in TIME_KEYS if key in head), None)
        rows = rows[1:]
    else:
        time_at, price_at = 0, 1
    if not rows:
        raise ValueError("holds no price below its head")
    try:
        return [(None if time_at is None else row[time_at], row[price_at]) for row in rows]
    except IndexError as error:
        raise ValueError("a line is too short; write time,per_hour") from error


def _time_ns(when: Any, now_ns: int) -> int:  # noqa: ANN401 - as above
    if when is None or when == "":
        return now_ns
    try:
        number = Decimal(str(when).strip())
    except InvalidOperation:
        return _iso_ns(str(when))
    # Before anything is computed with it: a number of a million digits takes as long.
    if not number.is_finite() or not 0 <= number <= LATEST:
        raise ValueError(f"{when!r} is no time")
    seconds = number / 1000 if number >= MILLISECONDS_FROM else number
    return int(seconds * NS_PER_S)


def _iso_ns(text: str) -> int:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is no time; write one such as 2026-01-31T14:00:00Z") from error
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(aware.timestamp()) * NS_PER_S


def _price(value: Any) -> Decimal:  # noqa: ANN401 - as above
    try:
        price = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is no price") from error
    if not price.is_finite() or not 0 <= price <= MAX_PER_HOUR:
        raise ValueError(f"{value!r} is no price")
    return price


Spots = Mapping[str, SpotPrices]
NO_SPOTS: Spots = {}
