"""Figures over time, such as prices: parsed from the output of a source, stored, and looked up."""

from __future__ import annotations

import csv
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from costprobe.core.outside import bounded_json
from costprobe.core.periods import parse_date_ns
from costprobe.core.records import NS_PER_S
from costprobe.core.units import quoted

MAX_VALUES = 20_000
# A timestamp from this size on is in milliseconds: as seconds it would be after the year 33,000.
MILLISECONDS_FROM = 10**12
# Milliseconds; later instants do not fit into 64 bits of ns.
LATEST = 9 * 10**12
# 2000-01-01: an earlier time is a figure in the wrong column, or a spreadsheet's number of a day.
EARLIEST_NS: Final = 946_684_800 * NS_PER_S
# Separators of columns; where it is no comma, a figure may have a decimal comma.
_SEPARATORS: Final = (";", "\t", ",")
# In a table separated by tabs, "1,234" may also be a number with a thousands separator.
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2},\d{3}")
# What figures are of: those of a series are of the same.
_SUBJECTS: Final = (
    "availabilityzone",
    "availabilityzoneid",
    "instancetype",
    "productdescription",
    "zone",
    "region",
    "instance",
    "product",
)
_UNITS: Final = ("unit", "units", "unitofmeasure")
_CURRENCIES: Final = ("currency", "currencycode")
_SPACES: Final = re.compile(r"[\s_.-]")
# An object of JSON or a line of CSV: its place in errors, and its values by name in lower case.
_Entry = tuple[str, Mapping[str, Any]]


class TimedValue(NamedTuple):
    """A figure that applies from an instant on.

    Attributes:
        time_ns: UTC in ns since 1970.
        value: The figure, exact.
    """

    time_ns: int
    value: Decimal


@dataclass(frozen=True, slots=True)
class TimedValues:
    """The known values of a figure, in order of time.

    Attributes:
        values: Each applies until the next.
        seen_ns: UTC ns of the last successful read of the source; None before the first.
    """

    values: tuple[TimedValue, ...] = ()
    seen_ns: int | None = None

    def at(self, time_ns: int) -> TimedValue | None:
        """Return the figure in force at UTC time_ns; None before the first."""
        index = bisect_right(self.values, time_ns, key=lambda value: value.time_ns)
        return self.values[index - 1] if index else None

    def is_stale(self, time_ns: int, after_s: float) -> bool:
        """Return whether the source had not been read for `after_s` at UTC time_ns.

        A past figure that was followed by a later one is never stale.
        """
        if self.values and time_ns < self.values[-1].time_ns:
            return False
        return self.seen_ns is None or time_ns - self.seen_ns > after_s * NS_PER_S

    def without_future(self, now_ns: int) -> TimedValues:
        """Return the values without those after now_ns, if the wall clock was ahead when they were read.

        The source reports them again; otherwise values from a wrong clock would never be stale.
        """
        if self.seen_ns is None or self.seen_ns <= now_ns:
            return self
        past = (value for value in self.values if value.time_ns <= now_ns)
        return TimedValues(tuple(past), now_ns)

    def updated(self, values: Iterable[TimedValue], seen_ns: int) -> TimedValues:
        """Return the values updated with those just read; a new value replaces one of the same instant.

        A current value equal to the one in force is skipped; the oldest beyond MAX_VALUES are removed.
        """
        in_force = self.at(seen_ns)
        new = [
            value
            for value in values
            if in_force is None or (value.time_ns, value.value) != (seen_ns, in_force.value)
        ]
        by_time = {value.time_ns: value for value in (*self.values, *new)}
        ordered = [value for _, value in sorted(by_time.items())]
        return TimedValues(tuple(ordered[-MAX_VALUES:]), seen_ns)

    def to_document(self) -> dict[str, Any]:
        """Return the figures as JSON, with exact values as text."""
        document: dict[str, Any] = _VALUES.dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TimedValues:
        """Return the figures that `to_document` wrote.

        Raises:
            ValueError: It has another shape.
        """
        return _VALUES.validate_python(document)


_VALUES: Final = TypeAdapter(TimedValues)


