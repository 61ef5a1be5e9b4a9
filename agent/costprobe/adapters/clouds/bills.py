"""Bills of clouds: files of FOCUS, and exports of AWS, Azure and Google as their lines.

Columns, by their documentation: FOCUS 1.0 to 1.2 (https://focus.finops.org); AWS "Cost and Usage Report
data dictionary" and "CUR 2.0"; Azure "Understand cost details fields"; Google "Structure of Detailed data
export". Names are compared without case and separators, so that `lineItem/UnblendedCost` of a legacy
report is `line_item_unblended_cost` of CUR 2.0. A file is CSV or lines of JSON (as BigQuery exports them),
as it is or compressed by gzip.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TextIO, cast

from costprobe.adapters.host.redaction import outside_text
from costprobe.core.outside import bounded_json, bounded_object, check_regular
from costprobe.core.periods import DAY_NS, HOUR_NS, moment_ns, parse_date_ns

Kind = Literal[
    "compute",
    "storage",
    "network",
    "licences",
    "taxes",
    "credits",
    "commitment fees",
    "other services",
]
MAX_LINE_CHARS: Final = 1 << 20
_LARGEST: Final = Decimal(10) ** 12
_GZIP: Final = b"\x1f\x8b"
_TEXT_CHARS: Final = 200
# Times, texts and resources recur from line to line.
_CACHED: Final = 4096


class BillError(Exception):
    """A file is no bill that can be read; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """One charge.

    Attributes:
        start_ns: UTC in ns of the start of its period.
        end_ns: UTC in ns of its end.
        kind: What it is for.
        billed: Currency, as invoiced.
        effective: Currency with what was paid before for a commitment; equal to `billed` without one.
        currency: ISO 4217 code.
        hours: Instance-hours; None if it is counted in another unit, or is no use.
        names: The resource's id, its last part, its name and the values of its tags, in lower case.
        resource: The resource's id; empty without one.
    """

    start_ns: int
    end_ns: int
    kind: Kind
    billed: Decimal
    effective: Decimal
    currency: str
    hours: Decimal | None
    names: frozenset[str]
    resource: str


class _Format(NamedTuple):
    """The columns of a kind of bill; an empty name is a column that it lacks."""

    name: str
    start: str
    end: str
    billed: str
    currency: str
    category: str
    service: str
    texts: Sequence[str]
    resource: str
    resource_name: str
    quantity: str
    unit: str


_AZURE: Final = _Format(
    "Azure",
    "date",
    "",
    "costinbillingcurrency",
    "billingcurrency",
    "chargetype",
    "metercategory",
    ("metername",),
    "resourceid",
    "resourcename",
    "quantity",
    "unitofmeasure",
)
_FORMATS: Final = (
    _Format(
        "FOCUS",
        "chargeperiodstart",
        "chargeperiodend",
        "billedcost",
        "billingcurrency",
        "chargecategory",
        "servicecategory",
        ("servicename", "chargedescription"),
        "resourceid",
        "resourcename",
        "consumedquantity",
        "consumedunit",
    ),
    _Format(
        "AWS CUR",
        "lineitemusagestartdate",
        "lineitemusageenddate",
        "lineitemunblendedcost",
        "lineitemcurrencycode",
        "lineitemlineitemtype",
        "lineitemproductcode",
        ("lineitemusagetype", "lineitemlineitemdescription"),
        "lineitemresourceid",
        "",
        "lineitemusageamount",
        "pricingunit",
    ),
    _AZURE,
    # Of an Enterprise Agreement.
    _AZURE._replace(billed="cost"),
    _Format(
        "Google",
        "usagestarttime",
        "usageendtime",
        "cost",
        "currency",
        "costtype",
        "servicedescription",
        ("skudescription",),
        "resourceglobalname",
        "resourcename",
        "",
        "",
    ),
)
# Azure's other name of the column of the currency.
_CURRENCY_CODE: Final = "billingcurrencycode"
# What a line is for, by the category of its charge; others are usage.
_CATEGORIES: Final[Mapping[str, Kind]] = {
    "tax": "taxes",
    "credit": "credits",
    "refund": "credits",
    "adjustment": "credits",
    "purchase": "commitment fees",
    "fee": "commitment fees",
    "rifee": "commitment fees",
    "savingsplanrecurringfee": "commitment fees",
    "savingsplanupfrontfee": "commitment fees",
    "unusedreservation": "commitment fees",
    "unusedsavingsplan": "commitment fees",
}
# And of usage, by the first of these that its texts have; instances last.
_USAGE: Final[Sequence[tuple[Kind, re.Pattern[str]]]] = (
    ("licences", re.compile(r"licen[sc]", re.IGNORECASE)),
    (
        "network",
        re.compile(
            r"transfer|egress|ingress|network|bandwidth|ip address|nat gateway", re.IGNORECASE
        ),
    ),
    ("storage", re.compile(r"storage|disk|snapshot|volume|\b(pd\b|ebs)", re.IGNORECASE)),
    ("compute", re.compile(r"compute|amazon ?ec2|virtual machine|\bgpu\b|instance", re.IGNORECASE)),
)
# Azure counts by the hour, or by the 100 hours.
_HOURS: Final = re.compile(r"(?:(\d{1,5}) )?(?:h|hrs?|hours?)", re.IGNORECASE)
# Lines whose hours count; those of discounts and corrections repeat the hours of what they change.
_USED: Final = frozenset({"usage", "discountedusage", "savingsplancoveredusage"})
# What AWS sets against a line that a savings plan covers.
_NEGATION: Final = "savingsplannegation"
# Google's credits for what a commitment covers.
_COMMITTED: Final = "COMMITTED_USAGE_DISCOUNT"
_EFFECTIVE: Final = {
    "discountedusage": "reservationeffectivecost",
    "savingsplancoveredusage": "savingsplansavingsplaneffectivecost",
}
# A cell without a value, as databases write it.
_NULLS: Final = (None, "NULL", "null")
# Columns of tags begin so; a legacy report of AWS has one for each.
_TAGS: Final = ("resourcetags", "tags", "labels")


