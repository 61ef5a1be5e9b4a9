"""The price catalogue: list prices of instances, GPU purchase prices, hosted models per token.

It is read from CSV tables from outside the process, with limits and checked values, in versions.
A driver's product name is mapped to a GPU model: "A100-PCIE-80GB" is the "NVIDIA A100 80GB PCIe".
Hosted models are priced per million tokens.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import islice
from statistics import median
from typing import Annotated, Any, NamedTuple, get_type_hints

MAX_ROWS = 20_000
MAX_CELL_CHARS = 400
_CURRENCY = re.compile(r"[A-Z]{3}")
_MONTH = re.compile(r"20\d\d(-(0[1-9]|1[0-2]))?(-(0[1-9]|[12]\d|3[01]))?")


# Reads a cell without spaces around it; raises ValueError with what is wrong.
Reader = Callable[[str], Any]


def _text(cell: str) -> str:
    if len(cell) > MAX_CELL_CHARS or not cell.isprintable():
        raise ValueError(f"more than {MAX_CELL_CHARS} or unprintable characters")
    return cell


def _required(cell: str) -> str:
    if not cell:
        raise ValueError("is empty")
    return cell


def _number(least: str | int, largest: str | int) -> Reader:
    """Return the reader of a number within limits; None for an empty cell."""

    def read(cell: str) -> Decimal | None:
        if not cell:
            return None
        try:
            value = Decimal(cell)
        except InvalidOperation:
            raise ValueError("is not a number") from None
        if not value.is_finite() or not Decimal(least) <= value <= Decimal(largest):
            raise ValueError(f"{cell} is not from {least} to {largest}")
        return value

    return read


def _month(cell: str) -> str:
    """Read a day, month or year as in ISO 8601; empty for an empty cell."""
    if cell and not _MONTH.fullmatch(cell):
        raise ValueError("is not a date such as 2026-07")
    return cell


def _currency(cell: str) -> str:
    if not _CURRENCY.fullmatch(cell):
        raise ValueError('is not an ISO 4217 code such as "USD"')
    return cell


def _columns(kind: type) -> dict[str, Reader]:
    """Return the columns of a table whose rows are of a class, by its annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def _rows_of(text: str, readers: Mapping[str, Reader]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of the line and the values of each row of a CSV table; # begins a comment.

    Args:
        text: The table, with a header.
        readers: The columns that it must have, in order.

    Raises:
        ValueError: Another header, too many rows, or a row with too few or too many cells, or one that
            is too long, is unprintable, or has no such value; the message states the line.
    """
    # Comments become empty lines, which the parser skips, so that the numbers of lines stay right.
    lines = ("\n" if line.startswith("#") else line for line in io.StringIO(text))
    reader = csv.reader(lines, strict=True)
    try:
        table = ((reader.line_num, cells) for cells in reader if cells)
        if next(table, (0, []))[1] != list(readers):
            raise ValueError(f"its header is not {','.join(readers)}")
        for number, (line, cells) in enumerate(table):
            if number >= MAX_ROWS:
                raise ValueError(f"has more than {MAX_ROWS} rows")
            if len(cells) != len(readers):
                raise ValueError(f"line {line}: has {len(cells)} cells, not {len(readers)}")
            yield line, _values(line, cells, readers)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: not valid CSV ({error})") from error


def _values(line: int, cells: Sequence[str], readers: Mapping[str, Reader]) -> dict[str, Any]:
    values = {}
    for (column, read), cell in zip(readers.items(), map(str.strip, cells), strict=True):
        try:
            values[column] = read(_text(cell))
        except ValueError as error:
            raise ValueError(f"line {line}: {column}: {error}") from None
    return values


_Text = Annotated[str, str]
_Required = Annotated[str, _required]
_Currency = Annotated[str, _currency]
_Month = Annotated[str, _month]
# The largest GPU instance of 2026 costs 143 USD an hour; a price in cents would be above the limit.
_PerHour = Annotated[Decimal | None, _number("0.001", 2000)]
_Purchase = Annotated[Decimal, _number(10, 10_000_000)]
# The dearest model of 2026 costs 600 USD per million output tokens.
_PerMillion = Annotated[Decimal, _number(0, 10_000)]
_PEAKS = ("fp32", "tf32", "fp16", "bf16")
_GPU: Mapping[str, Reader] = {
    "gpu_model": _required,
    "memory_gb": _number(1, 1024),
    "tdp_w": _number(1, 10_000),
    "memory_gb_per_s": _number(1, 100_000),
    **{f"{precision}_tflops": _number(1, 100_000) for precision in _PEAKS},
    "source": str,
}
# Old drivers omit the vendor's name, new ones the product line's.
_BRANDS = {"NVIDIA", "TESLA", "QUADRO", "GEFORCE", "AMD", "INSTINCT", "HGX"}
# VF is a virtual function of a whole board; of AMD's modules (OAM) there is no other form.
_NO_PART_OF_A_MODEL = {"GENERATION", "EDITION", "AC", "LC", "GPU", "OAM", "VF"}
_MEMORY = re.compile(r"(\d+)(?:G|GB|GIB)")
_MEMORY_KIND = re.compile(r"HBM\d?E?")
_FORM = re.compile(r"(SXM|PCIE|NVL|FHHL)\d*")
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
        tdp_w: Thermal design power; None if unknown.
    """

    model: str
    memory_gb: Decimal | None
    memory_bytes_per_s: float | None
    flop_per_s: Mapping[str, float]
    tdp_w: float | None = None


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
            row["gpu_model"],
            row["memory_gb"],
            row["memory_gb_per_s"] and float(row["memory_gb_per_s"]) * GIGA,
            {
                precision: float(row[f"{precision}_tflops"]) * TERA
                for precision in _PEAKS
                if row[f"{precision}_tflops"] is not None
            },
            row["tdp_w"] and float(row["tdp_w"]),
        )
        for _, row in _rows_of(text, _GPU)
    )


