"""Durations, sizes and numbers as text, and the hours of a billing month and year."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from typing import Final

HOUR_S = 3600.0
# A year of 365 days and a twelfth of it: the convention of cloud price lists (730 h a month).
YEAR_H = 8760
MONTH_H = 730
KWH_J = 3.6e6

# Later instants and longer durations do not fit into 64 bits of ns.
MAX_DURATION_S = (2**63 - 1) / 1e9
MAX_SIZE_BYTES = 2**63 - 1
MAX_SHOWN_CHARS = 60
# Numbers outside are written with an exponent.
_LEAST_PLAIN, _MOST_PLAIN = 1e-9, 1e12

_DURATION_UNITS_S = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": HOUR_S,
    "d": 24 * HOUR_S,
    "w": 7 * 24 * HOUR_S,
    "y": YEAR_H * HOUR_S,
}
_SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_WORDS_S: Final = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w|y)\s*")


class DurationRangeError(ValueError):
    """A duration is longer than MAX_DURATION_S."""


def parse_duration_s(text: str) -> float:
    """Parse a duration such as "5m", "1.5s" or "1h 30m" to seconds.

    Raises:
        ValueError: The text is not a duration, or it is too long; the message gives the format.
    """
    stripped = text.strip()
    total_s, position = 0.0, 0
    while position < len(stripped):
        part = _DURATION_PART.match(stripped, position)
        if part is None:
            break
        total_s += float(part[1]) * _DURATION_UNITS_S[part[2]]
        position = part.end()
    if not stripped or position < len(stripped):
        units = ", ".join(_DURATION_UNITS_S)
        raise ValueError(
            f'{quoted(text)} is not a duration; write a number and a unit ({units}): "5m"'
        )
    if total_s > MAX_DURATION_S:
        raise DurationRangeError(f"{quoted(text)} is too long; a duration is at most 292y")
    return total_s


def parse_size_bytes(text: str) -> int:
    """Parse a size such as "4GiB" or "512 MB" to bytes.

    Raises:
        ValueError: The text is not a size; the message gives the format.
    """
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] not in _SIZE_UNITS_BYTES:
        units = ", ".join(_SIZE_UNITS_BYTES)
        raise ValueError(
            f'{quoted(text)} is not a size; write a number and a unit ({units}): "4GiB"'
        )
    size_bytes = float(match[1]) * _SIZE_UNITS_BYTES[match[2]]
    if size_bytes > MAX_SIZE_BYTES:
        raise ValueError(f"{quoted(text)} is too large; a size is at most 8388607TiB")
    return int(size_bytes)


def quoted(text: str) -> str:
    """Return text in quotes as an error shows it: without control characters, and shortened."""
    return repr(text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}...")


def format_duration(duration_s: float) -> str:
    """Format a duration in its shortest exact form: 300.0 is "5m"."""
    for unit in ("w", "d", "h", "m", "s"):
        count = duration_s / _DURATION_UNITS_S[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{duration_s * 1000:g}ms" if duration_s < 1 else f"{duration_s:g}s"


def duration_words(duration_s: float) -> str:
    """Format a duration in a message, with its two largest units: "11 h 7 min", "5 min", "2 d", "1.5 s"."""
    if duration_s < _WORDS_S["min"]:
        return f"{duration_s:.3g} s" if duration_s >= 1 else f"{duration_s * 1000:.3g} ms"
    pairs = list(pairwise(_WORDS_S.values()))
    finest_s = next(part_s for unit_s, part_s in pairs if duration_s >= unit_s)
    rest_s, words = round(duration_s / finest_s) * finest_s, []
    for unit, unit_s in _WORDS_S.items():
        count, rest_s = divmod(rest_s, unit_s)
        words += [f"{count} {unit}"] if count else []
    return " ".join(words)


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: "1 device", "2 devices"; the plural is formed with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def significant(value: float, digits: int = 4) -> str:
    """Format a number with significant digits: "0.00002683", "10,871"; an exponent only if it is extreme.

    Args:
        value: The number; a larger one has all of its whole digits.
        digits: Significant digits.
    """
    text = f"{value:,.{digits}g}"
    if "e" not in text or not _LEAST_PLAIN <= abs(value) < _MOST_PLAIN:
        return text
    return f"{value:,.0f}" if abs(value) >= 1 else f"{Decimal(text):f}"


def percent(share: float | Decimal, places: int | None = None) -> str:
    """Format a share as a percentage: 0.13 is "13 %".

    Args:
        share: The share, from 0 to 1 as a rule.
        places: Decimal places; by default one below 1 % and from 99 to 100 %, else none.
    """
    pct = float(share) * 100
    if places is not None:
        # What rounds to 0 has no minus.
        return f"{round(pct, places) + 0.0:.{places}f} %"
    has_place = 99 <= pct < 100 or 0 < pct < 1  # noqa: PLR2004 - percents
    return f"{pct:.{1 if has_place else 0}f}".removesuffix(".0") + " %"
