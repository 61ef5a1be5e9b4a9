"""The schemas of JSON documents, and the page about them.

A file in docs/json records what a command prints: the types of each key, and which keys are always
there. Tests record it. Its descriptions and units come from words.toml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from scripts.reference import series
from scripts.reference.markdown import MADE, code
from scripts.reference.words import Words

FOLDER = Path(__file__).parents[2] / "docs" / "json"
Schema = dict[str, Any]
Place = tuple[str, ...]
_REFERENCE = "#/$defs/"
# Keywords of a table of keys, and those that a file has from words.toml or from its name.
_TABLE = ("required", "properties", "additionalProperties")
_ADDED = {"$schema", "$defs", "$ref", "anyOf", "description", "x-unit"}
_KINDS = {"string": "text"}
_LINK = re.compile(r"\[([^\[\]]+)\]\([^)]+\)")
# A shared table of fewer keys is shown wherever it occurs.
_SHARED_KEYS = 4
_WIDTH = 84
_HEAD = """\
# JSON output

A command whose answer another program would read accepts `--json`. The output is one JSON document on standard output
and nothing else, or one document per line where stated. Errors and hints are text on standard error, and exit codes are
the same as without `--json`.

Each command has a schema (JSON Schema, draft 2020-12) in `docs/json`, whose `$id` ends with its version. New keys may
be added within a version; a key that is described here keeps its name, type, unit and meaning. An unknown value is
`null`, never 0 and never a missing key. Times that end in `_ns` are nanoseconds since 1970 in UTC. Amounts that are
summed are exact text; those of series are numbers.

