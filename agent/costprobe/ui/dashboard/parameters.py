"""Query parameters of the dashboard API, validated before anything is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from costprobe.core.periods import parse_moment_ns
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SCHEMA

DAY_S: Final = 86_400.0
RANGE_S_MAX: Final = 400 * DAY_S
RANGE_S_MIN: Final = 1.0
POINTS_MIN, POINTS_DEFAULT, POINTS_MAX = 10, 600, 1000
# A series with more rows is read by the hour, for a response within some tenths of a second.
ROWS_MIN, ROWS_DEFAULT, ROWS_MAX = 100, 10_000, 200_000
VALUE_CHARS_MAX: Final = 200
# Tags by which a response can be filtered.
TAGS: Final = ("device", "probe", "service", "basis", "currency")
# What is drawn as one line, and what its values are; the first is the default.
GROUPS: Final = ("series", "model", "device")
SCALES: Final = ("amount", "change", "auto")


class ParameterError(ValueError):
    """Invalid query parameters; the text gives the valid form."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range; its end is excluded.

    Attributes:
        since_ns: UTC in ns.
        until_ns: UTC in ns.
    """

    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class TrendQuery:
    """A numeric field over time.

    Attributes:
        measurement: A key of the schema.
        field: One of its numeric fields.
        time: Time range.
        points: Most points of each series.
        rows: A series with more rows is read by the hour.
        tags: Tags that a series must have.
        group: "series", or "model" or "device" for one line for each of them.
        scale: "amount"; "change" from the baseline in percent; "auto" for amounts of similar size.
        now_ns: UTC in ns, at which baselines end.
    """

    measurement: str
    field: str
    time: TimeRange
    points: int = POINTS_DEFAULT
    rows: int = ROWS_DEFAULT
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    group: str = GROUPS[0]
    scale: str = SCALES[0]
    now_ns: int = 0


def known(pairs: Sequence[tuple[str, str]], names: Sequence[str]) -> dict[str, str]:
    """Return the parameters by name.

    Raises:
        ParameterError: A parameter is unknown, repeated, or too long.
    """
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name not in names:
            allowed = ", ".join(names) or "none"
            raise ParameterError(f"{name[:40]!r}: no such parameter; there are: {allowed}")
        if name in parameters:
            raise ParameterError(f"{name}: given twice")
        if len(value) > VALUE_CHARS_MAX:
            raise ParameterError(f"{name}: longer than {VALUE_CHARS_MAX} characters")
        parameters[name] = value
    return parameters


def time_range(parameters: Mapping[str, str], default: str, now_ns: int) -> TimeRange:
    """Parse `since` and `until`, each a duration before now or ISO 8601.

    Args:
        parameters: Parameters.
        default: Default of `since`.
        now_ns: UTC in ns; default of `until`.

    Raises:
        ParameterError: A time is malformed, or the range is empty or too long.
    """
    since_ns = _moment_ns("since", parameters.get("since", default), now_ns)
    until_ns = _moment_ns("until", parameters["until"], now_ns) if "until" in parameters else now_ns
    length_s = (until_ns - since_ns) / NS_PER_S
    if length_s < RANGE_S_MIN:
        raise ParameterError("since: must be at least a second before until")
    if length_s > RANGE_S_MAX:
        raise ParameterError(f"since: at most {RANGE_S_MAX / DAY_S:.0f}d before until")
    return TimeRange(since_ns, until_ns)


def trend_query(pairs: Sequence[tuple[str, str]], now_ns: int) -> TrendQuery:
    """Parse the parameters of `/api/trend`.

    Raises:
        ParameterError: A parameter is invalid.
    """
    names = ("field", "since", "until", "points", "rows", "group", "scale", "label", *TAGS)
    parameters = known(pairs, names)
    measurement, name = _numeric_field(parameters.get("field", "cost_per_inference"))
    return TrendQuery(
        measurement,
        name,
        time_range(parameters, "24h", now_ns),
        whole_number(parameters, "points", POINTS_DEFAULT, (POINTS_MIN, POINTS_MAX)),
        whole_number(parameters, "rows", ROWS_DEFAULT, (ROWS_MIN, ROWS_MAX)),
        {tag: parameters[tag] for tag in TAGS if tag in parameters} | label_filter(parameters),
        one_of(parameters, "group", GROUPS),
        one_of(parameters, "scale", SCALES),
        now_ns,
    )


def one_of(parameters: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return a parameter that is one of some words, the first by default.

    Raises:
        ParameterError: It is another.
    """
    text = parameters.get(name, choices[0])
    if text not in choices:
        raise ParameterError(f"{name}: {text[:40]!r} is not one of {', '.join(choices)}")
    return text


def label_filter(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the label that a series must have; empty for any.

    Raises:
        ParameterError: It is malformed.
    """
    if "label" not in parameters:
        return {}
    name, equals, value = parameters["label"].partition("=")
    if not name or not equals or not value:
        raise ParameterError("label: write NAME=VALUE, such as team=search")
    return {name: value}


def whole_number(
    parameters: Mapping[str, str], name: str, default: int, limits: tuple[int, int]
) -> int:
    """Return a parameter that is a whole number within limits.

    Raises:
        ParameterError: It is another.
    """
    text = parameters.get(name, str(default))
    least, most = limits
    if (
        not (text.isascii() and text.isdigit() and len(text) <= len(str(most)))
        or not least <= int(text) <= most
    ):
        raise ParameterError(f"{name}: a whole number from {least} to {most}")
    return int(text)


def _numeric_field(text: str) -> tuple[str, str]:
    """Return the first measurement with the field, or the one named before a dot."""
    prefix, _, name = text.rpartition(".")
    for measurement, schema in SCHEMA.items():
        if prefix in ("", measurement) and name in schema.fields:
            if schema.fields[name] not in (float, int):
                raise ParameterError(f"field: {text} is not numeric")
            return measurement, name
    raise ParameterError(f"field: {text[:60]!r} is not a field of the series")


def _moment_ns(name: str, text: str, now_ns: int) -> int:
    try:
        return parse_moment_ns(text, now_ns)
    except ValueError as error:
        raise ParameterError(f"{name}: {error}") from error