@dataclass(frozen=True, slots=True)
class FigureFormat:
    """The formats in which sources write a figure.

    Attributes:
        noun: Name of the figure, for errors.
        example: A CSV header.
        largest: Larger values are rejected: their unit is wrong.
        unit: Its unit, for errors.
        units: Its unit as sources write it, in lower case without spaces; the group `currency` is
            that of money.
        time_keys: Names of the time in lower case, the preferred first.
        value_keys: Names of the figure likewise; the value may be a nested object.
        list_keys: Names of the list in an object.
    """

    noun: str
    example: str
    largest: int
    unit: str
    units: re.Pattern[str]
    time_keys: tuple[str, ...]
    value_keys: tuple[str, ...]
    list_keys: tuple[str, ...]


def parse_timed(
    text: str, now_ns: int, format_: FigureFormat, currency: str | None = None
) -> list[TimedValue]:
    """Parse figures: a single number, CSV with a time and a figure, or JSON.

    Columns of CSV are separated by commas, or by semicolons or tabs and then may have a decimal
    comma. JSON is a number, an object with a figure and an optional time, a list of these, or an
    object that contains such a list. Names are in upper or lower case. A single figure without a
    time applies from now on. Times are ISO 8601 (UTC if without a zone) or seconds or milliseconds
    since 1970, from 2000 on.

    Args:
        text: Output of the source.
        now_ns: UTC in ns since 1970.
        format_: Names and limits.
        currency: Currency of the figures; None if they are no money.

    Raises:
        ValueError: It has another currency or unit, an unknown column, figures of several products
            or places, no figure or an invalid one; the message states the line and the fix.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError(f"is empty; expected one {format_.noun}, or lines of {format_.example}")
    entries = (_json_entries if stripped[0] in "[{" else _csv_entries)(text, format_)
    if not entries:
        raise ValueError(f"contains no {format_.noun}; expected lines of {format_.example}")
    if len(entries) > MAX_VALUES:
        raise ValueError(f"has more than {MAX_VALUES} lines; keep the newest")
    values = []
    for place, entry in entries:
        try:
            _check_words(entry, format_, currency)
            _check_subject(entry, entries[0][1])
            values.append(_timed_value(entry, now_ns, format_, is_only=len(entries) == 1))
        except ValueError as error:
            raise ValueError(f"{place}{error}") from None
    return values


def _timed_value(
    entry: Mapping[str, Any], now_ns: int, format_: FigureFormat, *, is_only: bool
) -> TimedValue:
    when, figure = _named(entry, format_.time_keys), _named(entry, format_.value_keys)
    if figure is None:
        names = ", ".join(format_.value_keys)
        raise ValueError(f"has no {format_.noun}; expected one of the names {names}")
    if when is None and not is_only:
        raise ValueError(f"has no time; expected {format_.example}")
    return TimedValue(_time_ns(when, now_ns), _figure(figure, format_))


def _check_subject(entry: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Refuse a mixture, such as of two zones: it would be one wrong series."""
    for name in _SUBJECTS:
        if entry.get(name) != first.get(name):
            both = " and ".join(quoted(str(one.get(name))) for one in (first, entry))
            raise ValueError(f"{name} is {both}; select one, as a series is of one")


def _json_entries(text: str, format_: FigureFormat) -> list[_Entry]:
    document = bounded_json(text, parse_number=Decimal)
    around: dict[str, Any] = {}
    if isinstance(document, dict):
        lists = (document[key] for key in format_.list_keys if isinstance(document.get(key), list))
        if (found := next(lists, None)) is not None:
            # A unit beside the list is that of its figures.
            outer = _by_name(document, format_).items()
            around = {key: value for key, value in outer if key.endswith(_UNITS + _CURRENCIES)}
            document = found
    if not isinstance(document, list):
        return [("", _by_name(document, format_))]
    return [
        (f"entry {number}: ", {**around, **_by_name(entry, format_)})
        for number, entry in enumerate(document, 1)
    ]


def _by_name(entry: Any, format_: FigureFormat) -> dict[str, Any]:  # noqa: ANN401 - output of the source
    """Return the values of an entry by name, with those of a nested figure; of a number as the figure."""
    if not isinstance(entry, dict):
        return {format_.value_keys[0]: entry}
    values = {str(name).strip().lower(): value for name, value in entry.items()}
    for name in format_.value_keys:
        if isinstance(values.get(name), dict):
            return values | _by_name(values.pop(name), format_)
    return values


