"""What is wrong with a value and how to fix it, in words, from pydantic's error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from costprobe.core.config.sample import toml_value
from costprobe.core.units import format_duration

_TYPES = {
    "missing": "is missing; add it",
    "bool": "must be true or false",
    "string": "must be text in quotes",
    "int": "must be a whole number",
    "float": "must be a number",
    "decimal": "must be a number",
    "finite": "must be a finite number",
    "tuple": "must be a list in brackets",
    "list": "must be a list in brackets",
    "dict": "must be a table of names and values",
    "model": "must be a table of keys",
    "path": "must be a path in quotes",
    "date": "must be a date without quotes and without a time",
}
# Kind of error to the key of its limit and the words; a limit of a duration has its unit.
_LIMITS = {
    "greater_than": ("gt", "must be more than {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "too_short": ("min_length", "must have {} or more entries"),
    "too_long": ("max_length", "must have {} or fewer entries"),
    "string_too_short": ("min_length", "must have {} or more characters"),
    "string_too_long": ("max_length", "must have {} or fewer characters"),
    "decimal_max_digits": ("max_digits", "must have at most {} digits"),
    "decimal_max_places": ("decimal_places", "must have at most {} digits after the point"),
    "decimal_whole_digits": ("whole_digits", "must have at most {} digits before the point"),
}


def problem_words(detail: Mapping[str, Any], field: str) -> str:
    """Return what is wrong with a value.

    Args:
        detail: An error of pydantic.
        field: Name of the field, whose suffix is the unit of its limits.
    """
    kind, context = str(detail["type"]), detail.get("ctx", {})
    if kind in ("too_short", "too_long") and isinstance(detail["input"], str):
        kind = f"string_{kind}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"write one of {context['expected']}"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        limit = context[key]
        return words.format(format_duration(limit) if field.endswith("_s") else limit)
    return _TYPES.get(kind.partition("_")[0], "is not valid")


def example_of(key: str, field: FieldInfo | None) -> str:
    """Return a line of TOML with a valid value of a key; empty if none is known.

    Args:
        key: The key in the file.
        field: Its field; None if the error is not of one field.
    """
    if field is None:
        return ""
    default = None if field.is_required() else field.default
    value = field.examples[0] if field.examples else default
    if value is None or value == ():
        return ""
    if not field.examples and isinstance(value, float) and not isinstance(default, int):
        # Of a duration, the default is a number of seconds.
        value = format_duration(value) if field.alias else value
    try:
        return f"{key} = {toml_value(value)}"
    except TypeError:
        return ""
