"""InfluxDB line protocol, rendered once per point and parsed back; names in queries and labels.

Sources: the InfluxDB line protocol reference (v1 and v2 agree on all that is used here), and
tests of what InfluxDB 1.6.7 and VictoriaMetrics 1.79.5 accept and return. Text that they do not
all return unchanged, such as a line break in a label or a backslash in a name, is replaced by
similar text, so that the row is not rejected.

Names and texts in InfluxQL follow https://docs.influxdata.com/influxdb/v1/query_language/spec.
Tags have names as labels of Prometheus.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from costprobe.core.outside import UnusableInputError
from costprobe.core.records import FieldValue, Point

_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
NAME_CHARS_MAX = 512
STRING_CHARS_MAX = 8192
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# InfluxDB drops a field with the first name and rejects tags with any of these names.
_RESERVED = frozenset({"time", "_field", "_measurement"})
_MEASUREMENT = str.maketrans({",": r"\,", " ": r"\ "})
_KEY = str.maketrans({",": r"\,", " ": r"\ ", "=": r"\="})
_UNESCAPE_KEY = re.compile(r"\\([, =])")
_UNESCAPE_STRING = re.compile(r'\\(["\\])')
_LINE = re.compile(r"((?:\\.|[^ \\])+) (.+) (-?[0-9]+)")
_PART = r"(?:\\.|[^,=\\])+"
_SERIES_NAME = re.compile(r"(?:\\.|[^,\\])+")
_TAG = re.compile(rf",({_PART})=({_PART})")
_FIELD = re.compile(
    rf'({_PART})=(?:"(?P<string>(?:\\.|[^"\\])*)"'
    r"|(?P<int>-?[0-9]+)i|(?P<float>-?[0-9.]+(?:e[-+]?[0-9]+)?)|(?P<bool>true|false))(?:,(?!\Z)|\Z)"
)


def identifier(name: str) -> str:
    """Quote the name of a database, measurement, tag or field."""
    return '"' + _escaped(name, '"') + '"'


def literal(text: str) -> str:
    """Quote a text."""
    return "'" + _escaped(text, "'") + "'"


def _escaped(text: str, quote: str) -> str:
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")


def label_name(tag: str) -> str:
    """Return the label of a tag; characters that are invalid in a label's name are replaced."""
    name = _NO_LABEL.sub("_", tag)
    if name[0].isdigit() or name.startswith("__"):
        return f"tag_{name.lstrip('_')}"
    return name


def _plain(text: str) -> str:
    """Return text valid in a name or tag: a trailing backslash would escape the next character."""
    return _UNWRITABLE.sub(" ", text[:NAME_CHARS_MAX]).replace("\\", "/")


def _name(text: str) -> str:
    name = _plain(text)
    return name + "_" if name in _RESERVED else name


def written_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags as databases return them, sorted by name, without absent ones."""
    pairs = ((_name(name), _plain(value)) for name, value in tags.items() if name and value)
    return dict(sorted(pairs))


def series_key(measurement: str, tags: Mapping[str, str]) -> str:
    """Return measurement and sorted tags, escaped: the identity of a series.

    Raises:
        ValueError: The measurement has no name.
    """
    return _series_key(measurement, tuple(tags.items()))


@lru_cache(maxsize=1024)
def _series_key(measurement: str, tags: tuple[tuple[str, str], ...]) -> str:
    """Cached rendering: a host writes the same few dozen series repeatedly."""
    if not measurement:
        raise ValueError("a point has no measurement name")
    name = _plain(measurement)
    if name.startswith("#"):  # a line that starts with # is a comment
        name = "_" + name[1:]
    pairs = (
        f",{name.translate(_KEY)}={value.translate(_KEY)}"
        for name, value in written_tags(dict(tags)).items()
    )
    return name.translate(_MEASUREMENT) + "".join(pairs)


def _unescaped(text: str) -> str:
    return _UNESCAPE_KEY.sub(r"\1", text) if "\\" in text else text


def parse_series_key(key: str) -> tuple[str, dict[str, str]]:
    """Return measurement and tags of a key that `series_key` rendered.

    Raises:
        ValueError: The text is not a series key.
    """
    match = _SERIES_NAME.match(key)
    if match is None:
        raise ValueError(f"no series key: {key[:40]!r}")
    measurement, position = _unescaped(match[0]), match.end()
    tags: dict[str, str] = {}
    while position < len(key):
        match = _TAG.match(key, position)
        if match is None:
            raise ValueError(f"no tag at character {position}: {key[position:][:40]!r}")
        tags[_unescaped(match[1])] = _unescaped(match[2])
        position = match.end()
    return measurement, tags


@lru_cache(maxsize=1024)
def field_key(name: str) -> str:
    """Return the name of a field, escaped for a field set.

    VictoriaMetrics parses everything after a quotation mark as text, so it is replaced by an apostrophe.
    """
    return _name(name).replace('"', "'").translate(_KEY)


def field_set(fields: Mapping[str, FieldValue]) -> str:
    """Return the fields, escaped and sorted by name; empty without fields.

    A value that no database can hold (NaN, an infinity, an integer beyond 64 bits) and a field
    without a name are left out: absent is absent.
    """
    parts = []
    for head, name in _layout(tuple(fields)):
        value = fields[name]
        if type(value) is float:  # the most frequent type
            if math.isfinite(value):
                parts.append(f"{head}{value!r}")
        elif text := _value(value):
            parts.append(head + text)
    return ",".join(parts)


@lru_cache(maxsize=256)
def _layout(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return (text before the value, field name) of each field, in the order of a field set."""
    written = {field_key(name): name for name in names if name}
    return tuple((f"{key}=", name) for key, name in sorted(written.items()))


