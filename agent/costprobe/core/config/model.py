"""The model of a whole configuration file, and commented sample tables made from its fields.

The model consists of section classes and checks across their tables.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, Tag, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from costprobe.core.config.fields import Section

# Where descriptions start, and where they are wrapped.
_COLUMN = 32
_WIDTH = 100


class CrossFieldError(ValueError):
    """A combination of values that are valid on their own.

    Attributes:
        problems: One line per error: `key.path: what is wrong and how to fix it`.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RootSection(Section):
    """A whole configuration file; the root model derives from it."""

    def cross_field_problems(self) -> Iterator[str]:
        """Yield the errors across tables, one line each: `key.path: what is wrong and how to fix it`."""
        yield from _repeated_names(self)

    @model_validator(mode="after")
    def _cross_field_checks(self) -> Self:
        problems = list(self.cross_field_problems())
        if problems:
            raise CrossFieldError(problems)
        return self


def _repeated_names(root: BaseModel) -> Iterator[str]:
    for key in type(root).model_fields:
        tables = getattr(root, key)
        names: set[str] = set()
        for index, table in enumerate(tables if isinstance(tables, tuple) else ()):
            name = getattr(table, "name", None)
            if name in names:
                yield f"{key}[{index}].name: {name!r} is already used; give each {key} a unique name"
            if name is not None:
                names.add(name)


class SectionClasses:
    """The section classes of a root model, by the keys of the file.

    Attributes:
        root: The root model.
        kinds: For each table with several kinds: its section classes by the kind's name.
        kind_keys: For each such table: the key that selects the kind, such as {"price": "plan"}.
    """

    def __init__(self, root: type[BaseModel]) -> None:
        self.root = root
        self.kinds: dict[str, dict[str, type[BaseModel]]] = {}
        self.kind_keys: dict[str, str] = {}
        for name, field in root.model_fields.items():
            kinds = dict(_tagged(field.annotation))
            if kinds:
                self.kinds[name] = kinds
                self.kind_keys[name] = _kind_key(list(kinds.values())[-1])

    def of_kind(self, table: object, tag: object) -> type[BaseModel] | None:
        """Return the section class of a kind of a table of the file, if there is one."""
        return self.kinds.get(str(table), {}).get(str(tag))

    def of_table(self, name: str, table: Mapping[str, Any]) -> type[BaseModel] | None:
        """Return the section class of a table of the file; of the first kind if its kind is unknown."""
        if name not in self.kinds:
            return section_in(self.root.model_fields[name].annotation)
        kinds = self.kinds[name]
        return kinds.get(str(table.get(self.kind_keys[name])), next(iter(kinds.values())))


def valid_part(raw: Mapping[str, Any], root: type[RootSection]) -> RootSection:
    """Return the root model with the valid keys of a file with errors, for its cross-field checks.

    A key that is missing or invalid has its default; None if it has none.
    """
    classes = SectionClasses(root)
    values: dict[str, Any] = {}
    for name, field in root.model_fields.items():
        value, has_many = raw.get(name), isinstance(field.default, tuple)
        if has_many and isinstance(value, list):
            tables = [table for table in value if isinstance(table, dict)]
            values[name] = tuple(
                _valid_table(table, classes.of_table(name, table)) for table in tables
            )
        elif not has_many and isinstance(value, dict):
            values[name] = _valid_table(value, classes.of_table(name, value))
    return root.model_construct(**values)


def _valid_table(table: Mapping[str, Any], section: type[BaseModel] | None) -> BaseModel | None:
    if section is None:
        return None
    valid: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        key = field.alias or name
        if field.is_required():
            valid[key] = None
        if key in table:
            try:
                adapter = TypeAdapter(field.rebuild_annotation())
                valid[key] = adapter.validate_python(table[key])
            except ValidationError:
                continue
    return section.model_construct(**valid)


def section_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section class inside an annotation such as `tuple[ProbeConfig, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    sections = (section_in(argument) for argument in get_args(annotation))
    return next((section for section in sections if section is not None), None)


def _tagged(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield tag and section class of each member of a tagged union, also of nested ones."""
    for argument in get_args(annotation):
        tag = next((note.tag for note in get_args(argument) if isinstance(note, Tag)), None)
        if tag is not None:
            yield tag, get_args(argument)[0]
        else:
            yield from _tagged(argument)


def _kind_key(section: type[BaseModel]) -> str:
    """Return the key with a single possible value, such as `kind`."""
    return next(
        name
        for name, field in section.model_fields.items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    )


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