def _parts(name: str) -> _Parts:
    family, form, memory_gb = set(), "", None
    # The profile of a part follows the name of its board: of a MIG device, or of AMD's partition (XCP).
    board = re.split(r" (?:MIG|XCP) ", name.upper())[0]
    for word in board.replace("-", " ").split():
        memory, shape = _MEMORY.fullmatch(word), _FORM.fullmatch(word)
        if memory:
            memory_gb = int(memory[1])
        elif shape:
            form = "PCIE" if shape[1] == "FHHL" else shape[1]
        elif not _MEMORY_KIND.fullmatch(word) and word not in _BRANDS | _NO_PART_OF_A_MODEL:
            family.add(word)
    return _Parts(frozenset(family), form, memory_gb)


# A row for each region of the cloud that has no row of its own.
ALL_REGIONS = "all"
_VERSION = re.compile(r"# costprobe price catalogue, version (\d{4}-\d\d-\d\d)\s*")
# Market prices were seen up to this multiple of the on-demand price.
_LARGEST_SPOT_SHARE = Decimal(2)
_CONDITIONS = ("new", "used")
_PURCHASE_PRICES = ("purchase_price_low", "purchase_price_high")


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

    cloud: _Required
    instance: _Required
    region: _Required
    gpu_model: _Text
    gpu_count: Annotated[Decimal | None, _number("0.01", 72)]
    vcpu: Annotated[Decimal | None, _number(1, 2048)]
    memory_gb: Annotated[Decimal | None, _number("0.5", 65536)]
    currency: _Currency
    on_demand_per_h: _PerHour
    reserved_1y_per_h: _PerHour
    reserved_3y_per_h: _PerHour
    spot_per_h: _PerHour
    as_of: _Month
    doubt: _Text
    source: _Required

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

    gpu_model: _Required
    gpu_count: Annotated[Decimal, _number(1, 72)]
    condition: _Text
    currency: _Currency
    purchase_price_low: _Purchase
    purchase_price_high: _Purchase
    as_of: _Month
    source: _Required


# The sixth column, which is not used.
_UNUSED = "gpu_memory_gb"
_OFFER: Mapping[str, Reader] = {
    **dict(islice(_columns(Offer).items(), 5)),
    _UNUSED: str,
    **_columns(Offer),
}
OFFER_COLUMNS = tuple(_OFFER)