This page has the keys of each document, then [tables that occur in several](#tables), then
[the meaning of each key](#keys). The keys of a table are indented below it. `[]` marks a list and `{}` a table whose
keys are names, `?` a key that may be absent, `|null` one that may be null, and `=name` a table of the second part.
"""
_KEYS = """\
A key without an entry, or elsewhere than its entries state, is a field or tag of the [series](reference/series.md) and
has the meaning there; of a fleet, or of several devices, that of all together. A number whose key matches one of these
has the unit of the first: {units}.
"""


class Documents(NamedTuple):
    """All documents with their words, each table of keys once.

    Attributes:
        roots: The schema of each document by its command; a table in it is a reference.
        tables: The tables of keys by name, likewise.
        places: Where each table occurs, as keys from the document on.
    """

    roots: Mapping[str, Schema]
    tables: Mapping[str, Schema]
    places: Mapping[str, list[Place]]


def file_of(name: str) -> Path:
    """Return the file of a command's document."""
    return FOLDER / f"{name.replace(' --', '-').replace(' ', '-')}.schema.json"


def structure_of(name: str) -> Schema:
    """Return the schema of a document without references and words; empty without a file."""
    path = file_of(name)
    return _structure(path) if path.exists() else {}


def _structure(path: Path) -> Schema:
    root: Schema = json.loads(path.read_text(encoding="utf-8"))

    def plain(schema: Schema, *_: str) -> Schema:
        target = schema.get("anyOf", [schema])[0]
        made = {**root["$defs"][_name(target)], **schema} if "$ref" in target else dict(schema)
        if "anyOf" in schema:
            made["type"] = ["object", "null"]
        return _mapped({key: made[key] for key in made if key not in _ADDED}, plain)

    return plain(root)


def _mapped(schema: Schema, change: Callable[..., Schema]) -> Schema:
    """Return a schema with each schema within it changed; the second argument is its key or title."""
    made = dict(schema)
    for keyword in ("items", "additionalProperties"):
        if isinstance(made.get(keyword), dict):
            made[keyword] = change(made[keyword], "")
    if "oneOf" in made:
        made["oneOf"] = [change(one, one["title"]) for one in made["oneOf"]]
    if "properties" in made:
        made["properties"] = {name: change(held, name) for name, held in made["properties"].items()}
    return made


def documents(found: Mapping[str, Schema], words: Words) -> Documents:
    """Return documents with their words."""
    tables: dict[str, Schema] = {}
    places: dict[str, list[Place]] = {}

    def described(schema: Schema, path: Place) -> Schema:
        made = _mapped(schema, lambda held, name: described(held, (*path, name) if name else path))
        if "properties" in schema:
            made["properties"] = {
                name: {"description": words.of((*path, name)), **held}
                for name, held in made["properties"].items()
            }
            table = {"type": "object", **{key: made.pop(key) for key in _TABLE if key in made}}
            text = json.dumps(table)
            tables[text] = table
            places.setdefault(text, []).append(path)
            reference = {"$ref": text}
            is_null = "null" in types_of(made)
            del made["type"]
            made |= {"anyOf": [reference, {"type": "null"}]} if is_null else reference
        elif unit := words.unit_of(path, made):
            made["x-unit"] = unit
        return made

    roots = {name: described(one, (name,)) for name, one in found.items()}
    names = _names(places)

    def named(schema: Schema, *_: str) -> Schema:
        made = _mapped(schema, named)
        if "anyOf" in made:
            made["anyOf"] = [named(one) for one in made["anyOf"]]
        if "$ref" in made:
            made["$ref"] = f"{_REFERENCE}{names[made['$ref']]}"
        return made

    return Documents(
        {name: named(one) for name, one in roots.items()},
        {names[text]: named(table) for text, table in tables.items()},
        {names[text]: paths for text, paths in places.items()},
    )


def _names(places: Mapping[str, list[Place]]) -> dict[str, str]:
    """Return a name for each table: the shortest end of its shortest place that no other has."""
    names: dict[str, str] = {}
    homes = {text: min(paths, key=_rank) for text, paths in places.items()}
    for text, home in sorted(homes.items(), key=lambda one: _rank(one[1])):
        ends = ["_".join(home[start:]) for start in range(len(home) - 1, -1, -1)]
        free = (re.sub(r"\W+", "_", end) for end in (*ends, f"{home[0]}_document"))
        names[text] = next(end for end in free if end not in names.values())
    return names


def _rank(path: Place) -> tuple[bool, int, bool]:
    return len(path) == 1, len(path), "--" in path[0]


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).removeprefix(_REFERENCE)


def render() -> dict[str, str]:
    """Return the page, and the text of each file, by the name in the repository."""
    words = Words()
    found = documents(structures(), words)
    files = {f"docs/json/{file_of(name).name}": _file(name, found, words) for name in found.roots}
    return {"docs/json.md": _page(found, words), **files}


def without_words() -> list[str]:
    """Return documents and keys without a description."""
    words = Words()
    found = documents(structures(), words)
    missing = [name for name in found.roots if not words.documents.get(name)]
    for name, table in found.tables.items():
        keys = table["properties"]
        missing += [f"{name}.{key}" for key, held in keys.items() if not held["description"]]
    return missing


def structures() -> dict[str, Schema]:
    """Return the schema of each document by its name: the command, or `webhook`."""
    found = [_structure(path) for path in sorted(FOLDER.glob("*.schema.json"))]
    return {_heading(one).removeprefix("costprobe "): one for one in found}


def _heading(root: Schema) -> str:
    return str(root["title"]).removesuffix(" --json")


def _file(name: str, found: Documents, words: Words) -> str:
    root = dict(found.roots[name])
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": root.pop("$id", f"costprobe.{file_of(name).name.removesuffix('.schema.json')}/1"),
        "title": root.pop("title"),
        "description": words.documents.get(name, ""),
        **root,
    }
    if "$ref" in schema:
        schema |= found.tables[_name(schema)]
        del schema["$ref"]
    used, texts = set[str](), [_compact(schema)]
    while texts:
        names = set(re.findall(r'"#/\$defs/(\w+)"', texts.pop())) - used
        used |= names
        texts += [_compact(found.tables[one]) for one in names]
    lines = [f"{json.dumps(key)}: {_compact(held)}" for key, held in schema.items()]
    if used:
        tables = (f"{json.dumps(one)}: {_compact(found.tables[one])}" for one in sorted(used))
        lines.append('"$defs": {\n' + ",\n".join(tables) + "\n}")
    return _LINK.sub(r"\1", "{\n" + ",\n".join(lines) + "\n}\n")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _page(found: Documents, words: Words) -> str:
    """Return the page: each document, each table that occurs in several places, each key."""
    lines = [MADE, _HEAD]
    shared = {
        name: table
        for name, table in found.tables.items()
        if len({path[:-1] for path in found.places[name]}) > 1
        and len(table["properties"]) >= _SHARED_KEYS
    }
    own = {name: table for name, table in found.tables.items() if name not in shared}
    for name, root in found.roots.items():
        about = f"{words.documents[name]} [Schema](json/{file_of(name).name})."
        about += " One document per line." if root.get("x-lines") else ""
        lines += [f"## {_heading(root)}", "", about, ""]
        for one in root.get("oneOf", (root,)):
            if one is not root:
                title = one["title"]
                lines += [f"{title}: {words.documents[f'{name}.{title}']}", ""]
            lines += _block(_document(one, own))
    lines += ["## Tables", ""]
    for name in sorted(shared):
        lines += [f"### {name}", "", *_block(_rows(shared[name], own))]
    return "\n".join([*lines, "## Keys", "", *_glossary(found.tables, words)]) + "\n"


