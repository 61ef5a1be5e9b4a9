"""Figures over time, such as prices: parsed from what a source gives, kept, and looked up."""

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

MAX_VALUES = 20_000
# A number of seconds since 1970 of this size is one of milliseconds: it would lie after 33,000.
MILLISECONDS_FROM = 10**12
# In milliseconds, what lies beyond is no time that 64 bits of ns hold.
LATEST = 9 * 10**12


@dataclass(frozen=True, slots=True)
class TimedValue:
    """A figure from an instant on.

    Attributes:
        time_ns: UTC in ns since 1970.
        value: The figure, exact.
    """

    time_ns: int
    value: Decimal


@dataclass(frozen=True, slots=True)
class TimedValues:
    """What is known of a figure, in order of time.

    Attributes:
        values: Each holds until the next.
        seen_ns: UTC ns for which the source last vouched; None if it never did.
    """

    values: tuple[TimedValue, ...] = ()
    seen_ns: int | None = None

    def at(self, time_ns: int) -> TimedValue | None:
        """The figure in force at UTC time_ns; None before the first."""
        index = bisect_right(self.values, time_ns, key=lambda value: value.time_ns)
        return self.values[index - 1] if index else None

    def is_stale(self, time_ns: int, after_s: float) -> bool:
        """Whether the source had not vouched for so long at UTC time_ns.

        A figure in the past, before a later one that is known, is what it was.
        """
        if self.values and time_ns < self.values[-1].time_ns:
            return False
        return self.seen_ns is None or time_ns - self.seen_ns > after_s * NS_PER_S

    def set_back(self, now_ns: int) -> TimedValues:
        """The same; without what is to come, where the calendar was ahead when it was told.

        The source may tell it again; what came of a wrong calendar would never be stale.
        """
        if self.seen_ns is None or self.seen_ns <= now_ns:
            return self
        past = (value for value in self.values if value.time_ns <= now_ns)
        return TimedValues(tuple(past), now_ns)

    def with_news(self, values: Iterable[TimedValue], seen_ns: int) -> TimedValues:
        """The same with what a source just gave; of one instant the news holds.

        A figure of now that repeats the one in force says nothing; the oldest go beyond MAX_VALUES.
        """
        in_force = self.at(seen_ns)
        news = [
            value
            for value in values
            if in_force is None or (value.time_ns, value.value) != (seen_ns, in_force.value)
        ]
        by_time = {value.time_ns: value for value in (*self.values, *news)}
        kept = [value for _, value in sorted(by_time.items())]
        return TimedValues(tuple(kept[-MAX_VALUES:]), seen_ns)

    def to_document(self) -> dict[str, Any]:
        """The figures as JSON can hold them, exact."""
        values = [[value.time_ns, str(value.value)] for value in self.values]
        return {"values": values, "seen_ns": self.seen_ns}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TimedValues:
        """The figures that `to_document` wrote."""
        values = (TimedValue(int(ns), Decimal(text)) for ns, text in document["values"])
        return cls(tuple(values), document["seen_ns"])


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How sources write a figure.

    Attributes:
        noun: What it is called in errors.
        example: A line of CSV as it is to be written.
        most: What is above is of another unit.
        time_keys: Names of its time, the better ones first.
        value_keys: Names of the figure itself; an object under one is looked into.
        list_keys: Names under which an answer holds its list.
    """

    noun: str
    example: str
    most: int
    time_keys: tuple[str, ...]
    value_keys: tuple[str, ...]
    list_keys: tuple[str, ...]


def parse_timed(text: str, now_ns: int, words: Vocabulary) -> list[TimedValue]:
    """Reads figures: a number alone, CSV with a time and a figure, or JSON.

    JSON is a number, an object with a figure and perhaps a time, a list of such, or an object that
    holds such a list. A figure without a time holds from now on. Times are ISO 8601 (without a zone:
    UTC) or seconds or milliseconds since 1970.

    Args:
        text: What the source gave.
        now_ns: UTC in ns since 1970.
        words: How it writes them.

    Raises:
        ValueError: It holds no figure, or one that is none; the text says what was expected.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError(f"is empty; write one {words.noun}, or lines of {words.example}")
    if stripped[0] in "[{":
        rows = _json_rows(stripped, words)
    elif "," in stripped.splitlines()[0] or len(stripped.splitlines()) > 1:
        rows = _csv_rows(stripped, words)
    else:
        rows = [(None, stripped)]
    if len(rows) > MAX_VALUES:
        raise ValueError(f"holds more than {MAX_VALUES} lines; give the newest")
    return [TimedValue(_time_ns(when, now_ns), _figure(value, words)) for when, value in rows]


def _json_rows(text: str, words: Vocabulary) -> list[tuple[Any, Any]]:
    try:
        found = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"is no valid JSON ({error})") from error
    if isinstance(found, dict):
        lists = (found[key] for key in words.list_keys if isinstance(found.get(key), list))
        found = next(lists, found)
    entries = found if isinstance(found, list) else [found]
    if not entries:
        raise ValueError(f"holds no {words.noun}")
    return [_json_row(entry, words) for entry in entries]


def _json_row(entry: Any, words: Vocabulary) -> tuple[Any, Any]:  # noqa: ANN401 - what the source gave
    if not isinstance(entry, dict):
        return None, entry
    value = _named(entry, words.value_keys)
    if isinstance(value, dict):
        value = _named(value, words.value_keys)
    if value is None:
        names = " or ".join(words.value_keys)
        raise ValueError(f"an entry has no {words.noun}; name it {names}")
    return _named(entry, words.time_keys), value


def _named(entry: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401 - as above
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _csv_rows(text: str, words: Vocabulary) -> list[tuple[Any, Any]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row and any(row)]
    except csv.Error as error:
        raise ValueError(f"is no valid CSV ({error})") from error
    if not rows:
        raise ValueError(f"holds no {words.noun}")
    head = [cell.strip() for cell in rows[0]]
    value_at = next((head.index(key) for key in words.value_keys if key in head), None)
    if value_at is not None:
        time_at = next((head.index(key) for key in words.time_keys if key in head), None)
        rows = rows[1:]
    else:
        time_at, value_at = 0, 1
    if not rows:
        raise ValueError(f"holds no {words.noun} below its head")
    try:
        return [(None if time_at is None else row[time_at], row[value_at]) for row in rows]
    except IndexError as error:
        raise ValueError(f"a line is too short; write {words.example}") from error


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


def _figure(value: Any, words: Vocabulary) -> Decimal:  # noqa: ANN401 - as above
    try:
        figure = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is no {words.noun}") from error
    if not figure.is_finite() or not 0 <= figure <= words.most:
        raise ValueError(f"{value!r} is no {words.noun}")
    return figure
