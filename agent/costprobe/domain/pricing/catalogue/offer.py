"""What a cloud asks for an instance, and what a GPU costs to buy, as the catalogue lists them."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from costprobe.domain.pricing.catalogue.table import Row, lines_of, rows_of

OFFER_COLUMNS = (
    "cloud",
    "instance",
    "region",
    "gpu_model",
    "gpu_count",
    "gpu_memory_gb",
    "vcpu",
    "memory_gb",
    "currency",
    "on_demand_per_h",
    "reserved_1y_per_h",
    "reserved_3y_per_h",
    "spot_per_h",
    "as_of",
    "doubt",
    "source",
)
PURCHASE_COLUMNS = (
    "gpu_model",
    "gpu_count",
    "condition",
    "currency",
    "purchase_price_low",
    "purchase_price_high",
    "as_of",
    "source",
)
# A row for each region of the cloud that has no row of its own.
ALL_REGIONS = "all"
_VERSION = re.compile(r"# costprobe price catalogue, version (\d{4}-\d\d-\d\d)\s*")
_CURRENCY = re.compile(r"[A-Z]{3}")
# The largest GPU instance of 2026 costs 143 USD an hour; a price in cents would be above the limit.
_LEAST_PER_H, _LARGEST_PER_H = Decimal("0.001"), Decimal(2000)
# Market prices were seen up to this multiple of the on-demand price.
_LARGEST_SPOT_SHARE = Decimal(2)
_CONDITIONS = ("new", "used")


@dataclass(frozen=True, slots=True)
class Offer:
    """List prices of an instance in a region, per hour of the whole instance.

    Attributes:
        cloud: "aws", "azure", "gcp", "oci" and so on.
        instance: The cloud's name of the instance type.
        region: The cloud's name of the region; "all" for every region without a row of its own.
        gpu_model: Name of its GPUs as NVML reports it; empty without one.
        gpu_count: Number of GPUs, a fraction for a part of one; None if unknown.
        vcpu: Number of vCPUs; None if unknown.
        memory_gb: Memory in GB; None if unknown.
        currency: ISO 4217 code.
        on_demand_per_h: Currency per hour; None if it is not offered.
        reserved_1y_per_h, reserved_3y_per_h: With a commitment of so many years, none upfront.
        spot_per_h: Typical market price.
        as_of: Day, month or year of the prices; empty if their source has no date.
        doubt: Why the row may be wrong, such as another price in another source; empty if nothing
            is known.
        source: Where the row was read.
    """

    cloud: str
    instance: str
    region: str
    gpu_model: str
    gpu_count: Decimal | None
    vcpu: Decimal | None
    memory_gb: Decimal | None
    currency: str
    on_demand_per_h: Decimal | None
    reserved_1y_per_h: Decimal | None
    reserved_3y_per_h: Decimal | None
    spot_per_h: Decimal | None
    as_of: str
    doubt: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Cloud, instance and region, which identify an offer."""
        return (self.cloud, self.instance, self.region)

    def devices(self, boards: int) -> Decimal:
        """Return how many devices share the price; a part of a GPU is one device.

        Args:
            boards: Accelerators of the host; a container may have fewer than the instance. With 0
                the CPUs bear the whole price.
        """
        if boards == 0:
            return Decimal(1)
        return max(Decimal(boards), self.gpu_count or Decimal(0), Decimal(1))


@dataclass(frozen=True, slots=True)
class Purchase:
    """The price of GPUs that are bought.

    Attributes:
        gpu_model: Name as NVML reports it.
        gpu_count: GPUs that the price is for.
        condition: "new" or "used".
        currency: ISO 4217 code.
        purchase_price_low, purchase_price_high: Range of the price.
        as_of: Day, month or year.
        source: Where it was read.
    """

    gpu_model: str
    gpu_count: Decimal
    condition: str
    currency: str
    purchase_price_low: Decimal
    purchase_price_high: Decimal
    as_of: str
    source: str


class PackedOffers:
    """The offers of a checked table, parsed anew at each pass.

    Parsed they take 2 MB, packed 0.03 MB, and a daemon reads them only for a device that it has not
    yet seen.

    Args:
        table: The table.
    """

    def __init__(self, table: str) -> None:
        self._packed = gzip.compress(table.encode())

    def __iter__(self) -> Iterator[Offer]:
        # By the line: the unpacked table would be the daemon's largest block of memory.
        with gzip.open(io.BytesIO(self._packed), "rt", encoding="utf-8", newline="\n") as lines:
            yield from map(_offer, rows_of(lines, OFFER_COLUMNS))


def version_of(table: str) -> date:
    """Return the version of a table of offers.

    Raises:
        ValueError: The first line states none.
    """
    found = _VERSION.match(table)
    if found is None:
        raise ValueError('its first line is not "# costprobe price catalogue, version YYYY-MM-DD"')
    try:
        return date.fromisoformat(found[1])
    except ValueError:
        raise ValueError(f"its version {found[1]} is not a date") from None


