"""Validation of a command's JSON against its schema."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "json"


def file_of(name):
    return f"{name.replace(' --', '-').replace(' ', '-')}.schema.json"


def schema_of(name):
    return json.loads((SCHEMAS / file_of(name)).read_text())


def strict(schema):
    """Return the schema with additional keys disallowed."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def checked(name, text):
    """Return the documents that a command printed, after validation against its schema."""
    schema = schema_of(name)
    assert "\x1b" not in text
    parts = text.splitlines() if schema.get("x-lines") else [text]
    documents = [json.loads(part) for part in parts]
    validator = Draft202012Validator(strict(schema))
    wrong = [
        f"{error.json_path}: {error.message}"
        for document in documents
        for error in validator.iter_errors(document)
    ]
    assert wrong == []
    assert documents
    assert all(documents)
    return documents if schema.get("x-lines") else documents[0]
