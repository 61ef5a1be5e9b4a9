"""The price catalogue: list prices of instances, GPU purchase prices, hosted models per token.

It is read from CSV tables from outside the process, with limits and checked values, in versions.
A driver's product name is mapped to a GPU model: "A100-PCIE-80GB" is the "NVIDIA A100 80GB PCIe".
Hosted models are priced per million tokens.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from statistics import median
from typing import NamedTuple

MAX_ROWS = 20_000
MAX_CELL_CHARS = 400
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MONTH = re.compile(r"20\d\d(-(0[1-9]|1[0-2]))?(-(0[1-9]|[12]\d|3[01]))?")


class Row(NamedTuple):
    """One row: the number of its line, and its cells by column."""

    line: int
    cells: dict[str, str]

    def text(self, column: str, *, required: bool = False) -> str:
        """Return a cell.

        Raises:
            ValueError: It is too long, contains control characters, or is empty and required.
        """
        value = self.cells[column].strip()
        if len(value) > MAX_CELL_CHARS or not value.isprintable():
            raise self.error(column, f"more than {MAX_CELL_CHARS} or unprintable characters")
        if required and not value:
            raise self.error(column, "is empty")
        return value

    def number(self, column: str, least: Decimal, largest: Decimal) -> Decimal | None:
        """Return a number; None for an empty cell.

        Raises:
            ValueError: It is no number from `least` to `largest`.
        """
        text = self.text(column)
        if not text:
            return None
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.error(column, "is not a number") from None
        if not value.is_finite() or not least <= value <= largest:
            raise self.error(column, f"{text} is not from {least} to {largest}")
        return value

    def month(self, column: str) -> str:
        """Return a day, month or year as in ISO 8601; empty for an empty cell.

        Raises:
            ValueError: It is none.
        """
        text = self.text(column)
        if text and not _MONTH.fullmatch(text):
            raise self.error(column, "is not a date such as 2026-07")
        return text

    def error(self, column: str, problem: str) -> ValueError:
        """Return an error with the place in the file."""
        return ValueError(f"line {self.line}: {column}: {problem}")


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a table with their ends; a list of all would cost the daemon memory."""
    return (found[0] for found in _LINE.finditer(text))