def read_bill(path: Path) -> Iterator[BillLine]:
    """Yield the lines of a bill in the order of the file, which may be larger than the memory.

    Raises:
        BillError: It cannot be read, or has a line that is no charge.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            is_packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            content = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_packed else file
            with TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
                yield from _lines(path, text)
    except (OSError, EOFError) as error:
        raise BillError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _lines(path: Path, text: TextIO) -> Iterator[BillLine]:
    form = None
    number = 0
    try:
        rows = _rows(text)
        while True:
            number += 1
            cells = next(rows, None)
            if cells is None:
                break
            form = form or _format_of(cells)
            yield _line(form, cells)
        if form is None:
            raise BillError(f"{path}: it has no charges")
    except UnicodeDecodeError:
        raise BillError(
            f"{path}: no text in UTF-8; export the bill as CSV or lines of JSON in UTF-8, not as Parquet"
        ) from None
    except (ValueError, csv.Error) as error:
        raise BillError(f"{path}, charge {number:,}: {error}") from error


def _rows(text: TextIO) -> Iterator[Mapping[str, Any]]:
    """Yield the cells of each line by the plain name of their column."""
    lines = _bounded(text)
    first = next(lines, "")
    if first.lstrip().startswith("["):
        raise ValueError("a list in JSON; export one charge a line")
    if first.lstrip().startswith("{"):
        for line in chain([first], lines):
            yield dict(_flat(bounded_object(line)))
        return
    rows = csv.reader(chain([first], lines))  # noqa: TID251 - of bounded lines
    heads = [_plain(head) for head in next(rows, [])]
    if len(heads) == 1 and ";" in first:
        raise ValueError("its columns are separated by semicolons; export it with commas")
    for cells in rows:
        if len(cells) != len(heads):
            raise ValueError(f"it has {len(cells):,} cells, but {len(heads):,} columns have names")
        yield dict(zip(heads, cells, strict=True))


def _bounded(text: TextIO) -> Iterator[str]:
    """Yield the lines of a file that are not blank."""
    number = 0
    while line := text.readline(MAX_LINE_CHARS):
        number += 1
        if len(line) == MAX_LINE_CHARS:
            raise ValueError(f"line {number:,} is longer than {MAX_LINE_CHARS:,} characters")
        if line.strip():
            yield line


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _flat(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON object; those of an object in it have both names."""
    for name, value in document.items():
        path = before + _plain(name)
        if isinstance(value, dict) and path not in _TAGS:
            yield from _flat(value, path)
        else:
            yield path, value