@dataclass(frozen=True, slots=True)
class OffersOf:
    """The offers of a checked table, parsed anew at each pass.

    Parsed they take 2 MB, and a daemon reads them only for a device that it has not yet seen.
    """

    table: str

    def __iter__(self) -> Iterator[Offer]:
        return (_offer(line, row) for line, row in _rows_of(self.table, _OFFER))


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
    for line, row in _rows_of(text, _OFFER):
        offer = _offer(line, row)
        if offer.key in offers:
            raise _error(line, "instance", "occurs twice in this region; keep one row")
        if offer.as_of > version.isoformat():
            raise _error(line, "as_of", f"is after the version {version} of the table")
        offers[offer.key] = offer
    if not offers:
        raise ValueError("has no row")
    return version, tuple(offers.values())


def parse_purchases(text: str) -> tuple[Purchase, ...]:
    """Parse a table of purchase prices.

    Raises:
        ValueError: Another schema, or a value out of range; the message states the line.
    """
    found = []
    for line, row in _rows_of(text, _columns(Purchase)):
        count, low, high = (row[name] for name in ("gpu_count", *_PURCHASE_PRICES))
        if low is None or high is None or count is None or low > high:
            raise _error(line, "gpu_count", "a row needs gpu_count, and a lower and a higher price")
        if row["condition"] not in _CONDITIONS:
            raise _error(line, "condition", f"is not one of {', '.join(_CONDITIONS)}")
        found.append(Purchase(**row))
    return tuple(found)


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


def _offer(line: int, row: dict[str, Any]) -> Offer:
    del row[_UNUSED]
    offer = Offer(**row)
    on_demand, spot = offer.on_demand_per_h, offer.spot_per_h
    committed = [
        price for price in (offer.reserved_1y_per_h, offer.reserved_3y_per_h) if price is not None
    ]
    if on_demand is None and spot is None and not committed:
        raise _error(line, "on_demand_per_h", "a row needs a price")
    if committed and (on_demand is None or max(committed) > on_demand):
        raise _error(line, "reserved_1y_per_h", "a commitment costs more than on demand")
    if spot is not None and on_demand is not None and spot > on_demand * _LARGEST_SPOT_SHARE:
        words = f"is more than {_LARGEST_SPOT_SHARE} times on demand"
        raise _error(line, "spot_per_h", words)
    return offer


def _error(line: int, column: str, problem: str) -> ValueError:
    return ValueError(f"line {line}: {column}: {problem}")


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
        offers: Instances, parsed at each pass.
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

    def loaded(self) -> Catalogue:
        """Return the catalogue with its offers parsed once, for many questions."""
        return replace(self, offers=tuple(self.offers))

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

    model: _Required
    per_million_tokens_in: _PerMillion
    per_million_tokens_cached: Annotated[Decimal | None, _number(0, 10_000)]
    per_million_tokens_out: _PerMillion
    currency: _Currency
    as_of: _Month = ""
    doubt: _Text = ""
    source: _Required = "configuration"


_HOSTED = _columns(HostedPrice)
HOSTED_COLUMNS = tuple(_HOSTED)


def parse_hosted(text: str) -> dict[str, HostedPrice]:
    """Parse a table of hosted models.

    Returns:
        The prices by model.

    Raises:
        ValueError: Another schema, a value out of range, or a model twice; the message states the
            line.
    """
    prices: dict[str, HostedPrice] = {}
    for line, row in _rows_of(text, _HOSTED):
        price = HostedPrice(**row)
        if price.model in prices:
            raise _error(line, "model", "occurs twice; keep one row")
        if row["per_million_tokens_in"] is None or row["per_million_tokens_out"] is None:
            words = "a row needs a price of both kinds of tokens"
            raise _error(line, "per_million_tokens_in", words)
        cached = price.per_million_tokens_cached
        if cached is not None and cached > price.per_million_tokens_in:
            raise _error(line, "per_million_tokens_cached", "is more than that of other input")
        prices[price.model] = price
    return prices
