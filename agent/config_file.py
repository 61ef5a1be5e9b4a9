"""Reading the configuration file: every error in one pass, each with its key and its fix."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, Tag, TypeAdapter, ValidationError

from agent.config import Config
from agent.config_alerting import RuleConfig
from agent.config_contradictions import contradictions
from agent.config_notifier import NotifierConfig
from agent.config_place import MAX_FILE_BYTES
from agent.config_price import PlanConfig
from agent.config_probe import AnyProbeConfig
from agent.spelling import nearest

# The unions of the file: the key that tells their branches apart, and the branches by its value.
_UNIONS: dict[str, tuple[str, Any]] = {
    "probe": ("kind", AnyProbeConfig),
    "price": ("plan", PlanConfig),
    "rule": ("kind", RuleConfig),
    "notifier": ("kind", NotifierConfig),
}
# Pydantic's own words where they do not say what to do.
_WORDS = {
    "missing": "is missing; add it",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "date_from_datetime_inexact": "must be a date without a time, such as 2026-01-31",
}


def _branches(union: Any) -> dict[str, type[BaseModel]]:
    """The models of a tagged union by their tags."""
    members = get_args(get_args(union)[0])
    return {
        next(note.tag for note in get_args(member) if isinstance(note, Tag)): get_args(member)[0]
        for member in members
    }


_BRANCHES = {tag: model for _, union in _UNIONS.values() for tag, model in _branches(union).items()}


class ConfigError(Exception):
    """The configuration cannot be used; `problems` has one line per error, key first.

    Attributes:
        path: The file, as the operator named it.
        problems: One line per error: `key.path: what is wrong and how to mend it`.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__("\n".join(f"{path}: {problem}" for problem in problems))
        self.path = path
        self.problems = tuple(problems)


def load(path: Path) -> Config:
    """Reads and validates a configuration file.

    Raises:
        ConfigError: It cannot be read, is no TOML, or holds errors; all of them are named.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        hint = "write one with: infercost config init" if not path.exists() else "check its mode"
        raise ConfigError(path, [f"cannot be read ({error.strerror}); {hint}"]) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(path, [f"is larger than {MAX_FILE_BYTES} bytes; is it the right file?"])
    try:
        return parse(content.decode(), path)
    except UnicodeDecodeError as error:
        raise ConfigError(path, [f"is no UTF-8 text (byte {error.start})"]) from error


def parse(text: str, path: Path) -> Config:
    """Validates the text of a configuration file.

    Raises:
        ConfigError: It is no TOML or holds errors; all of them are named.
    """
    try:
        raw = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(path, [f"is no valid TOML: {error}"]) from error
    return validated(raw, path)


def validated(raw: Mapping[str, Any], path: Path) -> Config:
    """The configuration that tables hold.

    Args:
        raw: Tables as TOML has them.
        path: Where they are from, for errors.

    Raises:
        ConfigError: They hold errors; all of them are named.
    """
    problems = list(contradictions(raw))
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        problems = _merged(_problem(dict(detail)) for detail in error.errors()) + problems
    if problems:
        raise ConfigError(path, problems)
    return config


def _merged(problems: Iterable[tuple[str, str]]) -> list[str]:
    """One line a key: a value that may be of several types fails once for each of them."""
    by_key: dict[str, list[str]] = {}
    for key, words in problems:
        by_key.setdefault(key, []).append(words)
    return [f"{key}: {'; or: '.join(words)}" for key, words in by_key.items()]


def _problem(detail: Mapping[str, Any]) -> tuple[str, str]:
    # A section's own name comes first, and may be that of a branch elsewhere.
    section, *within = detail["loc"]
    location = (section, *(part for part in within if not _is_branch(part)))
    key = _key_path(location) or "(file)"
    kind = detail["type"]
    if kind == "extra_forbidden":
        return key, f"unknown key; {_suggestion(detail['loc'])}"
    if kind.startswith("union_tag"):
        telling, union = _UNIONS[str(location[0])]
        return f"{key}.{telling}", f"write one of {', '.join(_branches(union))}"
    if kind == "literal_error":
        return key, f"write one of {detail['ctx']['expected']}"
    words = _WORDS.get(kind)
    if words is None:
        words = str(detail["msg"]).removeprefix("Value error, ")
    return key, words


def _is_branch(part: object) -> bool:
    """True for the names pydantic puts into a location for the branch of a union it tried."""
    return isinstance(part, str) and (
        part in _BRANCHES
        or "[" in part
        or part in {"bool", "int", "list", "str", "constrained-int"}
    )


def _key_path(location: Iterable[object]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _suggestion(location: Sequence[object]) -> str:
    model: Any = Config
    for depth, part in enumerate(location[:-1]):
        if isinstance(part, int):
            continue
        if depth and str(part) in _BRANCHES:
            model = _BRANCHES[str(part)]
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        model = _section_of(fields[str(part)].annotation)
    known = sorted(field.alias or name for name, field in model.model_fields.items())
    near = nearest(str(location[-1]), known)
    return f'did you mean "{near}"?' if near else f"known here: {', '.join(known)}"


def _section_of(annotation: Any) -> Any:
    """The section class inside an annotation such as `tuple[ProbeConfig, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _section_of(argument)
        if found is not None:
            return found
    return None


def as_toml_tables(config: Config) -> dict[str, Any]:
    """The configuration in force, defaults included, as tables that TOML can hold."""
    dumped: dict[str, Any] = TypeAdapter(Config).dump_python(config, mode="json", by_alias=True)
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
