"""The configuration page: every table and key, from the typed models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from costprobe.configuration import Config
from costprobe.core.config.fields import Section
from costprobe.core.config.model import toml_value
from costprobe.core.units import format_duration
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.reference import rules
from scripts.reference.docstrings import about
from scripts.reference.kinds import kind_words, limit_words, sections_in
from scripts.reference.markdown import MADE, Tables, code

REQUIRED = "**required**"
_HEAD = """\
# Configuration

One TOML file, `/etc/costprobe/costprobe.toml` unless `--config` names another. `costprobe config
check` reports all errors at once, each with its key and a fix; a key that is not on this page is an error.
`costprobe config init` writes a commented file, `costprobe config show` prints the values in force,
defaults included. How options are named: [naming](../contributing/kinds.md#name-an-option).

| type | in the file |
| --- | --- |
| duration | text with a unit: `"250ms"`, `"30s"`, `"5m"`, `"12h"`, `"7d"`, `"1y"` |
| size | text with a unit: `"512MiB"`, `"4GiB"`, `"8GB"` |
| share | a number from 0 to 1, or a percentage: `0.01`, `"1%"` |
| name | up to 64 letters, digits and `_ . : -`, starting with a letter or a digit |
| currency | ISO 4217 code of three capitals: `"USD"` |
| exact number | decimal with any number of digits; money is never rounded |
| time of day, time zone | `"17:30"`; an IANA name such as `"Europe/Berlin"` |
| counter | the name of a counter, or `name{label="value"}` where only some of its series count |
| path | a file of this host |
| secret | where a secret is: `"file:/PATH"`, or `"credential:NAME"` of systemd; it is read for each use, so it may be rotated |
| table of | names to values: `{ rack = "a1" }` |
"""


class Key(NamedTuple):
    """One key of a table.

    Attributes:
        section: The class of the table.
        field: Name of the field.
        name: Name in the file.
        kind: Readable type of the value.
        default: Default value in TOML; empty if there is none.
        example: Example value in TOML; empty if there is none, or it equals the default.
        words: Description; empty if there is none.
    """

    section: type[BaseModel]
    field: str
    name: str
    kind: str
    default: str
    example: str
    words: str

    @property
    def shown(self) -> str:
        """Its default value, or an example where there is none."""
        if self.default not in ("", REQUIRED):
            return self.default
        return ", ".join(filter(None, (self.default, self.example and f"e.g. {self.example}")))


class Page(NamedTuple):
    """The section of the page about one table of the file.

    Attributes:
        heading: Heading in the file, with the kind if there are several.
        level: Depth of the heading.
        paragraphs: Description of the table.
        keys: Its keys.
    """

    heading: str
    level: int
    paragraphs: list[str]
    keys: list[Key]

    @property
    def rows(self) -> list[list[str]]:
        """Its keys as rows of a table."""
        return [[code(key.name), key.kind, key.shown, key.words] for key in self.keys]


def render() -> str:
    """Return the page."""
    found = [*pages()]
    # A table of several sections, such as hours, is shown once.
    homes = {str(part.rows): part.heading for part in reversed(found) if part.rows}
    keys = Tables(
        ("key", "type", "default", "description"),
        [part.rows for part in found if homes.get(str(part.rows)) == part.heading],
        least=3,
        where="[Shared](#keys-of-several-tables)",
    )
    lines = [MADE, _HEAD, "## Keys of several tables", "", keys.shared, ""]
    for part in found:
        home = homes.get(str(part.rows), part.heading)
        lines += [f"{'#' * part.level} {part.heading}", "", *_apart(part.paragraphs)]
        lines += keys.lines(part.rows) if home == part.heading else [f"Keys: as {home}.", ""]
    lines.append(rules.section())
    return "\n".join(lines).rstrip() + "\n"


def pages() -> Iterator[Page]:
    """Yield the tables in the order of the file; keys of a kind follow the keys of all kinds."""
    hints = get_type_hints(Config, include_extras=True)
    for name in Config.model_fields:
        hint = hints[name]
        is_list = get_origin(hint) is tuple
        heading = f"[[{name}]]" if is_list else f"[{name}]"
        sections = sections_in(hint)
        if len(sections) == 1:
            yield Page(code(heading), 2, about(sections[0]), keys_of(sections[0]))
            yield from _inner(sections[0], name, 3)
        elif sections:
            yield from _union(name, heading, sections)


def keys_of(section: type[BaseModel], without: type[BaseModel] = Section) -> list[Key]:
    """Return the keys of a table, except those inherited unchanged from another class."""
    hints = get_type_hints(section, include_extras=True)
    found = []
    for field, info in section.model_fields.items():
        if _is_inherited(field, section, without):
            continue
        default = _default(info, hints[field])
        example = code(toml_value(info.examples[0])) if info.examples else ""
        found.append(
            Key(
                section,
                field,
                info.alias or field,
                _kind(hints[field], info),
                default,
                "" if example == default else example,
                info.description or "",
            )
        )
    return found


def without_words() -> list[str]:
    """Return tables and keys without a description, and keys that lack an example."""
    missing = []
    for page in pages():
        if not page.paragraphs:
            missing.append(f"{page.heading}: its class has no docstring")
        for key in page.keys:
            name = f"{key.section.__module__}.{key.section.__name__}.{key.field}"
            if not key.words:
                missing.append(f"{name}: description")
            # A default is an example; a key without one, or with an empty one, needs another.
            has_default = key.default not in ("", REQUIRED)
            if not has_default and not key.section.model_fields[key.field].examples:
                missing.append(f"{name}: examples")
    return list(dict.fromkeys(missing))


def _union(name: str, heading: str, sections: list[type[BaseModel]]) -> Iterator[Page]:
    """Yield the keys of all kinds, then those of several kinds before the first of them, then its own."""
    shared = _shared_base(sections)
    yield Page(code(heading), 2, about(shared), keys_of(shared))
    yield from _inner(shared, name, 3)
    shown = set[type[BaseModel]]()
    for section in sections:
        several = _base_of_several(section, sections, shared)
        if several not in {shared, *shown}:
            kinds = " or ".join(
                code(_kind_line(one)) for one in sections if issubclass(one, several)
            )
            yield Page(f"{code(heading)} with {kinds}", 3, about(several), keys_of(several, shared))
            yield from _inner(several, name, 4)
            shown.add(several)
        selector = _kind_line(section)
        yield Page(
            f"{code(heading)} with {code(selector)}"
            if selector
            else f"{code(heading)} of any other kind",
            3,
            about(section),
            keys_of(section, several),
        )
        yield from _inner(section, name, 4, without=several)


def _base_of_several(
    section: type[BaseModel], sections: list[type[BaseModel]], shared: type[BaseModel]
) -> type[BaseModel]:
    """Return the most general class with keys of several kinds, but not of all; else that of all kinds."""
    bases = [base for base in section.__mro__[1:] if issubclass(base, shared) and base != shared]
    found = [base for base in bases if sum(issubclass(one, base) for one in sections) > 1]
    return found[-1] if found else shared


def _inner(
    section: type[BaseModel], path: str, level: int, without: type[BaseModel] = Section
) -> Iterator[Page]:
    """Yield the tables nested in a table, except those of another class."""
    for field, hint in get_type_hints(section, include_extras=True).items():
        info = None if field in without.model_fields else section.model_fields.get(field)
        for inner in sections_in(hint) if info is not None else ():
            within = f"{path}.{(info and info.alias) or field}"
            is_list = get_origin(hint) is tuple
            heading = code(f"[[{within}]]" if is_list else f"[{within}]")
            yield Page(heading, level, about(inner), keys_of(inner))
            yield from _inner(inner, within, min(level + 1, 6))


def _shared_base(sections: list[type[BaseModel]]) -> type[BaseModel]:
    """Return the nearest common base class."""
    return next(
        parent
        for parent in sections[0].__mro__
        if all(issubclass(section, parent) for section in sections)
    )


def _is_inherited(field: str, section: type[BaseModel], parent: type[BaseModel]) -> bool:
    inherited = parent.model_fields.get(field)
    mine = section.model_fields[field]
    return parent is not section and inherited is not None and mine.default == inherited.default


def _kind_line(section: type[BaseModel]) -> str:
    """Return the key and value that select a kind, as in the file."""
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
        return REQUIRED
    value = info.get_default(call_default_factory=True, validated_data={})
    return code(_as_toml(value, kind_words(hint))) if value not in (None, (), {}) else ""


def _as_toml(value: Any, kind: str) -> str:  # noqa: ANN401 - any default
    if isinstance(value, tuple):
        return f"[{', '.join(_as_toml(one, kind) for one in value)}]"
    if isinstance(value, int | float) and "duration" in kind:
        return f'"{format_duration(value) if value else "0s"}"'
    if isinstance(value, float) and "share" in kind:
        return f'"{value:.6%}"'.replace(".000000%", "%")
    return toml_value(value)


def _apart(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (paragraph, "")]