def rows_of(lines: Iterable[str], columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a CSV table; lines that begin with # are comments.

    Args:
        lines: The lines of the table, with a header.
        columns: The header that it must have.

    Raises:
        ValueError: Another header, too many rows, or a row with too few or too many cells.
    """
    # Comments become empty lines, which the parser skips, so that the numbers of lines stay right.
    reader = csv.reader(("\n" if line.startswith("#") else line for line in lines), strict=True)
    try:
        table = ((reader.line_num, cells) for cells in reader if cells)
        _, header = next(table, (0, []))
        if header != list(columns):
            raise ValueError(f"its header is not {','.join(columns)}")
        for number, (line, cells) in enumerate(table):
            if number >= MAX_ROWS:
                raise ValueError(f"has more than {MAX_ROWS} rows")
            if len(cells) != len(columns):
                raise ValueError(f"line {line}: has {len(cells)} cells, not {len(columns)}")
            yield Row(line, dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: not valid CSV ({error})") from error


_PEAKS = ("fp32", "tf32", "fp16", "bf16")
GPU_COLUMNS = (
    "gpu_model",
    "memory_gb",
    "tdp_w",
    "memory_gb_per_s",
    *(f"{precision}_tflops" for precision in _PEAKS),
    "source",
)
# Old drivers omit the vendor's name, new ones the product line's.
_BRANDS = {"NVIDIA", "TESLA", "QUADRO", "GEFORCE", "AMD", "INSTINCT", "HGX"}
_NO_PART_OF_A_MODEL = {"GENERATION", "EDITION", "AC", "LC", "GPU"}
_MEMORY = re.compile(r"(\d+)(?:G|GB|GIB)")
_MEMORY_KIND = re.compile(r"HBM\d?E?")
_FORM = re.compile(r"(SXM|PCIE|NVL|OAM|FHHL)\d*")
_GIB = 1 << 30
# Error correction and the driver take up to 7 % of a board's memory.
_MEMORY_TOLERANCE = 0.1
GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model.

    Attributes:
        model: Name as NVML reports it.
        memory_gb: Memory; None if unknown.
        memory_bytes_per_s: Peak bandwidth of the memory; None if unknown.
        flop_per_s: Peak rates of dense matrix products that accumulate in fp32, by precision, where
            known.
    """

    model: str
    memory_gb: Decimal | None
    memory_bytes_per_s: float | None
    flop_per_s: Mapping[str, float]


class _Parts(NamedTuple):
    """Parts of a product name: what it is, its form factor, and its memory in GB."""

    family: frozenset[str]
    form: str
    memory_gb: int | None


class GpuNames:
    """The known GPU models, by the product names of drivers.

    Args:
        gpus: The models.
    """

    def __init__(self, gpus: Sequence[GpuModel]) -> None:
        self.gpus = tuple(gpus)
        self._parts = [(gpu, _parts(gpu.model)) for gpu in gpus]

    def named(self, name: str, memory_bytes: int | None = None) -> GpuModel | None:
        """Return the model of a product name, with its form factor and memory; None if unknown.

        Args:
            name: The driver's product name, which boards with more and with less memory may share.
            memory_bytes: Memory of the device, where known.
        """
        parts = _parts(name)
        for gpu, own in self._parts:
            if memory_bytes is None or gpu.memory_gb is None:
                if own == parts:
                    return gpu
            elif (
                (own.family, own.form) == (parts.family, parts.form)
                and parts.memory_gb in (None, own.memory_gb)
                and abs(memory_bytes / _GIB / float(gpu.memory_gb) - 1) <= _MEMORY_TOLERANCE
            ):
                return gpu
        return None

    def models_of(self, name: str, memory_bytes: int | None = None) -> list[GpuModel]:
        """Return the models of a product name, the nearest first; empty for an unknown name.

        Models of one family differ in form factor and memory: first comes that of the name, or if
        the name has neither, the one whose memory is nearest to the device's.

        Args:
            name: The driver's product name.
            memory_bytes: Memory of the device, where known.
        """
        parts = _parts(name)
        similar = [(gpu, own) for gpu, own in self._parts if own.family == parts.family]
        device_gb = None if memory_bytes is None else memory_bytes / _GIB

        def distance(entry: tuple[GpuModel, _Parts]) -> tuple[bool, bool, float, float, bool, str]:
            gpu, own = entry
            known_gb = float(gpu.memory_gb or own.memory_gb or 0)
            named = 0.0 if parts.memory_gb is None else abs(parts.memory_gb - (own.memory_gb or 0))
            seen = 0.0 if device_gb is None else abs(device_gb - known_gb)
            is_named_otherwise = (own.memory_gb is None) != (parts.memory_gb is None)
            form = own.form != parts.form
            return (gpu.model != name, form, named, seen, is_named_otherwise, gpu.model)

        return [gpu for gpu, _ in sorted(similar, key=distance)]


def parse_gpus(text: str) -> tuple[GpuModel, ...]:
    """Parse the table of GPU models.

    Raises:
        ValueError: Another schema, or a value out of range; the message states the line.
    """
    return tuple(
        GpuModel(
            row.text("gpu_model", required=True),
            row.number("memory_gb", Decimal(1), Decimal(1024)),
            None if (bandwidth := _peak(row, "memory_gb_per_s")) is None else bandwidth * GIGA,
            {
                precision: peak * TERA
                for precision in _PEAKS
                if (peak := _peak(row, f"{precision}_tflops")) is not None
            },
        )
        for row in rows_of(lines_of(text), GPU_COLUMNS)
    )


def _peak(row: Row, column: str) -> float | None:
    value = row.number(column, Decimal(1), Decimal(100_000))
    return None if value is None else float(value)


def _parts(name: str) -> _Parts:
    family, form, memory_gb = set(), "", None
    # The profile of a MIG device follows its board's name.
    board, _, _ = name.upper().partition(" MIG ")
    for word in board.replace("-", " ").split():
        memory, shape = _MEMORY.fullmatch(word), _FORM.fullmatch(word)
        if memory:
            memory_gb = int(memory[1])
        elif shape:
            form = "PCIE" if shape[1] == "FHHL" else shape[1]
        elif not _MEMORY_KIND.fullmatch(word) and word not in _BRANDS | _NO_PART_OF_A_MODEL:
            family.add(word)
    return _Parts(frozenset(family), form, memory_gb)


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
    named = [offer for offer in offers if offer.instance.lower() == instance.lower()]
    found = [offer for offer in named if offer.region.lower() == region.lower()] or [
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


# Currency of ranges: prices in different currencies have no common range.
RANGE_CURRENCY = "USD"
# An older catalogue is reported: list prices of GPUs changed by up to a half within a year.
MAX_AGE_DAYS = 183


@dataclass(frozen=True, slots=True)
class PriceRange:
    """List prices of one GPU or vCPU over clouds, in USD per hour.

    Attributes:
        median: Median of the clouds.
        low, high: The cheapest and the dearest cloud.
        clouds: The clouds.
        as_of: Date of the newest price; empty if none has one.
    """

    median: Decimal
    low: Decimal
    high: Decimal
    clouds: tuple[str, ...]
    as_of: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Prices of instances and GPUs.

    Attributes:
        version: Its date.
        offers: Instances; packed, they are parsed at each pass.
        purchases: GPUs to buy.
        gpus: GPU models by the names of drivers.
    """

    version: date
    offers: Iterable[Offer]
    purchases: Sequence[Purchase]
    gpus: GpuNames

    def is_old(self, day: date) -> bool:
        """Return whether the catalogue is older than six months on a day."""
        return (day - self.version).days > MAX_AGE_DAYS

    def offer(self, cloud: str, instance: str, region: str) -> Offer | None:
        """Return the offer of an instance in a region; None if the catalogue has none."""
        found = {offer.region: offer for offer in self.offers_of(cloud, instance)}
        return found.get(region) or found.get(ALL_REGIONS)

    def offers_of(self, cloud: str, instance: str) -> list[Offer]:
        """Return the offers of an instance in all regions."""
        # Azure's names are written in several ways: standard_nc24ads_a100_v4.
        wanted = (cloud, instance.lower())
        return [offer for offer in self.offers if (offer.cloud, offer.instance.lower()) == wanted]

    def gpu_range(self, models: Iterable[str], cloud: str = "") -> PriceRange | None:
        """Return the price of one GPU per hour, with its share of the instance.

        Args:
            models: GPU models, as NVML names them, that count as one.
            cloud: The only cloud; empty for all.
        """
        wanted = set(models)
        return _range(
            (offer, offer.gpu_count)
            for offer in self.offers
            if offer.gpu_model in wanted and cloud in ("", offer.cloud)
        )

    def vcpu_range(self, cloud: str = "") -> PriceRange | None:
        """Return the price of one vCPU per hour, by instances without a GPU.

        Args:
            cloud: The only cloud; empty for all.
        """
        return _range(
            (offer, offer.vcpu)
            for offer in self.offers
            if not offer.gpu_model and cloud in ("", offer.cloud)
        )

    def purchase_range(
        self, name: str, memory_bytes: int | None = None
    ) -> tuple[Decimal, Decimal] | None:
        """Return the least and the largest price in USD of one new board; None if unknown.

        Args:
            name: The driver's product name.
            memory_bytes: Memory of the device, where known.
        """
        for gpu in self.gpus.models_of(name, memory_bytes):
            prices = [
                price / found.gpu_count
                for found in self.purchases
                if (found.gpu_model, found.condition, found.currency)
                == (gpu.model, "new", RANGE_CURRENCY)
                for price in (found.purchase_price_low, found.purchase_price_high)
            ]
            if prices:
                return min(prices), max(prices)
        return None


def _range(offers: Iterable[tuple[Offer, Decimal | None]]) -> PriceRange | None:
    """Return the range over clouds of the price of one unit.

    A cloud's price is the median over its regions of the cheapest instance there, because a larger
    instance with the same GPU sells cores and memory. Undated offers count only without dated ones.
    """
    units = [
        (offer, offer.on_demand_per_h / count)
        for offer, count in offers
        if offer.on_demand_per_h is not None and count and offer.currency == RANGE_CURRENCY
    ]
    units = [(offer, per_h) for offer, per_h in units if offer.as_of] or units
    if not units:
        return None
    cheapest: dict[str, dict[str, Decimal]] = defaultdict(dict)
    for offer, per_h in units:
        regions = cheapest[offer.cloud]
        regions[offer.region] = min(per_h, regions.get(offer.region, per_h))
    prices = {cloud: median(regions.values()) for cloud, regions in cheapest.items()}
    return PriceRange(
        median=median(prices.values()),
        low=min(prices.values()),
        high=max(prices.values()),
        clouds=tuple(sorted(prices)),
        as_of=max(offer.as_of for offer, _ in units),
    )


HOSTED_COLUMNS = (
    "model",
    "per_million_tokens_in",
    "per_million_tokens_cached",
    "per_million_tokens_out",
    "currency",
    "as_of",
    "doubt",
    "source",
)
# The dearest model of 2026 costs 600 USD per million output tokens.
_LARGEST = Decimal(10_000)


@dataclass(frozen=True, slots=True)
class HostedPrice:
    """List price of a hosted model.

    Attributes:
        model: Provider and model: "openai/gpt-5-mini".
        per_million_tokens_in: Currency per million input tokens.
        per_million_tokens_cached: Of those, the ones read from the provider's cache; None if they
            cost as much as others.
        per_million_tokens_out: Currency per million output tokens.
        currency: ISO 4217 code.
        as_of: Day or month of the price; empty for one that the operator configured.
        doubt: Why it may not apply; empty if nothing is known.
        source: Where it was read.
    """

    model: str
    per_million_tokens_in: Decimal
    per_million_tokens_cached: Decimal | None
    per_million_tokens_out: Decimal
    currency: str
    as_of: str = ""
    doubt: str = ""
    source: str = "configuration"


def parse_hosted(text: str) -> dict[str, HostedPrice]:
    """Parse a table of hosted models.

    Returns:
        The prices by model.

    Raises:
        ValueError: Another schema, a value out of range, or a model twice; the message states the
            line.
    """
    prices: dict[str, HostedPrice] = {}
    for row in rows_of(lines_of(text), HOSTED_COLUMNS):
        model = row.text("model", required=True)
        if model in prices:
            raise row.error("model", "occurs twice; keep one row")
        per_in, cached, per_out = (
            row.number(column, Decimal(0), _LARGEST) for column in HOSTED_COLUMNS[1:4]
        )
        if per_in is None or per_out is None:
            raise row.error("per_million_tokens_in", "a row needs a price of both kinds of tokens")
        if cached is not None and cached > per_in:
            raise row.error("per_million_tokens_cached", "is more than that of other input")
        prices[model] = HostedPrice(
            model,
            per_in,
            cached,
            per_out,
            currency_of(row),
            row.month("as_of"),
            row.text("doubt"),
            row.text("source", required=True),
        )
    return prices
