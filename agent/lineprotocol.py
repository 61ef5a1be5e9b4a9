"""InfluxDB line protocol, rendered once per point and parsed back by readers.

Source: the InfluxDB line protocol reference (v1 and v2 agree on all that is used here).
What cannot be written at all (a newline or a control character in a tag or a name) becomes a
space: a label with a line break in it must not cost the reading that it labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.model import FieldValue, Point

_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNWRITABLE_IN_STRING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")
_MEASUREMENT = str.maketrans({",": r"\,", " ": r"\ "})
_KEY = str.maketrans({",": r"\,", " ": r"\ ", "=": r"\="})
_FIELD = re.compile(r'((?:\\.|[^=\\])+)=("(?:\\.|[^"\\])*"|[^,]*)(?:,|$)', re.DOTALL)
_UNESCAPE_KEY = re.compile(r"\\([, =])")
_UNESCAPE_STRING = re.compile(r'\\(["\\])')


def _plain(text: str) -> str:
    """Text that may stand in a name or a tag: a trailing backslash would escape what follows."""
    cleaned = _UNWRITABLE.sub(" ", text)
    return cleaned.replace("\\", "/") if "\\" in cleaned else cleaned


def series_key(measurement: str, tags: Mapping[str, str]) -> str:
    """Measurement and sorted tags, escaped: what identifies a series."""
    pairs = (
        f",{_plain(name).translate(_KEY)}={_plain(value).translate(_KEY)}"
        for name, value in sorted(tags.items())
        if value
    )
    return _plain(measurement).translate(_MEASUREMENT) + "".join(pairs)


def field_set(fields: Mapping[str, FieldValue]) -> str:
    """The fields, escaped and sorted by name; empty if there are none."""
    return ",".join(
        f"{_plain(name).translate(_KEY)}={_value(value)}" for name, value in sorted(fields.items())
    )


def _value(value: FieldValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}i"
    if isinstance(value, float):
        return repr(value)
    text = _UNWRITABLE_IN_STRING.sub(" ", value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def render(point: Point) -> str:
    """One line of line protocol, without a line end; the time is in ns."""
    return f"{series_key(point.measurement, point.tags)} {field_set(point.fields)} {point.time_ns}"


def parse_field_set(text: str) -> dict[str, FieldValue]:
    """The fields that `field_set` rendered.

    Raises:
        ValueError: The text is no field set.
    """
    fields: dict[str, FieldValue] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise ValueError(f"no field set at character {position}: {text[position:][:40]!r}")
        fields[_UNESCAPE_KEY.sub(r"\1", match[1])] = _parse_value(match[2])
        position = match.end()
    return fields


def _parse_value(text: str) -> FieldValue:
    if text.startswith('"'):
        return _UNESCAPE_STRING.sub(r"\1", text[1:-1])
    if text in ("true", "false"):
        return text == "true"
    if text.endswith("i"):
        return int(text[:-1])
    return float(text)
