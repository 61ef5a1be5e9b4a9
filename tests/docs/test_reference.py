"""The reference pages are generated from the code, and every entry has a description."""

import re
from pathlib import Path
from typing import get_args

import pytest
from costprobe.configuration import Config
from costprobe.core.schema import SCHEMA
from fakes.documents import widened

from scripts.reference import commands, configuration, schemas, series
from scripts.reference.__main__ import stale
from scripts.reference.words import Words

ROOT = Path(__file__).parents[2]
WRITE = {
    configuration: "give each field a description=, and examples=[...]",
    schemas: "write each in scripts/reference/words.toml",
    series: "write each in scripts/reference/words.toml",
    commands: "give each a help= or a docstring, and examples=(...)",
}


def test_reference_pages_are_up_to_date():
    found = [path.name for path in stale()]
    assert not found, f"out of date: {found}; run: python -m scripts.reference"


@pytest.mark.parametrize("part", WRITE, ids=lambda part: part.__name__.rpartition(".")[2])
def test_every_entry_has_a_description(part):
    missing = part.without_words()
    assert not missing, f"no words for {missing}: {WRITE[part]}; then: python -m scripts.reference"


def test_words_are_of_something():
    words = Words()
    found = schemas.documents(schemas.structures(), words)
    for name, measurement in SCHEMA.items():
        series.rows_of(name, measurement, words)
    gone = [*words.unused(), *(set(words.measurements) - set(SCHEMA))]
    gone += [name for name in words.documents if name.partition(".")[0] not in found.roots]
    assert not gone, f"in no document and no series: {gone}; remove them from words.toml"


def test_no_text_names_an_option_that_is_gone():
    gone = {
        f"{section}.{key}"
        for section, field in Config.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))
        for key in getattr(kind, "removed", {})
    }
    texts = [*(ROOT / "agent").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    names = {
        path: set(re.findall(r"(?<![\w.])[a-z_]+\.[a-z_0-9]+\b", path.read_text()))
        for path in texts
    }
    assert "store.retention" in gone
    assert {path.name: found & gone for path, found in names.items() if found & gone} == {}


def test_keys_follow_the_naming_rules():
    """docs/contributing/kinds.md: no repeated namespace, no unit in a key whose value has it."""
    problems = []
    for page in configuration.pages():
        table = page.heading.strip("`[]").partition("]")[0].rpartition(".")[2]
        for key in page.keys:
            has_unit = key.kind.split(",")[0] in ("duration", "size")
            if not re.fullmatch(r"[a-z][a-z0-9_]*", key.name):
                problems.append(f"{table}.{key.name}: not lower case with underscores")
            if key.name.startswith((f"{table}_", "no_", "disable_")):
                problems.append(f"{table}.{key.name}: repeated namespace, or negative")
            if has_unit and key.name.endswith(("_s", "_ms", "_seconds", "_bytes")):
                problems.append(f"{table}.{key.name}: its value has the unit")
            if has_unit and not key.field.endswith(("_s", "_bytes")):
                problems.append(f"{table}.{key.field}: the field has no unit")
    assert not problems, "\n".join(problems)


def test_a_record_of_json_has_types_and_keys_of_all_documents():
    printed = (
        {"cost": 1, "found": [], "last": None},
        {"cost": 0.5, "found": [{"text": "x", "value": None}], "last": {"time_ns": 1}},
        {"cost": 2, "found": [{"text": "y"}], "last": None, "note": "z"},
    )
    schema = {"type": "object", "properties": {}, "required": []}
    for document in (*printed, printed[0]):
        schema = widened(schema, document)
    found = {"text": {"type": "string"}, "value": {"type": "null"}}
    items = {"type": "object", "required": ["text"], "properties": found}
    last = {"required": ["time_ns"], "properties": {"time_ns": {"type": "integer"}}}
    assert schema["required"] == ["cost", "found", "last"]
    assert schema["properties"] == {
        "cost": {"type": ["number"]},
        "found": {"type": "array", "items": items},
        "last": {"type": ["object", "null"], **last},
        "note": {"type": "string"},
    }
