"""Figures over time, such as prices: parsed from the output of a source, stored, and looked up."""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any

from costprobe.core.outside import UnusableInputError, bounded_json
from costprobe.core.periods import parse_date_ns
from costprobe.core.records import NS_PER_S

MAX_VALUES = 20_000
# A timestamp from this size on is in milliseconds: as seconds it would be after the year 33,000.
MILLISECONDS_FROM = 10**12
# Milliseconds; later instants do not fit into 64 bits of ns.
LATEST = 9 * 10**12


@dataclass(frozen=True, slots=True)
class TimedValue:
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
        values = [[value.time_ns, str(value.value)] for value in self.values]
        return {"values": values, "seen_ns": self.seen_ns}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TimedValues:
        """Return the figures that `to_document` wrote."""
        values = (TimedValue(int(ns), Decimal(text)) for ns, text in document["values"])
        return cls(tuple(values), document["seen_ns"])


@dataclass(frozen=True, slots=True)
class FigureFormat:
    """The formats in which sources write a figure.

    Attributes:
        noun: Name of the figure, for errors.
        example: A CSV header.
        largest: Larger values are rejected: their unit is wrong.
        time_keys: Names of the time, the preferred first.
        value_keys: Names of the figure; the value may be a nested object.
        list_keys: Names of the list in an object.
    """

    noun: str
    example: str
    largest: int
    time_keys: tuple[str, ...]
    value_keys: tuple[str, ...]
    list_keys: tuple[str, ...]


def parse_timed(
    text: str, now_ns: int, format_: FigureFormat, currency: str | None = None
) -> list[TimedValue]:
    """Parse figures: a single number, CSV with a time and a figure, or JSON.

    JSON is a number, an object with a figure and an optional time, a list of these, or an object
    that contains such a list. A figure without a time applies from now on. Times are ISO 8601 (UTC
    if without a zone) or seconds or milliseconds since 1970.

    Args:
        text: Output of the source.
        now_ns: UTC in ns since 1970.
        format_: Names and limits.
        currency: Currency of the figures; None if they are no money.

    Raises:
        ValueError: It names another currency, contains no figure or an invalid one; the message states the expected format.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError(f"is empty; expected one {format_.noun}, or lines of {format_.example}")
    if stripped[0] in "[{":
        rows = _json_rows(stripped, format_, currency)
    elif "," in stripped.splitlines()[0] or len(stripped.splitlines()) > 1:
        rows = _csv_rows(stripped, format_)
    else:
        rows = [(None, stripped)]
    if len(rows) > MAX_VALUES:
        raise ValueError(f"has more than {MAX_VALUES} lines; keep the newest")
    return [TimedValue(_time_ns(when, now_ns), _figure(value, format_)) for when, value in rows]


def _json_rows(text: str, format_: FigureFormat, currency: str | None) -> list[tuple[Any, Any]]:
    try:
        document = bounded_json(text, parse_number=Decimal)
    except UnusableInputError as error:
        raise ValueError(f"{error}") from error
    _check_currency(document, currency)
    if isinstance(document, dict):
        lists = (document[key] for key in format_.list_keys if isinstance(document.get(key), list))
        document = next(lists, document)
    entries = document if isinstance(document, list) else [document]
    if not entries:
        raise ValueError(f"contains no {format_.noun}")
    for entry in entries:
        _check_currency(entry, currency)
    return [_json_row(entry, format_) for entry in entries]


def _check_currency(entry: Any, currency: str | None) -> None:  # noqa: ANN401 - output of the source
    """A price in another currency is an error: it would be added to others as if it were in theirs."""
    entry_currency = _named(entry, ("currency", "Currency")) if isinstance(entry, dict) else None
    if None not in (currency, entry_currency) and str(entry_currency).upper() != currency:
        raise ValueError(
            f"its prices are in {entry_currency}, the plan in {currency};"
            " use the plan's currency in both"
        )


def _json_row(entry: Any, format_: FigureFormat) -> tuple[Any, Any]:  # noqa: ANN401 - output of the source
    if not isinstance(entry, dict):
        return None, entry
    value = _named(entry, format_.value_keys)
    if isinstance(value, dict):
        value = _named(value, format_.value_keys)
    if value is None:
        names = " or ".join(format_.value_keys)
        raise ValueError(f"an entry has no {format_.noun}; expected the key {names}")
    return _named(entry, format_.time_keys), value


def _named(entry: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - output of the source
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _csv_rows(text: str, format_: FigureFormat) -> list[tuple[Any, Any]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row and any(row)]
    except csv.Error as error:
        raise ValueError(f"not valid CSV ({error})") from error
    if not rows:
        raise ValueError(f"contains no {format_.noun}")
    head = [cell.strip() for cell in rows[0]]
    value_at = next((head.index(key) for key in format_.value_keys if key in head), None)
    if value_at is not None:
        time_at = next((head.index(key) for key in format_.time_keys if key in head), None)
        rows = rows[1:]
    else:
        time_at, value_at = 0, 1
    if not rows:
        raise ValueError(f"contains no {format_.noun} after the header")
    try:
        return [(None if time_at is None else row[time_at], row[value_at]) for row in rows]
    except IndexError as error:
        raise ValueError(f"a line is too short; expected {format_.example}") from error


def _time_ns(when: Any, now_ns: int) -> int:  # noqa: ANN401 - output of the source
    if when is None or when == "":
        return now_ns
    try:
        number = Decimal(str(when).strip())
    except InvalidOperation:
        return parse_date_ns(str(when), UTC)
    # Checked before any arithmetic: arithmetic on a number of a million digits is slow.
    if not number.is_finite() or not 0 <= number <= LATEST:
        raise ValueError(f"{when!r} is not a time")
    seconds = number / 1000 if number >= MILLISECONDS_FROM else number
    return int(seconds * NS_PER_S)


def _figure(value: Any, format_: FigureFormat) -> Decimal:  # noqa: ANN401 - output of the source
    try:
        figure = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a {format_.noun}") from error
    if not figure.is_finite() or not 0 <= figure <= format_.largest:
        raise ValueError(f"{value!r} is not a {format_.noun}")
    return figure