def parse_offers(text: str) -> tuple[date, tuple[Offer, ...]]:
    """Parse and check a table of offers.

    Returns:
        The version of the table, and its rows.

    Raises:
        ValueError: No version, another schema, a value out of range, or two rows of the same
            instance and region; the message states the line.
    """
    version = version_of(text)
    offers: dict[tuple[str, str, str], Offer] = {}
    for row in rows_of(lines_of(text), OFFER_COLUMNS):
        offer = _offer(row)
        if offer.key in offers:
            raise row.error("instance", "occurs twice in this region; keep one row")
        if offer.as_of > version.isoformat():
            raise row.error("as_of", f"is after the version {version} of the table")
        offers[offer.key] = offer
    if not offers:
        raise ValueError("has no row")
    return version, tuple(offers.values())


def parse_purchases(text: str) -> tuple[Purchase, ...]:
    """Parse a table of purchase prices.

    Raises:
        ValueError: Another schema, or a value out of range; the message states the line.
    """
    return tuple(_purchase(row) for row in rows_of(lines_of(text), PURCHASE_COLUMNS))


def catalogue_prices(
    text: str, instance: str, region: str, currency: str, *, is_spot: bool
) -> list[Decimal]:
    """Return the prices of an instance in a table of the catalogue, in a currency per hour.

    Raises:
        ValueError: It is no such table, or in another currency.
    """
    _, offers = parse_offers(text)
    named = [offer for offer in offers if offer.instance == instance]
    found = [offer for offer in named if offer.region == region] or [
        offer for offer in named if offer.region == ALL_REGIONS
    ]
    for offer in found:
        if offer.currency != currency:
            raise ValueError(f"its prices are in {offer.currency}, the plan in {currency}")
    prices = [offer.spot_per_h if is_spot else offer.on_demand_per_h for offer in found]
    return [price for price in prices if price is not None]


def _offer(row: Row) -> Offer:
    prices = {
        column: row.number(column, _LEAST_PER_H, _LARGEST_PER_H)
        for column in OFFER_COLUMNS
        if column.endswith("_per_h")
    }
    _check_prices(row, prices)
    return Offer(
        cloud=row.text("cloud", required=True),
        instance=row.text("instance", required=True),
        region=row.text("region", required=True),
        gpu_model=row.text("gpu_model"),
        gpu_count=row.number("gpu_count", Decimal("0.01"), Decimal(72)),
        vcpu=row.number("vcpu", Decimal(1), Decimal(2048)),
        memory_gb=row.number("memory_gb", Decimal("0.5"), Decimal(65536)),
        currency=currency_of(row),
        as_of=row.month("as_of"),
        doubt=row.text("doubt"),
        source=row.text("source", required=True),
        **prices,
    )


def _check_prices(row: Row, prices: dict[str, Decimal | None]) -> None:
    on_demand, spot = prices["on_demand_per_h"], prices["spot_per_h"]
    committed = [prices["reserved_1y_per_h"], prices["reserved_3y_per_h"]]
    if all(price is None for price in prices.values()):
        raise row.error("on_demand_per_h", "a row needs a price")
    for price in committed:
        if price is not None and (on_demand is None or price > on_demand):
            raise row.error("reserved_1y_per_h", "a commitment costs more than on demand")
    if spot is not None and on_demand is not None and spot > on_demand * _LARGEST_SPOT_SHARE:
        raise row.error("spot_per_h", f"is more than {_LARGEST_SPOT_SHARE} times on demand")


def _purchase(row: Row) -> Purchase:
    low = row.number("purchase_price_low", Decimal(10), Decimal(10_000_000))
    high = row.number("purchase_price_high", Decimal(10), Decimal(10_000_000))
    count = row.number("gpu_count", Decimal(1), Decimal(72))
    if low is None or high is None or count is None or low > high:
        raise row.error("gpu_count", "a row needs gpu_count, and a lower and a higher price")
    condition = row.text("condition")
    if condition not in _CONDITIONS:
        raise row.error("condition", f"is not one of {', '.join(_CONDITIONS)}")
    return Purchase(
        gpu_model=row.text("gpu_model", required=True),
        gpu_count=count,
        condition=condition,
        currency=currency_of(row),
        purchase_price_low=low,
        purchase_price_high=high,
        as_of=row.month("as_of"),
        source=row.text("source", required=True),
    )


def currency_of(row: Row) -> str:
    """Return the currency of a row.

    Raises:
        ValueError: It is no ISO 4217 code.
    """
    currency = row.text("currency")
    if not _CURRENCY.fullmatch(currency):
        raise row.error("currency", 'is not an ISO 4217 code such as "USD"')
    return currency
