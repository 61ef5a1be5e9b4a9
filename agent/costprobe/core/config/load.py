"""Reading the configuration file: all errors at once, each with its key and a fix.

Pydantic's errors become texts of what is wrong and how to fix it, with suggestions for misspelt
names.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from costprobe.core.config.location import MAX_FILE_BYTES
from costprobe.core.config.model import (
    CrossFieldError,
    RootSection,
    SectionClasses,
    section_in,
    toml_value,
    valid_part,
)
from costprobe.core.outside import UnusableInputError, bounded_toml, nearest, read_regular
from costprobe.core.units import format_duration

# The beginning of a kind of error to what is wrong.
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
_READ_FIXES = {
    errno.ENOENT: "write one with: costprobe config init {}",
    errno.EACCES: "give this user the right to read it and to enter its folders, or use sudo",
}
Root = TypeVar("Root", bound=RootSection)
MAX_INTEGER = 2**63 - 1


class ConfigError(Exception):
    """The configuration cannot be used; `problems` has one line per error, key first.

    Attributes:
        path: The file, as the operator named it.
        problems: One line per error: `key.path: what is wrong and how to fix it`.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__("\n".join(f"{path}: {problem}" for problem in problems))
        self.path = path
        self.problems = tuple(problems)


def load_file(path: Path, root: type[Root]) -> Root:
    """Read and validate a configuration file.

    Args:
        path: The file.
        root: The model of the whole file.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has errors; each is listed.
    """
    try:
        content = read_regular(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        fix = _READ_FIXES.get(error.errno or 0, "name another file with -c").format(path)
        raise ConfigError(path, [f"cannot be read ({error.strerror}); {fix}"]) from error
    return parse_text(content, path, root)


def parse_text(text: str | bytes, path: Path, root: type[Root]) -> Root:
    """Validate the text of a configuration file; arguments and errors as in `load_file`."""
    try:
        raw = bounded_toml(text, MAX_FILE_BYTES)
    except UnusableInputError as error:
        raise ConfigError(path, [str(error)]) from error
    return validate_tables(raw, path, root)


def validate_tables(raw: Mapping[str, Any], path: Path, root: type[Root]) -> Root:
    """Validate the tables of a parsed TOML file; arguments and errors as in `load_file`."""
    unusable = list(_unusable(raw))
    if unusable:
        raise ConfigError(path, unusable)
    try:
        return root.model_validate(raw)
    except ValidationError as error:
        details = error.errors()
    crossing = [_cross_field_problems(detail["ctx"]) for detail in details if "ctx" in detail]
    all_problems = next((problems for problems in crossing if problems is not None), None)
    if all_problems is None:
        # Pydantic runs the checks across tables only if all tables are valid.
        classes = SectionClasses(root)
        # A list whose entries have errors is too short only without them.
        inner = {detail["loc"][:-1] for detail in details}
        details = [d for d in details if d["type"] != "too_short" or d["loc"] not in inner]
        single = _merged(_problem(dict(detail), raw, classes) for detail in details)
        all_problems = (*single, *valid_part(raw, root).cross_field_problems())
    raise ConfigError(path, all_problems)


def _unusable(value: object, place: tuple[object, ...] = ()) -> Iterator[str]:
    """Values that no option takes: texts that no file or process can have, and huge integers."""
    if isinstance(value, str) and "\0" in value:
        yield f"{_key_path(place)}: contains a NUL character; remove it"
    elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        yield f"{_key_path(place)}: is not an integer of 64 bits, as TOML has; write a smaller one"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _unusable(key, place)
            yield from _unusable(inner, (*place, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _unusable(inner, (*place, index))


def _cross_field_problems(context: Mapping[str, Any]) -> tuple[str, ...] | None:
    error = context.get("error")
    return error.problems if isinstance(error, CrossFieldError) else None


def _merged(problems: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return one line for each key: a union reports one error for each of its types."""
    by_key: dict[str, list[str]] = {}
    examples: dict[str, str] = {}
    for key, words, example in problems:
        by_key.setdefault(key, []).append(words)
        examples.setdefault(key, example)
    return [_line(key, "; or: ".join(words), examples[key]) for key, words in by_key.items()]


def _line(key: str, words: str, example: str) -> str:
    has_one = any(one in words for one in ("such as", "did you mean", 'write "', ' = "'))
    return f"{key}: {words}" if has_one or not example else f"{key}: {words}, such as {example}"


def _problem(
    detail: Mapping[str, Any], raw: Mapping[str, Any], classes: SectionClasses
) -> tuple[str, str, str]:
    """Return the key, what is wrong with it, and an example."""
    location, branch = _location(detail, raw, classes)
    key = _key_path(location) or "(file)"
    kind = detail["type"]
    model, within = _section_at(location, branch, classes)
    if kind == "extra_forbidden":
        unknown = str(location[-1])
        for section in model.__mro__:
            instead = getattr(section, "removed", {}).get(unknown)
            if instead is not None:
                return key, f"is no longer an option: {instead}; remove it", ""
        return key, f"unknown key; {_suggestion(unknown, model)}", ""
    if kind.startswith("union_tag"):
        name = str(location[0])
        kinds = ", ".join(classes.kinds[name])
        return f"{key}.{classes.kind_keys[name]}", f"write one of {kinds}", ""
    name, field = _field_of(model, within)
    has_many = kind == "tuple_type" and field is not None and section_in(field.annotation)
    if has_many or kind.startswith("model"):
        names = ".".join(str(part) for part in location if not isinstance(part, int))
        heading = f"[[{names}]]" if has_many or isinstance(location[-1], int) else f"[{names}]"
        return key, f"must be a table: write {heading}, with its keys below it", ""
    in_file = name if field is None else field.alias or name
    return key, _problem_words(detail, name), _example_of(in_file, field)


def _location(
    detail: Mapping[str, Any], raw: Mapping[str, Any], classes: SectionClasses
) -> tuple[list[object], type[BaseModel] | None]:
    """Return the keys and indices that lead to an error, and the section class of its table's kind.

    Pydantic's location also has the names of the branches of unions, which the file does not have.
    """
    parts = list(detail["loc"])
    branch = classes.of_kind(parts[0], parts[2]) if len(parts) > 2 else None  # noqa: PLR2004 - table, index, kind
    if branch is not None:
        del parts[2]
    missing = [parts.pop()] if detail["type"] == "missing" else []
    location: list[object] = []
    value: Any = raw
    for part in parts:
        if isinstance(part, int) or (isinstance(value, Mapping) and part in value):
            location.append(part)
            value = value[part]
    return [*location, *missing], branch


def _problem_words(detail: Mapping[str, Any], field: str) -> str:
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


def _example_of(key: str, field: FieldInfo | None) -> str:
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


def _key_path(location: Iterable[object]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _suggestion(unknown: str, model: type[BaseModel]) -> str:
    keys = sorted(field.alias or name for name, field in model.model_fields.items())
    suggestion = nearest(unknown, keys)
    return f'did you mean "{suggestion}"?' if suggestion else f"known here: {', '.join(keys)}"


def _field_of(model: type[BaseModel], within: Sequence[object]) -> tuple[str, FieldInfo | None]:
    """Return name and field of a location in a section; without a field for a whole section."""
    for name, field in model.model_fields.items():
        if within and (field.alias or name) == within[0]:
            return name, field
    return "", None


def _section_at(
    location: Sequence[object], branch: type[BaseModel] | None, classes: SectionClasses
) -> tuple[type[BaseModel], Sequence[object]]:
    """Return the section that has the key of a location, and the rest of the location in it."""
    model: type[BaseModel] = classes.root
    parts = [part for part in location if not isinstance(part, int)]
    for depth, part in enumerate(parts[:-1]):
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        of_part = fields.get(str(part))
        inner = branch or (section_in(of_part.annotation) if of_part else None)
        if inner is None:
            return model, parts[depth:]
        model, branch = inner, None
    return model, parts[-1:]


def as_toml_tables(config: BaseModel) -> dict[str, Any]:
    """Return the configuration in force, defaults included, as tables for TOML."""
    dumped: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    return _without_none(dumped)


def _without_none(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value)
        if isinstance(value, dict)
        else [_without_none(item) if isinstance(item, dict) else item for item in value]
        if isinstance(value, list)
        else value
        for key, value in tables.items()
        if value is not None
    }
