"""The page of the configuration: every table and key, from the models that read the file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent.config import Config
from agent.config_fields import Section
from agent.units import format_duration
from scripts.reference import rules
from scripts.reference.docstrings import about, attributes
from scripts.reference.kinds import kind_words, limit_words, sections_in
from scripts.reference.markdown import MADE, code, table

_HEAD = """\
# Configuration

One TOML file, `/etc/infercost/infercost.toml` unless `--config` names another. Every error is named
in one pass with its key and its fix (`infercost config check`); a key that is not on this page is an
error. `infercost config init` writes a commented file, `infercost config show` prints what is in
force, defaults included.

| words | in the file |
| --- | --- |
| duration | text with a unit: `"250ms"`, `"30s"`, `"5m"`, `"12h"`, `"7d"`, `"1y"` |
| size | text with a unit: `"512MiB"`, `"4GiB"`, `"8GB"` |
| share | a number from 0 to 1, or a percentage: `0.01`, `"1%"` |
| name | up to 64 letters, digits and `_ . : -`, of which the first is a letter or a digit |
| currency | three capitals by ISO 4217: `"USD"` |
| exact number | as many digits as it has; money is never rounded |
| time of day, time zone | `"17:30"`; an IANA name such as `"Europe/Berlin"` |
| counter | the name of a counter, or `name{label="value"}` where only a part of it counts |
| path | a file of this host; one that ends in `_file` is read anew each time, so it may be rotated |
| table of | names to values: `{ rack = "a1" }` |
"""


class Key(NamedTuple):
    """One key of a table.

    Attributes:
        section: The class that has it.
        field: Its name there.
        name: As the file has it.
        kind: What may stand behind it.
        default: As the file would have it; empty if there is none.
        words: What it means; empty if nobody wrote it.
    """

    section: type[BaseModel]
    field: str
    name: str
    kind: str
    default: str
    words: str


class Page(NamedTuple):
    """A table of the file, for its part of the page.

    Attributes:
        heading: As the file writes it, with what tells it from its likes.
        level: Depth of the heading.
        paragraphs: What it is for.
        keys: What may stand in it.
    """

    heading: str
    level: int
    paragraphs: list[str]
    keys: list[Key]


def render() -> str:
    """The page."""
    lines = [MADE, _HEAD]
    for part in pages():
        lines += [f"{'#' * part.level} {part.heading}", "", *_apart(part.paragraphs)]
        if part.keys:
            rows = [[code(key.name), key.kind, key.default, key.words] for key in part.keys]
            lines += [table(["key", "is", "default", "meaning"], rows), ""]
    lines.append(rules.section())
    return "\n".join(lines).rstrip() + "\n"


def pages() -> Iterator[Page]:
    """Every table of the file in its order; what a kind adds stands below what all kinds have."""
    for name, hint in get_type_hints(Config, include_extras=True).items():
        is_list = get_origin(hint) is tuple
        heading = f"[[{name}]]" if is_list else f"[{name}]"
        sections = sections_in(hint)
        if len(sections) == 1:
            yield Page(code(heading), 2, about(sections[0]), keys_of(sections[0]))
            yield from _inner(sections[0], name, 3)
        else:
            yield from _union(name, heading, sections)


def keys_of(section: type[BaseModel], without: type[BaseModel] = Section) -> list[Key]:
    """The keys of a table, but for those that another class has in the same way."""
    words = attributes(section)
    hints = get_type_hints(section, include_extras=True)
    found = []
    for field, info in section.model_fields.items():
        if _is_inherited(field, section, without):
            continue
        says_kind = _only_literal(hints[field]) is not None
        found.append(
            Key(
                section,
                field,
                info.alias or field,
                _kind(hints[field], info),
                _default(info, hints[field]),
                _in_the_file(words.get(field, "Says which kind it is." if says_kind else "")),
            )
        )
    return found


def without_words() -> list[str]:
    """Keys that nobody wrote words for, and tables without any, as `module.Class.key`."""
    missing = []
    for page in pages():
        if not page.paragraphs:
            missing.append(f"{page.heading}: its class has no docstring")
        missing += [
            f"{key.section.__module__}.{key.section.__name__}.{key.field}"
            for key in page.keys
            if not key.words
        ]
    return list(dict.fromkeys(missing))


def _union(name: str, heading: str, sections: list[type[BaseModel]]) -> Iterator[Page]:
    shared = _shared(sections)
    yield Page(code(heading), 2, about(shared), keys_of(shared))
    yield from _inner(shared, name, 3)
    for section in sections:
        told = _telling(section)
        yield Page(
            f"{code(heading)} with {code(told)}" if told else f"{code(heading)} of any other kind",
            3,
            about(section),
            keys_of(section, shared),
        )
        yield from _inner(section, name, 4)


def _inner(section: type[BaseModel], path: str, level: int) -> Iterator[Page]:
    """The tables within a table."""
    for field, hint in get_type_hints(section, include_extras=True).items():
        info = section.model_fields.get(field)
        for inner in sections_in(hint) if info is not None else ():
            within = f"{path}.{(info and info.alias) or field}"
            is_list = get_origin(hint) is tuple
            heading = code(f"[[{within}]]" if is_list else f"[{within}]")
            yield Page(heading, level, about(inner), keys_of(inner))
            yield from _inner(inner, within, min(level + 1, 6))


def _shared(sections: list[type[BaseModel]]) -> type[BaseModel]:
    """The nearest class that all of these are made from."""
    return next(
        parent
        for parent in sections[0].__mro__
        if all(issubclass(section, parent) for section in sections)
    )


def _is_inherited(field: str, section: type[BaseModel], parent: type[BaseModel]) -> bool:
    inherited = parent.model_fields.get(field)
    mine = section.model_fields[field]
    return parent is not section and inherited is not None and mine.default == inherited.default


def _telling(section: type[BaseModel]) -> str:
    """The key and value that tell a kind from the others, as the file has them."""
    for field, hint in get_type_hints(section, include_extras=True).items():
        value = _only_literal(hint)
        if value is not None:
            return f'{field} = "{value}"'
    return ""


def _only_literal(hint: object) -> str | None:
    values = get_args(hint) if get_origin(hint) is Literal else ()
    return str(values[0]) if len(values) == 1 else None


def _kind(hint: object, info: FieldInfo) -> str:
    limits = limit_words(hint, info.metadata)
    return kind_words(hint) + (f", {limits}" if limits else "")


def _default(info: FieldInfo, hint: object) -> str:
    if info.is_required():
        return "**required**"
    value = info.get_default(call_default_factory=True, validated_data={})
    return code(_as_toml(value, kind_words(hint))) if value not in (None, (), {}) else ""


def _as_toml(value: Any, kind: str) -> str:  # noqa: ANN401 - whatever a default is
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_as_toml(one, kind) for one in value)}]"
    if isinstance(value, str | Path):
        return f'"{value}"'
    if isinstance(value, int | float) and "duration" in kind:
        return f'"{format_duration(value) if value else "0s"}"'
    if isinstance(value, float) and "share" in kind:
        return f'"{value:.6%}"'.replace(".000000%", "%")
    if isinstance(value, int | float | Decimal | date):
        return f"{value}"
    raise TypeError(f"say how a default of {type(value).__name__} is written in {__name__}")


def _in_the_file(words: str) -> str:
    """Words of a key: in the code a duration is in seconds, in the file it has its own unit."""
    return words.replace(" in seconds", "")


def _apart(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (paragraph, "")]