def _value(value: FieldValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:d}i" if INT_MIN <= value <= INT_MAX else ""
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else ""
    text = _UNWRITABLE.sub(" ", value[:STRING_CHARS_MAX])
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def render(point: Point) -> str:
    """Return one line of line protocol without a line end; the time is in ns."""
    return f"{series_key(point.measurement, point.tags)} {field_set(point.fields)} {point.time_ns}"


def parse_field_set(text: str) -> dict[str, FieldValue]:
    """Return the fields of a text that `field_set` rendered.

    Raises:
        UnusableInputError: The text is not a field set.
    """
    return dict(_parsed(_checked(text)))


# For each type: prefix, pattern and suffix of a value without escapes, and the function that parses it.
_VALUES: Final[Mapping[type, tuple[str, str, str, Callable[[str], FieldValue]]]] = {
    float: ("", r"-?[0-9.]+(?:e[-+]?[0-9]+)?", "", float),
    int: ("", "-?[0-9]+", "i", int),
    bool: ("", "true|false", "", lambda text: text == "true"),
    str: ('"', r'[^"\\]*', '"', sys.intern),  # the same in most rows
}


def fields_reader(wanted: frozenset[str]) -> Callable[[str], dict[str, FieldValue]]:
    """Return a function like `parse_field_set` that returns some fields, several times as fast.

    The rows of a series usually have the same fields: one expression matches them all.

    Args:
        wanted: Names of the fields.
    """
    # Of the previous row: what matches one with its fields, and the wanted ones in their order.
    match = re.compile("(?!)").fullmatch
    names: tuple[str, ...] = ()
    makers: tuple[Callable[[str], FieldValue], ...] = ()

    def read(text: str) -> dict[str, FieldValue]:
        nonlocal match, names, makers
        found = match(text) if isinstance(text, str) else None
        if found is not None:
            values = zip(names, makers, found.groups(), strict=True)
            return {name: make(value) for name, make, value in values}
        fields = parse_field_set(text)
        names = tuple(name for name in fields if name in wanted)
        makers = tuple(_VALUES[type(fields[name])][-1] for name in names)
        parts = []
        for name, value in fields.items():
            begin, middle, end, _ = _VALUES[type(value)]
            group = "(" if name in wanted else "(?:"
            parts.append(f"{re.escape(field_key(name))}={begin}{group}{middle}){end}")
        match = re.compile(",".join(parts)).fullmatch
        return {name: fields[name] for name in names}

    return read


def parse_line(line: str) -> Point:
    """Return the point of a line that `render` rendered.

    Raises:
        ValueError: The text is not a line of line protocol.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"no line protocol: {line[:40]!r}")
    measurement, tags = parse_series_key(match[1])
    return Point(measurement, tags, parse_field_set(match[2]), int(match[3]))


def number_reader(field: str) -> Callable[[str], float | None]:
    """Return a function that finds the number of a field in a field set without parsing all of it.

    The function returns None if the field is absent or not a number. The text must be one that
    `field_set` rendered: its names contain no quotation mark, so an even number of them
    before the field, none of them escaped, shows that it is not inside a string.
    """
    name = field_key(field)
    first, later = f"{name}=", f",{name}="

    def read(text: str) -> float | None:
        start, begin = 0, len(first)
        if not _checked(text).startswith(first):
            start = text.find(later)
            if start < 0:
                return None
            begin = start + len(later)
        if text.find("\\", 0, start) < 0 and text.count('"', 0, start) % 2 == 0:
            end = text.find(",", begin)
            return _number(text[begin:] if end < 0 else text[begin:end])
        value = next((v for n, v in _parsed(text) if n.translate(_KEY) == name), None)
        return None if isinstance(value, bool | str | None) else float(value)

    return read


def _checked(text: str) -> str:
    if not isinstance(text, str):
        # SQLite stores any type in any column.
        raise UnusableInputError("no field set: not text")
    return text


def _number(text: str) -> float | None:
    """Parse a rendered value; None if it is not a number."""
    try:
        value = float(text.removesuffix("i"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _parsed(text: str) -> Iterator[tuple[str, FieldValue]]:
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None or match.lastgroup is None:
            raise UnusableInputError(f"no field set at character {position}")
        yield _unescaped(match[1]), _parse_value(match.lastgroup, match[match.lastgroup])
        position = match.end()


def _parse_value(kind: str, text: str) -> FieldValue:
    if kind == "string":
        return _UNESCAPE_STRING.sub(r"\1", text) if "\\" in text else text
    if kind == "bool":
        return text == "true"
    return int(text) if kind == "int" else float(text)