def _named(entry: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - output of the source
    return next((entry[name] for name in names if entry.get(name) not in (None, "")), None)


def _check_words(entry: Mapping[str, Any], format_: FigureFormat, currency: str | None) -> None:
    """Refuse another unit or currency: the figure would be added to others as if it were in theirs."""
    for name, value in entry.items():
        stated = None
        if value in (None, ""):
            continue
        if name.endswith(_CURRENCIES):
            stated = str(value)
        elif name.endswith(_UNITS):
            word = _SPACES.sub("", unicodedata.normalize("NFKC", str(value)).lower())
            unit = format_.units.fullmatch(word)
            if unit is None:
                raise ValueError(
                    f"{name} is {quoted(str(value))}; convert the figures to {format_.unit}"
                )
            stated = unit.groupdict().get("currency")
        if stated and currency and stated.upper() != currency:
            raise ValueError(
                f"its prices are in {quoted(stated.upper())}, the plan in {currency}; use the"
                " plan's currency in both"
            )


def _csv_entries(text: str, format_: FigureFormat) -> list[_Entry]:
    first = text.strip().splitlines()[0]
    separator = next((mark for mark in _SEPARATORS if mark in first), ",")
    # Without the empty cells at the end of a line, which office programs add.
    lines = (line.rstrip(f"{separator} \t\r\n") for line in text.splitlines())
    reader = csv.reader(lines, delimiter=separator)
    try:
        rows = [(reader.line_num, [*map(str.strip, row)]) for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: not valid CSV ({error})") from error
    known = {*format_.time_keys, *format_.value_keys, *_SUBJECTS, *_UNITS, *_CURRENCIES}
    if not rows:
        return []
    line, head = rows[0][0], [cell.lower() for cell in rows[0][1]]
    if known.isdisjoint(head):
        # Without a header.
        head = [format_.time_keys[0], format_.value_keys[0]][-len(head) :]
    else:
        del rows[0]
        wrong = [name for name in head if name not in known or head.count(name) > 1]
        if wrong:
            raise ValueError(
                f"line {line}: the column {quoted(wrong[0])} is unknown or occurs twice; remove it,"
                f" or name it as in {format_.example}"
            )
    entries: list[_Entry] = []
    for line, cells in rows:
        if len(cells) > len(head):
            raise ValueError(
                f"line {line}: {len(cells)} cells, expected {len(head)}; write a decimal point, and"
                " nothing else"
            )
        entry = dict(zip(head, cells, strict=False))
        for name in format_.value_keys:
            if separator == ";" or (
                separator == "\t" and not _THOUSANDS.fullmatch(entry.get(name, ""))
            ):
                entry[name] = entry.get(name, "").replace(",", ".")
        entries.append((f"line {line}: " if len(rows) > 1 or line > 1 else "", entry))
    return entries


def _time_ns(when: Any, now_ns: int) -> int:  # noqa: ANN401 - output of the source
    if when is None:
        return now_ns
    try:
        number = Decimal(str(when).strip())
    except InvalidOperation:
        time_ns = parse_date_ns(str(when), UTC)
    else:
        # Checked before any arithmetic: arithmetic on a number of a million digits is slow.
        if not number.is_finite() or not 0 <= number <= LATEST:
            raise ValueError(f"{quoted(str(when))} is not a time")
        time_ns = int((number / 1000 if number >= MILLISECONDS_FROM else number) * NS_PER_S)
    if time_ns < EARLIEST_NS:
        raise ValueError(
            f"the time {quoted(str(when))} is before 2000; write 2026-01-31T14:00:00Z, and figures"
            " with a decimal point"
        )
    return time_ns


def _figure(value: Any, format_: FigureFormat) -> Decimal:  # noqa: ANN401 - output of the source
    try:
        figure = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation:
        figure = Decimal("NaN")
    if not figure.is_finite() or not 0 <= figure <= format_.largest:
        raise ValueError(
            f"{quoted(str(value))} is not a {format_.noun}: write a number from 0 to"
            f" {format_.largest} with a decimal point and no thousands separator"
        )
    return figure