def _format_of(cells: Mapping[str, Any]) -> _Format:
    for form in _FORMATS:
        if {form.start, form.billed} <= cells.keys():
            return form
    kinds = ", ".join(dict.fromkeys(form.name for form in _FORMATS))
    raise ValueError(f"no column of a cost with one of its time, as {kinds} have them")


def _line(form: _Format, cells: Mapping[str, Any]) -> BillLine:
    def text(column: str) -> str:
        value = cells.get(column)
        return "" if value in _NULLS else str(value)

    def amount(column: str, *, of: object = None) -> Decimal:
        value = text(column) if of is None else str(of)
        with suppress(InvalidOperation):
            number = Decimal(value or "0")
            if number.is_finite() and abs(number) < _LARGEST:
                return number
        raise ValueError(f"column {column}: {outside_text(value, _TEXT_CHARS)!r} is no amount")

    def time_ns(column: str) -> int:
        value = text(column).removesuffix(" UTC")
        try:
            return _time_ns(value)
        except ValueError:
            raise ValueError(
                f"column {column}: {outside_text(value, _TEXT_CHARS)!r} is no time"
            ) from None

    category, resource = _plain(text(form.category)), text(form.resource)
    # Those of Google are in the line that they are for.
    listed = cells.get("credits")
    credited = [
        (str(one.get("type", "")), amount("credits.amount", of=one.get("amount", 0)))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    ]
    billed = sum((credit for _, credit in credited), amount(form.billed))
    # A commitment is paid in lines of its own, without a resource.
    committed = sum(credit for type_, credit in credited if type_.startswith(_COMMITTED))
    paid = next(filter(text, ("effectivecost", _EFFECTIVE.get(category, ""))), "")
    start_ns = time_ns(form.start)
    end_ns = time_ns(form.end) if form.end else start_ns + DAY_NS
    unit = _HOURS.fullmatch(text(form.unit).strip()) if category in _USED else None
    kind = _kind_of(category, " ".join(map(text, (form.service, *form.texts))))
    if form.name == "FOCUS" and category == "usage":
        if _plain(text("commitmentdiscountstatus")) == "unused":
            kind = "commitment fees"
        elif _plain(text("chargeclass")) == "correction":
            kind = "credits"
    return BillLine(
        start_ns,
        # Fees and taxes may have no length.
        max(end_ns, start_ns + HOUR_NS),
        kind,
        billed,
        Decimal(0) if category == _NEGATION else amount(paid) if paid else billed - committed,
        _printable((text(form.currency) or text(_CURRENCY_CODE)).upper()),
        None if unit is None else amount(form.quantity) * int(unit[1] or 1),
        frozenset(_names(form, cells)),
        _printable(resource),
    )


@lru_cache(_CACHED)
def _time_ns(value: str) -> int:
    if "/" in value:
        return moment_ns(datetime.strptime(value, "%m/%d/%Y").replace(tzinfo=UTC))
    return parse_date_ns(value, UTC)


@lru_cache(_CACHED)
def _printable(value: str) -> str:
    return outside_text(value, _TEXT_CHARS)


@lru_cache(_CACHED)
def _kind_of(category: str, texts: str) -> Kind:
    if category in _CATEGORIES:
        return _CATEGORIES[category]
    return next((kind for kind, word in _USAGE if word.search(texts)), "other services")


def _names(form: _Format, cells: Mapping[str, Any]) -> Iterator[str]:
    """Yield what may name the host of a line: its resource, and the values of its tags."""
    resource = str(cells.get(form.resource) or "").lower()
    yield from (resource, re.split("[/:]", resource)[-1])
    yield str(cells.get(form.resource_name) or "").lower()
    for column, value in cells.items():
        if not value or not column.startswith(_TAGS):
            continue
        tags = value
        if isinstance(value, str) and value.startswith(("{", "[", '"')):
            # A tag of its own column may begin so, too.
            with suppress(ValueError):
                # Azure leaves the braces out.
                tags = bounded_json(f"{{{value}}}" if value.startswith('"') else value)
        pairs = (
            tags.values() if isinstance(tags, dict) else tags if isinstance(tags, list) else [tags]
        )
        for pair in pairs:
            # Google and AWS list them as objects.
            yield str(pair.get("value", "") if isinstance(pair, dict) else pair).lower()