def _document(schema: Schema, own: Mapping[str, Schema]) -> list[str]:
    key, below = _value("", schema, own)
    return _lines(key, below) if key else below


def _value(key: str, schema: Schema, own: Mapping[str, Schema]) -> tuple[str, list[str]]:
    """Return a key with its marks, and the lines of the keys below it; a document has no key."""
    nulls = "|null" if "null" in types_of(schema) or "anyOf" in schema else ""
    schema = schema.get("anyOf", [schema])[0]
    while isinstance(held := _held(schema), dict):
        key += "[]" if "items" in schema else "{}"
        schema = held
    key += nulls
    if "$ref" not in schema:
        return key, []
    name = _name(schema)
    return (key, _rows(own[name], own)) if name in own else (f"{key}={name}", [])


def _held(schema: Schema) -> object:
    return schema.get("items", schema.get("additionalProperties"))


def _rows(table: Schema, own: Mapping[str, Schema]) -> list[str]:
    """Return the lines of a table: first the keys with none below them, then others with these."""
    alike: dict[tuple[str, ...], list[str]] = {(): []}
    for name, held in table["properties"].items():
        is_required = name in table.get("required", ())
        key, below = _value(name if is_required else f"{name}?", held, own)
        alike.setdefault(tuple(below), []).append(key)
    return [line for below, keys in alike.items() for line in _lines(", ".join(keys), below)]


def _lines(keys: str, below: Sequence[str]) -> list[str]:
    if len(below) == 1 and len(keys) + len(below[0]) < _WIDTH:
        return [f"{keys}: {below[0]}"]
    return [keys, *(f"    {line}" for line in below)] if keys else []


def _block(lines: Sequence[str]) -> list[str]:
    """Return lines as text of a page, wrapped below their beginning."""
    found = ["```text"]
    for line in lines:
        margin = " " * (len(line) - len(line.lstrip()))
        found += wrap(line, _WIDTH, subsequent_indent=margin)
    return [*found, "```", ""]


def _glossary(tables: Mapping[str, Schema], words: Words) -> Iterator[str]:
    """Yield the meanings of each key, in alphabetical order, except those on the page of the series."""
    found: dict[str, dict[str, list[Schema]]] = {}
    for table in tables.values():
        for name, held in table["properties"].items():
            found.setdefault(name, {}).setdefault(held["description"], []).append(held)
    yield _KEYS.format(
        units="; ".join(f"{code(one)} {unit}" for one, unit in words.patterns.items())
    )
    elsewhere = series.explained(words)
    for name, meanings in sorted(found.items()):
        ends = words.ends_of(name)
        for text, schemas in sorted(meanings.items(), key=lambda one: ends[one[0]]):
            facts = ", ".join(_facts(name, text, schemas, words))
            if ends[text] or name not in elsewhere:
                where = "".join(f", in {code(end)}" for end in ends[text])
                meaning = text.replace("](../", "](")
                yield f"- {code(name)}{where}{facts and f' ({facts})'}: {meaning}"


def _facts(name: str, text: str, schemas: Sequence[Schema], words: Words) -> Iterator[str]:
    """Yield what neither the marks, the name nor the meaning of a key tells of its type, values and unit."""
    inner = []
    for schema in schemas:
        inner.append(schema.get("anyOf", [schema])[0])
        while isinstance(held := _held(inner[-1]), dict):
            inner[-1] = held
    kinds = {kind for one in inner for kind in types_of(one)} - {"null", "object"}
    units = {one["x-unit"] for one in inner if "x-unit" in one}
    values = [f"`{value}`" for value in inner[0].get("enum", ()) if value]
    pattern = next((one for one in words.patterns if fnmatchcase(name, one)), "")
    if not all(value in text for value in values):
        yield " or ".join(values)
    elif kinds and not (kinds <= {"number", "integer"} and pattern):
        yield " or ".join(_KINDS.get(kind, kind) for kind in sorted(kinds))
    if len(units) == 1 and not pattern:
        yield units.pop()


def types_of(schema: Schema) -> list[str]:
    """Return the types of a value."""
    values = ["null" if value is None else "string" for value in schema.get("enum", ())]
    given = schema.get("type", [*dict.fromkeys(values)])
    return [given] if isinstance(given, str) else given
