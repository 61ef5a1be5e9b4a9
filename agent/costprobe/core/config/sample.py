"""Commented sample tables of the configuration file, from the fields that define its keys."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# Where descriptions start, and where they are wrapped.
_COLUMN = 32
_WIDTH = 100


class SampleTable(NamedTuple):
    """A table of a sample file.

    Attributes:
        heading: Heading in the file: "[[probe]]".
        section: The class that defines its keys.
        keys: The keys to show, by their names in the file; values are the fields' first examples.
        values: Values to show in place of the examples.
        active: Keys that are not commented out; if empty the heading is commented out, too.
        note: Lines before the table; by default the first line of the class's docstring.
    """

    heading: str
    section: type[BaseModel]
    keys: tuple[str, ...]
    values: Mapping[str, object] = {}
    active: frozenset[str] = frozenset()
    note: str | None = None


def render_table(sample: SampleTable) -> str:
    """Return the lines of a table, each key with its description as a comment.

    Raises:
        KeyError: The section has no such key.
    """
    fields = {field.alias or name: field for name, field in sample.section.model_fields.items()}
    note = (sample.section.__doc__ or "").partition("\n")[0] if sample.note is None else sample.note
    lines = [f"# {line}".rstrip() for line in textwrap.wrap(note, _WIDTH - 2)]
    lines.append(sample.heading if sample.active else f"# {sample.heading}")
    for name in sample.keys:
        prefix = "" if name in sample.active else "# "
        value = sample.values.get(name, _example(name, fields[name]))
        description = fields[name].description or ""
        lines += _commented(f"{prefix}{name} = {toml_value(value)}", description)
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """Format a value as TOML; tables are inline.

    Raises:
        TypeError: TOML has no such type.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml_value(item)}' for name, item in value.items())} }}"
    if isinstance(value, str | Path):
        return f'"{value}"'
    if isinstance(value, int | float | Decimal | date):
        return str(value)
    raise TypeError(f"TOML has no {type(value).__name__}")


def _example(name: str, field: FieldInfo) -> object:
    if not field.examples:
        raise KeyError(f"{name} has no example")
    return field.examples[0]


def _commented(setting: str, description: str) -> Iterator[str]:
    indent = " " * _COLUMN
    wrapped = textwrap.wrap(description, _WIDTH - _COLUMN - 2)
    if len(setting) < _COLUMN:
        first, *wrapped = wrapped
        yield f"{setting:{_COLUMN}}# {first}"
    elif len(setting) + len(description) + 4 <= _WIDTH:
        wrapped = []
        yield f"{setting}  # {description}"
    else:
        yield setting
    for line in wrapped:
        yield f"{indent}# {line}"
